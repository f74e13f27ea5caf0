"""What an operator sees of zones: the configuration beside what every node says of itself. Pure.

A node's word on its own state is all there is: nobody else counts for it. The zone's state is the worst of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from halog.config import Config
from halog.core.zones import State, Zone
from halog.runtime.zone_switch import ZoneSwitch
from halog.runtime.zoning import zones_of

UNKNOWN, DOWN, SILENT = "unknown", "down", "silent"

Said = Mapping[str, Any]


class ZoneNodeView(msgspec.Struct, frozen=True):
    """A node in one of its zones. `state`: as it says itself; else down (not registered) or silent."""

    node: str
    votes: int
    state: str
    have: int | None = None
    needed: int | None = None
    of: str | None = None
    misses: tuple[str, ...] = ()


class ZoneView(msgspec.Struct, frozen=True):
    """One zone. `quorum`: what it asks for in words, or null; `off`: an operator has switched it off."""

    zone: str
    state: str
    quorum: str | None
    off: bool
    reason: str | None
    since_ms: int | None
    policies: tuple[str, ...]
    nodes: tuple[ZoneNodeView, ...]

    @property
    def ok(self) -> bool:
        """Is everybody there?"""
        return self.state == State.ACTIVE.value


def zone_view(config: Config, name: str, said: Mapping[str, Said], switch: ZoneSwitch) -> ZoneView:
    """`said`: what each registered hosting node answers, or {"error": why}."""
    nodes = config.nodes_of(name)
    zone = next(z for z in zones_of(config, nodes[0]) if z.name == name)
    views = tuple(_node_view(zone, node, said.get(node)) for node in nodes)
    return ZoneView(
        name, worst(v.state for v in views), zone.demand or None, switch.off, switch.reason or None,
        switch.since_ms or None, tuple(p for p, c in config.policies.items() if name in c.spans), views,
    )  # fmt: skip


def _node_view(zone: Zone, node: str, said: Said | None) -> ZoneNodeView:
    votes = zone.votes[node]
    if said is None:
        return ZoneNodeView(node, votes, DOWN)
    found = next((z for z in said.get("zones", ()) if z["zone"] == zone.name), None)
    if found is None:
        return ZoneNodeView(node, votes, SILENT)
    needed = found["needed"] or None
    return ZoneNodeView(
        node, votes, found["state"], found["have"] if needed else None, needed, found["of"], tuple(found["down"])
    )


def worst(states: Any) -> str:
    """Of what nodes say; "unknown" if none says anything."""
    told = set(states)
    order = (State.DISABLED, State.PARTIAL, State.ACTIVE)
    return next((state.value for state in order if state.value in told), UNKNOWN)
