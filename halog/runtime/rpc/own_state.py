"""Says what a node knows of itself; its requests go by it."""

from __future__ import annotations


class OwnState:
    """An `OwnState` says why this very node is offline, if it is (Q1). Its membership finds out, its router goes by
    it."""

    __slots__ = ("why_offline",)

    def __init__(self) -> None:
        self.why_offline = ""
        """Empty: it is not offline."""
