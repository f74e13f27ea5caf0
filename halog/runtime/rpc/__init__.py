"""This room has requests between nodes: their form, their routes, their repeats and their errors."""
