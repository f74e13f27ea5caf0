"""A module the configuration does not name: its exceptions are never built from the wire."""

from __future__ import annotations


class Unlisted(Exception):
    """Known to both processes, and yet not to be made by name."""
