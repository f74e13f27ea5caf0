"""This room runs a transaction's reads and commits, wherever the partition is: one partition or two-phase commit."""
