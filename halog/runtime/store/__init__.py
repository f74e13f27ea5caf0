"""This room says how objects of a copy stand on disk and in memory. It knows no log."""
