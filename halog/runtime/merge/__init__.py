"""This room compares, restores and merges two histories of a partition: what commands ask for, and what the active node
does."""
