"""Says what in a new configuration the running cluster cannot take: each refusal names a key, and why.

It is pure but for `facts`. Nodes refuse to start with a configuration that contradicts the partition tables
(`bootstrap.create_tables`). So what they would refuse is refused before it is activated. The same holds for what would
take objects or nodes away from a running cluster. Where keys belong is the exception: activating another mapping begins
to change it, as `halog rebalance` does, unless the policy is moved by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from halog.config import Config
from halog.config.changes import MOVES, REFUSED, KeyChange, KeyPath, differences
from halog.config.multi_site import sites_named, sites_of
from halog.config.names import ambiguous
from halog.core.keys.mapping import Layout, why_not
from halog.core.table.table import PartitionTable
from halog.core.table.zones import NodeContacts, Zone, count
from halog.metadata import bindings
from halog.metadata.mapped_policies import LAYOUT, path_of, told
from halog.metadata.nodes import NodeInfo
from halog.metadata.zone_switches import read_switch
from halog.ports import Coordinator
from halog.runtime.membership.node_quorum import zones_of

Refusals = Iterator[tuple[KeyPath, str]]

_MAPPED = ("mapper", "partitions", "ring_size")
"""These keys say where a policy's objects belong."""

_MOVES = "as with `halog rebalance`, while they are used"


class Facts(NamedTuple):
    """Holds what decides whether a cluster can take a configuration."""

    cluster: str
    made: Mapping[str, Mapping[str, Any]] = {}
    """By policy: what was fixed when its partitions were made."""
    hosts: Mapping[str, Mapping[str, str]] = {}
    """By policy and node: a partition that the node has a copy of."""
    sites: Mapping[str, str] = {}
    """By site name: a partition that has an epoch of this site."""
    up: frozenset[str] = frozenset()
    """Names the hosting nodes that are registered."""
    off: frozenset[str] = frozenset()
    """Names the zones whose quorum is switched off."""
    types: Mapping[str, Sequence[str]] = {}
    """By type that was ever published: its managed bases, nearest first."""
    held: Mapping[str, str] = {}
    """By type: the policy under which the cluster keeps its objects."""
    others: frozenset[str] = frozenset()
    """Names the sites that are other ones by the file this site is reached with."""
    single: frozenset[str] = frozenset()
    """Names the registered nodes whose halog knows one address of each node, not several."""


def facts(
    coordinator: Coordinator,
    cluster: str,
    tables: Iterable[PartitionTable],
    nodes: Iterable[NodeInfo],
    types: Mapping[str, Sequence[str]],
    others: Iterable[str] = (),
) -> Facts:
    """Read the facts from the coordinator and from these tables, nodes and types."""
    made: dict[str, dict[str, Any]] = {}
    hosts: dict[str, dict[str, str]] = {}
    sites: dict[str, str] = {}
    for policy in coordinator.children("policies"):
        found = coordinator.get(f"policies/{policy}")
        made[policy] = {"lease_ttl_ms": 0} | ({} if found is None else json.loads(found.data))
    for table in tables:
        values = made.setdefault(table.policy, {})
        values.update(quorum=bool(table.quorum), count_never=table.count_never, home=table.home)
        for node in table.hosts:
            hosts.setdefault(table.policy, {}).setdefault(node, table.name)
        if table.epoch.number:
            sites.setdefault(table.epoch.site, table.name)
    off = (zone for zone in coordinator.children("zones") if read_switch(coordinator, zone).off)
    hosting = [n for n in nodes if n.hosts]
    up, single = (n.name for n in hosting), (n.name for n in hosting if not n.addresses)
    held = bindings.read(coordinator)
    return Facts(
        cluster, made, hosts, sites, frozenset(up), frozenset(off), types, held, frozenset(others), frozenset(single)
    )


def judged(old: Config | None, new: Config, known: Facts) -> list[KeyChange]:
    """Return what differs from the active version, if there is one, each with its effect; and everything that is
    refused or moves objects, whether it differs or not."""
    found = [] if old is None else differences(old, new)
    judgements = {key: (MOVES, _MOVES) for key, why in _mappings(old, new, known) if not why}
    refused = reversed(list(refusals(old, new, known)))  # of several reasons the first counts
    judgements |= {key: (REFUSED, why) for key, why in refused}
    changes = [c if (to := judgements.pop(c.key, None)) is None else c._replace(effect=to[0], why=to[1]) for c in found]
    return changes + [KeyChange(key, None, None, *to) for key, to in judgements.items()]


