"""This room is the arithmetic of copies over nodes: who hosts which copy, what moves. It never starts a move."""
