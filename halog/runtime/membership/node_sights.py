"""This module turns what membership knows of another node into a sight, which the states of remote nodes follow
(N3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from halog.core.membership.node_states import NodeSight, NodeState
from halog.errors import DuplicateLocationError, DuplicateTimestampError, HalogError, VersionMismatchError
from halog.metadata.nodes import NodeInfo
from halog.runtime.membership.interfaces import InterfaceTurns

HEARD: Final = "it is heard"
NOT_YET: Final = "it was not heard yet"


class SeenLink(Protocol):
    """A `SeenLink` is what membership knows of another node, as far as its state depends on that."""

    info: NodeInfo
    turns: InterfaceTurns
    up: bool
    down_before: bool
    left: bool
    offline: str
    lost: str
    refused: str
    refused_as: NodeState | None

    @property
    def present(self) -> bool: ...


def refusal_of(error: HalogError | None) -> NodeState | None:
    """Return the state of a node that this process does not talk to because of this error; None: it has none of its
    own."""
    if isinstance(error, DuplicateTimestampError):
        return NodeState.DUPLICATE_TIMESTAMP
    if isinstance(error, DuplicateLocationError):
        return NodeState.DUPLICATE_LOCATION
    return NodeState.UNSUPPORTED_PROTOCOL if isinstance(error, VersionMismatchError) else None


def sights_of(links: Mapping[str, SeenLink], registered: Collection[str]) -> dict[str, NodeSight]:
    """Return the sight of each node that there is a link to."""
    return {name: _sight(link, name in registered) for name, link in links.items()}


def _sight(link: SeenLink, registered: bool) -> NodeSight:
    offline = link.up and bool(link.offline)
    why = HEARD if link.present else link.refused or (f"it is offline: {link.offline}" if offline else link.lost)
    up = link.present or _has_another_address(link)
    return NodeSight(link.info.incarnation, registered, up, offline, link.refused_as, why or NOT_YET)


def _has_another_address(link: SeenLink) -> bool:
    """Say whether a node that was up is not heard, and addresses of it are left to be tried: it is shown as up until
    the last one has failed (N4). Elections do not wait for that."""
    gone = link.left or bool(link.offline) or bool(link.refused)
    return link.down_before and not link.up and not gone and link.turns.several and not link.turns.all_failed_ms


def seen_by_nobody(sights: Mapping[str, NodeSight]) -> None:
    """Nobody follows the states of other nodes."""
