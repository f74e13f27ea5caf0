"""This room has the commands that bring a cluster to another release of halog."""
