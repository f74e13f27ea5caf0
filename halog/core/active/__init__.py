"""This room has an active copy: it hears commits, acknowledgements and the log. Also hand-over, lease, overrides, role
return, merges.

What it appends goes through the writer.
"""
