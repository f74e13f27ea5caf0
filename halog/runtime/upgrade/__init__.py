"""This room brings the nodes of a cluster to another release, one after the other."""
