"""This room has the commands for two histories of one partition: compare, merge, restore."""
