"""This package holds a test kit for applications (X5): a pytest plugin with a node in memory and a cluster in memory.

A node in production never needs it; nothing outside of it imports it.
"""
