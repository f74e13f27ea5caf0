"""Histories of two sites: what is between them, who acts there, and what must hold of both."""
