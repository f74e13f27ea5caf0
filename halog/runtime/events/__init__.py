"""This room tells operators what happened. It never acts on it."""