def refusals(old: Config | None, new: Config, known: Facts) -> Refusals:
    """Yield (key, reason) for everything that speaks against this configuration."""
    if new.cluster.name != known.cluster:
        yield ("cluster", "name"), f"this is cluster {known.cluster}: another name is another cluster"
    yield from _site(old, new, known)
    if old is not None:
        yield from _topics(old, new)
    yield from _bindings(old, new, known)
    for policy in new.all_sites.policies:
        if policy not in known.made and (old is None or policy not in old.all_sites.policies):
            yield from ((tuple(key.split(".", 1)), why) for key, why in ambiguous(new, policy))
    for policy, values in known.made.items():
        yield from _policy(new, policy, values)
    yield from ((key, why) for key, why in _mappings(old, new, known) if why)
    for policy, nodes in known.hosts.items():
        yield from _hosts(old, new, policy, nodes)
    for node in sorted(known.up - set(new.nodes)):
        yield ("nodes", node), "it is up: stop it first"
    yield from _quorums(old, new, known)
    if known.single:
        older = min(known.single)
        why = f"node {older} runs a halog before 0.3, which reads one address and no list: upgrade it first"
        yield from ((key, why) for key in _lists(new.all_sites))


def _lists(new: Config) -> Iterator[KeyPath]:
    """Yield the keys that have a list of addresses."""
    for name, node in new.nodes.items():
        yield from (("nodes", name, k) for k in ("address", "listen", "advertise") if type(getattr(node, k)) is tuple)
    for name, site in new.sites.items():
        yield from (("sites", name, "nodes", n) for n, found in site.nodes.items() if type(found) is tuple)


def _site(old: Config | None, new: Config, known: Facts) -> Refusals:
    """Refuse another site name: it stands in every epoch, and says which part of the file is this site's."""
    if new.site.name in known.others:
        why = "is another site: activate its file there, and here one whose [site] is this one"
        yield ("site", "name"), f"by --config {new.site.name} {why}"
    renamed = old is not None and old.site.name != new.site.name
    for site, partition in known.sites.items():
        if renamed or site not in (new.site.name, *new.sites):  # mirrored partitions have epochs of other sites
            yield ("site", "name"), f"{partition} has an epoch of site {site}: its log would not be read on"
    for policy, values in known.made.items():
        if values.get("home") == new.site.name:
            yield (
                ("site", "name"),
                f"policy {policy} is mirrored here from site {new.site.name}, so this is another site",
            )


def _topics(old: Config, new: Config) -> Refusals:
    for name in ("replication_factor", "min_insync_replicas"):
        was, now = getattr(old.site, name), getattr(new.site, name)
        if now is not None and (was is None or now > was):
            has = "as many as the brokers allowed" if was is None else f"at least {was}"
            yield ("site", name), f"topics were made with {has}, and halog changes no topic: a node may not start"


def _policy(new: Config, policy: str, values: Mapping[str, Any]) -> Refusals:
    config = new.policies.get(policy)
    if config is None:
        tree, why = new.all_sites, "it has partitions, and a partition is never removed"
        away = sites_named(sites_of(tree, tree.hosts_of(policy))) if policy in tree.policies else ""
        yield ("policies", policy), why + (f"; by the file its nodes are at {away} alone" if away else "")
        return
    if (names := list(values.get("names", ()))) != list(config.static):
        made_as = f"{', '.join(names) or 'a number of them'}, not {', '.join(config.static) or 'a number of them'}"
        why = f"its partitions were made as {made_as}: bind types to a new policy"
        if bool(names) != bool(config.static):
            yield ("policies", policy, "kind"), why
        yield ("policies", policy, "partitions"), why
    if "home" in values and (home := values["home"] or new.site.name) != new.home_of(policy):
        why = f"its partitions began at site {home}, where their log is: bind types to a new policy"
        yield ("policies", policy, "home"), why
    for name, made in values.items():
        if name not in ("home", *LAYOUT) and (now := getattr(config, name, made)) != made:
            yield ("policies", policy, name), f"{_made_with(made, now)}: bind types to a new policy"


def _made_with(made: Any, now: Any) -> str:
    return f"its partitions were made with {json.dumps(made)}, not {json.dumps(now)}"


def _mappings(old: Config | None, new: Config, known: Facts) -> Refusals:
    """Yield each key by which objects belong elsewhere than the cluster has them, with what speaks against moving them.
    "": nothing does, and an activation moves them."""
    yield from turned_away(new, known)
    for policy, values in known.made.items():
        if policy in new.policies and "changing" not in values:
            for name in _MAPPED:
                made = values.get(name)
                if made is not None and getattr(new.policies[policy], name) != made:
                    yield ("policies", policy, name), _not_moved(old, new, policy, name, values)


