"""This room has the commands for single objects and types: list, get, delete, export, import."""
