"""This module says what stands against raising the level of a cluster (U1). It is arithmetic only.

Every node that is configured must be registered and know the level, at every site: whoever does not know it could serve
nothing any more, and one that is down might be started again as it is. So must every client that is registered, unless
the operator leaves clients behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import COMPLETE, Upgrade

NAMED: Final = 5


def against(
    level: int, configured: Iterable[str], registered: Mapping[str, NodeInfo], where: str = "", *, clients: bool = True
) -> list[str]:
    """Return what stands against it at one site; `where`: how that is named. `clients`: do they count?"""
    at = f" of site {where}" if where else ""
    down = [f"node {n}{at} is not registered" for n in configured if n not in registered]
    counted = [i for i in registered.values() if i.hosts or clients]
    low = [
        f"{'node' if i.hosts else 'client'} {i.name}{at} runs halog {i.version}, which knows levels up to {i.level}"
        for i in sorted(counted, key=lambda info: (not info.hosts, info.name))
        if i.level < level
    ]
    return down + low


def unsettled(upgrade: Upgrade | None, where: str) -> list[str]:
    """Return what stands against it in an upgrade at another site: while its nodes do not all run the release yet, or
    go back, one that knows less may be started there."""
    if upgrade is None or upgrade.over or (upgrade.state == COMPLETE and not upgrade.back):
        return []
    way = "is being taken back" if upgrade.back else "is not done"
    return [f"the upgrade of site {where} to halog {upgrade.to} {way}: it is {upgrade.state}"]


def named(obstacles: list[str]) -> str:
    """Return them in a sentence."""
    more = f"; and {len(obstacles) - NAMED} more" if len(obstacles) > NAMED else ""
    return "; ".join(obstacles[:NAMED]) + more
