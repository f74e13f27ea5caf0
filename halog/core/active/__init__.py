"""This room has what an active copy does beside writing: hand-over, lease, overrides, role return.

What it appends goes through the writer.
"""
