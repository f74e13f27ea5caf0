"""This room carries frames between processes over TCP. It never reads what is in a frame."""
