"""This room has what an active copy does beside writing: hand-over, lease, overrides, role return.

It never writes to the log itself.
"""
