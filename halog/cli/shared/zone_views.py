"""This module shows an operator the zones: the configuration beside what every node says of itself. It is pure.

Only a node's own word on its state counts. A site's part of a zone is as bad as its worst node says, and the zone as
bad as its worst site. A site of which nothing is heard is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from halog.config import Config
from halog.config.multi_site import at_site, sites_of
from halog.core.table.zones import Zone, ZoneState
from halog.metadata.zone_switches import ZoneSwitch
from halog.runtime.membership.node_quorum import zones_of

UNKNOWN, DOWN, SILENT = "unknown", "down", "silent"

Said = Mapping[str, Any]


class SiteReport(NamedTuple):
    """Holds what is known of one site: the answer of each registered hosting node, or {"error": why}; the switch of
    each zone; and why there is not more. Of a site that cannot be reached there is only the reason."""

    said: Mapping[str, Said] | None = None
    switches: Mapping[str, ZoneSwitch] = {}
    why: str = ""


class ZoneNodeView(msgspec.Struct, frozen=True):
    """Describes a node in one of its zones. `state` is what it says itself; else down (not registered), silent, or
    unknown where its site cannot be reached."""

    node: str
    site: str
    votes: int
    state: str
    have: int | None = None
    needed: int | None = None
    of: str | None = None
    misses: tuple[str, ...] = ()


class ZoneSiteView(msgspec.Struct, frozen=True):
    """Describes a zone's part at one site; only that site's nodes count there. `quorum` is what it asks for in words,
    or null. `off` says that an operator has switched it off there; `why` says why not more is known of it."""

    site: str
    state: str
    quorum: str | None
    off: bool
    reason: str | None
    since_ms: int | None
    why: str | None


class ZoneView(msgspec.Struct, frozen=True):
    """Describes one zone. `quorum` and the fields after it are those of this `site`; `sites` has the part of each site
    where the zone has nodes."""

    zone: str
    site: str
    state: str
    quorum: str | None
    off: bool
    reason: str | None
    since_ms: int | None
    policies: tuple[str, ...]
    nodes: tuple[ZoneNodeView, ...]
    sites: tuple[ZoneSiteView, ...]

    @property
    def spans(self) -> bool:
        """Does it have nodes at other sites?"""
        return [s.site for s in self.sites] != [self.site]

    @property
    def ok(self) -> bool:
        """Are all its nodes there?"""
        return self.state == ZoneState.ACTIVE.value


def zone_sites(config: Config, name: str) -> list[str]:
    """Return the sites where a zone has nodes, this site first."""
    own = config.site.name
    if config.whole is None:
        return [own]
    return sorted(sites_of(config.whole, config.whole.nodes_of(name)), key=lambda site: site != own)


def zone_view(config: Config, name: str, heard: Mapping[str, SiteReport]) -> ZoneView:
    """Return the view of a zone; `heard` has what each of its sites says."""
    own, parts = config.site.name, dict[str, ZoneSiteView]()
    nodes: list[ZoneNodeView] = []
    for site in zone_sites(config, name):
        there = config if site == own else at_site(config, site)
        found = _nodes(there, name, heard[site].said)
        nodes += found
        parts[site] = _part(there, name, heard[site], found)
    here = parts.get(own, ZoneSiteView(own, UNKNOWN, None, False, None, None, None))
    policies = config.all_sites.policies
    return ZoneView(
        name,
        own,
        _together(p.state for p in parts.values()),
        here.quorum,
        here.off,
        here.reason,
        here.since_ms,
        tuple(p for p, c in policies.items() if name in c.spans),
        tuple(nodes),
        tuple(parts.values()),
    )


def _nodes(there: Config, name: str, said: Mapping[str, Said] | None) -> list[ZoneNodeView]:
    zone, site = _zone(there, name), there.site.name
    if said is None:
        return [ZoneNodeView(node, site, votes, UNKNOWN) for node, votes in zone.votes.items()]
    return [_node_view(zone, node, site, said.get(node)) for node in zone.votes]


def _zone(there: Config, name: str) -> Zone:
    return next(z for z in zones_of(there, there.nodes_of(name)[0]) if z.name == name)


def _part(there: Config, name: str, heard: SiteReport, nodes: Iterable[ZoneNodeView]) -> ZoneSiteView:
    switch = heard.switches.get(name, ZoneSwitch())
    return ZoneSiteView(
        there.site.name,
        worst(n.state for n in nodes),
        _zone(there, name).demand or None,
        switch.off,
        switch.reason or None,
        switch.since_ms or None,
        heard.why or None,
    )


def _node_view(zone: Zone, node: str, site: str, said: Said | None) -> ZoneNodeView:
    votes = zone.votes[node]
    if said is None:
        return ZoneNodeView(node, site, votes, DOWN)
    found = next((z for z in said.get("zones", ()) if z["zone"] == zone.name), None)
    if found is None:
        return ZoneNodeView(node, site, votes, SILENT)
    needed = found["needed"] or None
    return ZoneNodeView(
        node, site, votes, found["state"], found["have"] if needed else None, needed, found["of"], tuple(found["down"])
    )


def worst(states: Iterable[str]) -> str:
    """Return the worst state of those that nodes say; "unknown" if no node says one."""
    told = set(states)
    order = (ZoneState.DISABLED, ZoneState.PARTIAL, ZoneState.ACTIVE)
    return next((state.value for state in order if state.value in told), UNKNOWN)


def _together(states: Iterable[str]) -> str:
    """Return the state of several sites. If a site tells nothing, its nodes are missed."""
    told = list(states)
    found = worst(told)
    return ZoneState.PARTIAL.value if found == ZoneState.ACTIVE.value and UNKNOWN in told else found
