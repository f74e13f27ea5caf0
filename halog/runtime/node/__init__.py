"""This room puts a node together, starts it and ends it. No other room imports it."""
