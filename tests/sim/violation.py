"""A promise that was broken."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken."""


def demand(holds: bool, what: str) -> None:
    """What is looked at after each step raises by itself: its text, made in vain, took a twentieth of the time."""
    if not holds:
        raise Violation(what)
