"""This module has what a node knows of another hosting node: its registration, the connection to it, its silence."""

from __future__ import annotations

from halog.core.election.challenges import Challenges
from halog.core.membership.node_states import NodeState
from halog.errors import DuplicateLocationError, DuplicateTimestampError, HalogError, VersionMismatchError
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.interfaces import InterfaceTurns


def refusal_of(error: HalogError | None) -> NodeState | None:
    """Return the state of a node that this process does not talk to because of this error; None: it has none of its
    own."""
    if isinstance(error, DuplicateTimestampError):
        return NodeState.DUPLICATE_TIMESTAMP
    if isinstance(error, DuplicateLocationError):
        return NodeState.DUPLICATE_LOCATION
    return NodeState.UNSUPPORTED_PROTOCOL if isinstance(error, VersionMismatchError) else None


class NodeLink:
    """A `NodeLink` holds what is known of one run of another hosting node. Whoever changes it is
    `halog.runtime.membership.members`."""

    __slots__ = (
        "_patience_ms",
        "challenges",
        "cut",
        "cut_ms",
        "cut_told",
        "dead",
        "dialled_ms",
        "dialling",
        "down_before",
        "heard_ms",
        "info",
        "left",
        "lost",
        "offline",
        "peer",
        "refused",
        "refused_as",
        "refused_told",
        "retry_ms",
        "speaks",
        "turns",
        "unreached_ms",
        "unregistered_ms",
        "up",
        "via",
    )

    def __init__(self, info: NodeInfo, patience_ms: int, now_ms: int, obstacle: HalogError | None) -> None:
        self.info = info
        self._patience_ms = patience_ms
        self.turns = InterfaceTurns(info.reached, patience_ms)
        self.peer: Peer | None = None
        self.via = ""
        """The address that the connection was made to."""
        self.heard_ms = now_ms
        self.challenges = Challenges(patience_ms)
        self.dead = self.cut = self.cut_told = False
        self.cut_ms = 0
        """Is its process known to be no more; does it live, and is not heard?"""
        self.unreached_ms = 0
        """Since when no connection to it can be made, for whatever reason but that it is refused; 0: one can."""
        self.dialled_ms = 0
        self.retry_ms = 0
        self.unregistered_ms = 0
        """For how long we have seen it unregistered."""
        self.dialling = False
        self.up = False
        """Is it registered and heard?"""
        self.offline = ""
        """Why it says that it is, if it does."""
        self.down_before = False
        """Was it up, and then not? What comes up for the first time tells so itself."""
        self.left = False
        self.lost = ""
        """Why it went down last."""
        self.refused = "" if obstacle is None else obstacle.message
        """Why the two do not talk: as it has registered, or as it said when it was connected to last."""
        self.refused_as = refusal_of(obstacle)
        self.refused_told = ""
        self.speaks = obstacle is None
        """Is it worth connecting to?"""

    def moved(self, info: NodeInfo) -> None:
        """Take the addresses at which the run is reached now. None of them has failed yet."""
        self.info, self.turns = info, InterfaceTurns(info.reached, self._patience_ms)

    @property
    def present(self) -> bool:
        """Say whether it is up for everybody, not only reached."""
        return self.up and not self.offline
