"""Says what a node knows of itself; its requests go by it."""

from __future__ import annotations

from halog.errors import VersionMismatchError


class OwnState:
    """An `OwnState` says why this very node is offline, if it is (Q1), and whether its halog knows the cluster's level
    (U1). Its membership and its watch of the level find out, its requests go by it."""

    __slots__ = ("_outdated", "why_offline")

    def __init__(self) -> None:
        self.why_offline = ""
        """Empty: it is not offline."""
        self._outdated: VersionMismatchError | None = None
        """Why it takes on nothing new; None: it knows the level."""

    @property
    def why_outdated(self) -> str:
        """Return why a node that does not know the level is offline; "": it knows it."""
        return "" if self._outdated is None else self._outdated.message.partition(";")[0]

    def outgrown(self, why: VersionMismatchError) -> bool:
        """Note that the level is not known any more; return False if it was not before."""
        first = self._outdated is None
        self._outdated = self._outdated or why
        return first

    def check_level(self) -> None:
        """Raise VersionMismatchError once the level is one that this halog does not know."""
        if self._outdated is not None:
            raise VersionMismatchError(self._outdated.message, **self._outdated.evidence)
