"""This room has the commands for partitions: where copies are, quorum, migration, mapping, plans."""
