"""This room follows the log on a copy that is not active, and has what a copy holds in memory.

It never acknowledges what it has not got.
"""
