"""A promise that was broken."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken."""


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)
