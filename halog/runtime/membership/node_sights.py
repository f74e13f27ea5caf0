"""This module turns what membership knows of another node into a sight, which the states of remote nodes follow
(N3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from halog.core.membership.node_states import NodeSight
from halog.runtime.membership.node_link import NodeLink

HEARD: Final = "it is heard"
NOT_YET: Final = "it was not heard yet"


def sights_of(links: Mapping[str, NodeLink], registered: Collection[str]) -> dict[str, NodeSight]:
    """Return the sight of each node that there is a link to."""
    return {name: _sight(link, name in registered) for name, link in links.items()}


def _sight(link: NodeLink, registered: bool) -> NodeSight:
    offline = link.up and bool(link.offline)
    why = HEARD if link.present else link.refused or (f"it is offline: {link.offline}" if offline else link.lost)
    up = link.present or _has_another_address(link)
    return NodeSight(link.info.incarnation, registered, up, offline, link.refused_as, why or NOT_YET)


def _has_another_address(link: NodeLink) -> bool:
    """Say whether a node that was up is not heard, and addresses of it are left to be tried: it is shown as up until
    the last one has failed (N4). Elections do not wait for that."""
    gone = link.left or bool(link.offline) or bool(link.refused)
    return link.down_before and not link.up and not gone and link.turns.several and not link.turns.all_failed_ms


def seen_by_nobody(sights: Mapping[str, NodeSight]) -> None:
    """Nobody follows the states of other nodes."""
