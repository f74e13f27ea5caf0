"""This room says how objects of a copy stand on disk and in memory. It never reads the log."""
