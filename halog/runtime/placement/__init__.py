"""This room gives partitions their nodes: the first placement, plans, migration."""
