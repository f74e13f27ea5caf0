"""This room compares, restores and merges two histories of a partition on the active node."""
