"""A test kit for applications that use halog (X5): a pytest plugin with a node in memory and a cluster in memory.

Never needed by a node in production; nothing outside of it imports it.
"""
