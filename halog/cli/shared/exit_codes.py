"""These are the exit codes of commands that did what they were asked and found a problem."""

DEGRADED_EXIT = 4
"""The cluster is degraded, or a part of it that the command was asked about."""

REFUSED_EXIT = 5
"""The command checked what it was asked, refused it, and changed nothing."""
