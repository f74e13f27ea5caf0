"""This room has the mapping as a node knows it: routes of keys, choices for new objects."""