def turned_away(new: Config, known: Facts) -> Refusals:
    """Yield the keys of policies whose objects are moving to where another value has them, even if that value is not
    the active version's: whoever uses `new` would not have what it says."""
    for policy, values in known.made.items():
        config, changing = new.policies.get(policy), values.get("changing", {})
        for name in _MAPPED if config is not None else ():
            now, to = getattr(config, name), changing.get("to", {}).get(name)
            if to not in (None, now):
                yield ("policies", policy, name), _under_way(policy, values[name], to, back=changing.get("back", False))


def _under_way(policy: str, made: Any, to: Any, *, back: bool) -> str:
    wait = "wait until `halog rebalance status` says done, and activate it then"
    if back:
        return f"a change that is turned back to {json.dumps(to)} is under way: {wait}"
    turn = f"or turn that back with `halog rebalance cancel --policy {policy}` first"
    what = f"from {json.dumps(made)} to {json.dumps(to)}" if made != to else f"with {json.dumps(to)}"
    return f"another change, {what}, is under way: {wait}, {turn}"


def _not_moved(old: Config | None, new: Config, policy: str, name: str, values: Mapping[str, Any]) -> str:
    """Return why an activation does not move these objects; "" if it does. A value that differs from the active version
    is asked for. A value that is the active version's is behind the cluster, and nobody has asked to go back."""
    config, before = new.policies[policy], None if old is None else old.policies.get(policy)
    why = _made_with(values[name], now := getattr(config, name))
    if config.rebalance == "manual" or (before is not None and getattr(before, name) == now):
        return f"{why}: `halog rebalance --policy {policy}` with this file, then activate it"
    if config.home:
        return f"{why}: it is mirrored, and each site has its mappings for itself"
    layout = Layout(config.mapper, config.partitions, config.ring_size, names=tuple(config.static))
    against = why_not(told(values, path_of(policy)), layout)
    return "" if against is None else f"{why}: {against}"


def _hosts(old: Config | None, new: Config, policy: str, nodes: Mapping[str, str]) -> Refusals:
    """Refuse what would leave copies outside the policy's zone."""
    config = new.policies.get(policy)
    if config is None:
        return
    zone, key = new.hosts_of(policy), "zones" if config.zones else "zone"
    moved = old is not None and policy in old.policies and old.policies[policy].spans != config.spans
    for node, partition in nodes.items():
        why = f"{node} has a copy of {partition}: empty it with `halog drain {node}` first"
        if node not in new.nodes:
            yield ("nodes", node), why
        elif node not in zone:
            yield ("policies", policy, key) if moved else ("zones", config.spans[0], "nodes"), why


def _bindings(old: Config | None, new: Config, known: Facts) -> Refusals:
    """Refuse another policy for a type that is in use. Its objects are in the policy that the cluster holds for it,
    else in the policy it was bound to. It may also be bound to that policy by the rule without bases
    (`halog.metadata.bindings`)."""
    entered: dict[str, Sequence[str]] = dict.fromkeys(known.held, ())  # some of them may not be published yet
    for name, bases in sorted((entered | dict(known.types)).items()):
        was = known.held.get(name) or (None if old is None else old.policy_of(name, bases))
        if was is not None and was not in (new.policy_of(name, bases), new.policy_of(name)):
            entries = {} if old is None else old.bindings
            key = next((n for n in (name, *bases) if n in entries or n in new.bindings), "*")
            yield ("bindings", key), f"type {name} is in use and its objects are in policy {was}: they would be lost"


def _quorums(old: Config | None, new: Config, known: Facts) -> Refusals:
    """Refuse a quorum for which nodes that are up now would go offline, unless they are offline already."""
    for name, zone in new.zones.items():
        up = [n for n in new.nodes_of(name) if n in known.up]
        if not up or name in known.off or not zone.quorum.given:
            continue
        lacking = _lacking(new, name, up)
        if lacking and (old is None or name not in old.zones or not _lacking(old, name, up)):
            kind = next(iter(zone.quorum.given))
            yield (
                ("zones", name, "quorum", kind),
                f"{', '.join(up)} would go offline: {lacking}; start the others first",
            )


def _lacking(config: Config, zone: str, up: Sequence[str]) -> str:
    """Return what the nodes that are up lack of a zone's quorum; "" if nothing."""
    for node in up:
        counted = next((c for c in _counted(zones_of(config, node), zone, node, up) if not c.holds), None)
        if counted is not None:
            return str(counted)
    return ""


def _counted(zones: Iterable[Zone], zone: str, node: str, up: Sequence[str]) -> Iterator[Any]:
    reached = frozenset(up) - {node}
    return (count(z, node, NodeContacts(reached, reached, reached)) for z in zones if z.name == zone)
