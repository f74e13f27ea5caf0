"""Says what a node knows of itself; its requests go by it."""

from __future__ import annotations

from halog.errors import VersionMismatchError


class OwnState:
    """An `OwnState` says why this very node is offline, if it is (Q1), and whether its halog knows the cluster's level
    (U1). Its membership and its watch of the level find out, its requests go by it."""

    __slots__ = ("outdated", "why_offline")

    def __init__(self) -> None:
        self.why_offline = ""
        """Empty: it is not offline."""
        self.outdated: VersionMismatchError | None = None
        """Why it takes on nothing new; None: it knows the level."""

    @property
    def why_outdated(self) -> str:
        """Return why a node that does not know the level is offline; "": it knows it."""
        return "" if self.outdated is None else self.outdated.message.partition(";")[0]

    def check_level(self) -> None:
        """Raise VersionMismatchError once the level is one that this halog does not know."""
        if self.outdated is not None:
            raise VersionMismatchError(self.outdated.message, **self.outdated.evidence)
