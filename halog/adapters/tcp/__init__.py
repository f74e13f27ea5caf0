"""This room carries frames between processes over TCP, with TLS or without. It never reads what is in a frame."""
