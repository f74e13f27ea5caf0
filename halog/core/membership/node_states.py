"""This module has the states of a remote node (N3) as one process knows them: a table, and how what the process sees
becomes a row of it.

UNDISCOVERED          no address of it is known
DISCOVERED            its address is known; it was not reached since
IN_UP_NOTIFIER        it is up, and the application is being told
UP                    it is connected, heard, and takes part
IN_DOWN_NOTIFIER      it is not up any more, and the application is being told
DOWN                  it was up, or says that it is offline, and is not up
DUPLICATE_LOCATION    it and another process say that they are the same node
DUPLICATE_TIMESTAMP   its data directory is a copy of another node's
UNSUPPORTED_PROTOCOL  it has no protocol in common with this process

With a node in one of the last three nobody talks until that is corrected. There is no clock and no I/O. Who is up is
decided elsewhere; this follows it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from halog.core.transitions import following


class NodeState(enum.Enum):
    """A `NodeState` is the state of a remote node; the module lists the states."""

    UNDISCOVERED = "Undiscovered"
    DISCOVERED = "Discovered"
    IN_UP_NOTIFIER = "InUpNotifier"
    UP = "Up"
    IN_DOWN_NOTIFIER = "InDownNotifier"
    DOWN = "Down"
    DUPLICATE_LOCATION = "DuplicateLocation"
    DUPLICATE_TIMESTAMP = "DuplicateTimestamp"
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"


TELLING: Final = frozenset({NodeState.IN_UP_NOTIFIER, NodeState.IN_DOWN_NOTIFIER})
"""The states that last until the notifiers have returned."""

REFUSALS: Final = {
    NodeState.DUPLICATE_LOCATION: "same location",
    NodeState.DUPLICATE_TIMESTAMP: "same installation",
    NodeState.UNSUPPORTED_PROTOCOL: "no common protocol",
}
"""The states in which nobody talks, each with what leads there."""

_REFUSED = {happening: state for state, happening in REFUSALS.items()}
_CORRECTED = {"corrected": NodeState.DISCOVERED, "address gone": NodeState.UNDISCOVERED}

TRANSITIONS: Final[dict[NodeState | None, dict[str, NodeState]]] = {
    None: {"named": NodeState.UNDISCOVERED},
    NodeState.UNDISCOVERED: {"address known": NodeState.DISCOVERED},
    NodeState.DISCOVERED: {
        "heard": NodeState.IN_UP_NOTIFIER,
        "offline": NodeState.DOWN,
        "address gone": NodeState.UNDISCOVERED,
        **_REFUSED,
    },
    NodeState.IN_UP_NOTIFIER: {"notifiers returned": NodeState.UP},
    NodeState.UP: {"lost": NodeState.IN_DOWN_NOTIFIER, "notifier added": NodeState.IN_UP_NOTIFIER},
    NodeState.IN_DOWN_NOTIFIER: {"notifiers returned": NodeState.DOWN},
    NodeState.DOWN: {"heard": NodeState.IN_UP_NOTIFIER, "started again": NodeState.DISCOVERED, **_REFUSED},
    NodeState.DUPLICATE_LOCATION: _CORRECTED,
    NodeState.DUPLICATE_TIMESTAMP: _CORRECTED,
    NodeState.UNSUPPORTED_PROTOCOL: _CORRECTED,
}
"""The key `None`: this process knows nothing of the node."""


def next_state(state: NodeState | None, happening: str) -> NodeState:
    """Return the next state, as the table has it; see `following`."""
    return following(TRANSITIONS, state, happening)


class NodeSight(msgspec.Struct, frozen=True):
    """A `NodeSight` is what a process knows of another node at one moment."""

    run: int = 0
    """The run of the node that is known last; 0: none."""
    registered: bool = False
    """Is an address of that run known now?"""
    up: bool = False
    """Is it connected and heard, and does it take part?"""
    offline: bool = False
    """Is it heard, and says that it is offline for want of a quorum (Q1)?"""
    refused: NodeState | None = None
    """The state in which nobody talks, if there is cause for one."""
    why: str = ""
    """Why it is up, or is not."""


class NodeStateChange(NamedTuple):
    """A `NodeStateChange` is one row of the table, taken."""

    before: NodeState
    happening: str
    now: NodeState


class NodeStateTracker:
    """A `NodeStateTracker` follows the state of one remote node.

    While the application is being told, what is seen meanwhile waits. Of that only the end counts, and whether the node
    was up without a break: `comings` tells one time that it is up from another.
    """

    def __init__(self) -> None:
        self.state = next_state(None, "named")
        self.sight = NodeSight()
        """What was seen last."""
        self.comings = 0
        """How often it was seen to come up."""
        self._counted = 0
        """The coming up that the state follows."""
        self._run = 0
        """The run that was heard last."""

    def look(self, sight: NodeSight) -> list[NodeStateChange]:
        """Take what is seen now; return what has happened since the last look."""
        if sight.up and (not self.sight.up or sight.run != self.sight.run):
            self.comings += 1
        self.sight = sight
        return self._follow()

    def returned(self) -> list[NodeStateChange]:
        """Note that the notifiers have returned; return what has happened."""
        return [self._take("notifiers returned"), *self._follow()]

    def added(self) -> list[NodeStateChange]:
        """Note that there is a notifier more, which is to be told of a node that is up; return what has happened."""
        return [self._take("notifier added")] if self.state is NodeState.UP else []

    @property
    def target(self) -> NodeState:
        """Return the state that follows once the notifiers have returned; this one, if none are called."""
        if self.state is NodeState.IN_UP_NOTIFIER:
            return NodeState.UP
        return self.sight.refused or NodeState.DOWN if self.state is NodeState.IN_DOWN_NOTIFIER else self.state

    def _follow(self) -> list[NodeStateChange]:
        taken = []
        while (happening := next(self._happenings(), None)) is not None:
            taken.append(self._take(happening))
        return taken

    def _take(self, happening: str) -> NodeStateChange:
        before, self.state = self.state, next_state(self.state, happening)
        if happening in ("heard", "offline"):
            self._run, self._counted = self.sight.run, self.comings
        return NodeStateChange(before, happening, self.state)

    def _happenings(self) -> Iterator[str]:
        """Yield what the sight means in this state; the first one counts."""
        sight, state = self.sight, self.state
        if state is NodeState.UNDISCOVERED and (sight.registered or sight.up):
            yield "address known"
        elif state is NodeState.UP and (not sight.up or self.comings != self._counted):
            yield "lost"
        elif state in REFUSALS and (sight.up or sight.refused is not state):
            yield "corrected" if sight.registered or sight.up else "address gone"
        elif state in REFUSALS and not sight.registered:
            yield "address gone"
        elif state in (NodeState.DISCOVERED, NodeState.DOWN):
            yield from self._unavailable(sight)

    def _unavailable(self, sight: NodeSight) -> Iterator[str]:
        if sight.up:
            yield "heard"
        elif sight.refused is not None and sight.registered:
            yield REFUSALS[sight.refused]
        elif self.state is NodeState.DISCOVERED and sight.offline:
            yield "offline"
        elif self.state is NodeState.DISCOVERED and not sight.registered:
            yield "address gone"
        elif self.state is NodeState.DOWN and sight.registered and sight.run != self._run and not sight.offline:
            yield "started again"
