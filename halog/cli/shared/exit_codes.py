"""Exit codes of commands that have done what they were asked, and found something."""

DEGRADED_EXIT = 4
"""The cluster, or what was asked of it, is not well."""

REFUSED_EXIT = 5
"""It was looked at and refused: nothing was changed."""
