"""This room has the commands that compare, merge and restore two histories of one partition."""
