"""Where partitions that have no table yet are placed: by the planner, beside those that have one (P2). Of a dynamic
policy evenly, copies and preferred nodes, and where it is all one by what nodes have of other policies; not on nodes
that were drained, as long as there are others enough. Of a static policy where the file has them (P3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from halog.config import Config
from halog.core.placement.seed import OtherPolicies
from halog.core.placement.spread import PlacementZone, spread
from halog.core.table.table import PartitionTable, Target


def copies_of(config: Config, policy: str) -> int:
    """Of each partition of a dynamic policy, the active one included."""
    of = config.policies[policy]
    return 1 + of.sync_replicas + of.async_replicas


def going_to_be(table: PartitionTable) -> tuple[str, ...]:
    """Its nodes, once it has moved."""
    return table.configured if table.target is None else table.target.nodes


def elsewhere(tables: Iterable[PartitionTable], policy: str) -> OtherPolicies:
    """What nodes have of other policies than this one."""
    others = [going_to_be(t) for t in tables if t.policy != policy]
    return OtherPolicies(Counter(n for hosts in others for n in hosts), Counter(hosts[0] for hosts in others if hosts))


def zone_of(
    config: Config,
    policy: str,
    open_: Collection[str],
    tables: Iterable[PartitionTable],
    replaced: Collection[str] = (),
) -> PlacementZone:
    """What the planner is told of a dynamic policy's nodes; those to be `replaced` are not there. `open_`: nodes that
    may get copies; `tables`: of all policies."""
    nodes = [n for n in config.hosts_of(policy) if n not in replaced]
    domains = {n: config.nodes[n].failure_domain for n in nodes}
    beside = elsewhere(tables, policy)
    return PlacementZone(
        nodes, [n for n in nodes if n in open_], domains, backup=config.backups_of(policy), elsewhere=beside
    )


def placed(
    config: Config,
    policy: str,
    tables: Iterable[PartitionTable],
    up: Collection[str] | None = None,
    drained: Collection[str] = (),
) -> dict[str, Target]:
    """Where each partition of a policy goes that is not among `tables`; those stay as they are, and count. Pure:
    whoever knows the same comes to the same. `up`: nodes that are there; a node that is not, and has nothing, may be
    gone, and gets nothing as long as there are others enough. Without it all nodes of the policy may get some.
    `drained`: nodes that an operator has emptied; as many of them get some as others are too few, and none of these is
    preferred."""
    of, tables = config.policies[policy], list(tables)
    theirs = {t.name: going_to_be(t) for t in tables if t.policy == policy}
    names = config.partition_names(policy)
    new = [name for name in names if name not in theirs]
    if of.static:
        return {name: Target(of.static[name].nodes, of.static[name].sync_replicas(of)) for name in new}
    if not new:
        return {}
    copies, open_ = copies_of(config, policy), config.hosts_of(policy)
    if up is not None:
        there = tuple(n for n in open_ if n in up or any(n in hosts for hosts in theirs.values()))
        open_ = there if len(there) >= copies else open_
    zone = zone_of(config, policy, _filled_up(config, policy, open_, drained), tables)
    now = {name: theirs.get(name, ()) for name in names} | theirs
    then = spread(now, copies, zone._replace(never=dict.fromkeys(new, drained)), theirs)
    return {name: Target(then[name], of.sync_replicas) for name in new}


def _filled_up(config: Config, policy: str, nodes: Sequence[str], drained: Collection[str]) -> list[str]:
    """Those that were not drained, and as many of the others as they are too few: first of failure domains that have
    none of them, then primary ones."""
    backup = config.backups_of(policy)
    open_, others = [n for n in nodes if n not in drained], [n for n in nodes if n in drained]
    taken = {config.nodes[n].failure_domain for n in open_} - {""}
    while others and len(open_) < copies_of(config, policy):
        best = min(others, key=lambda n: (config.nodes[n].failure_domain in taken, n in backup))
        others.remove(best)
        open_.append(best)
        taken |= {config.nodes[best].failure_domain} - {""}
    return open_


def shape_of(config: Config, policy: str) -> list[Target]:
    """What each partition of a policy has, wherever it is: of a dynamic one only the numbers count."""
    of = config.policies[policy]
    if of.static:
        return list(placed(config, policy, ()).values())
    return [Target(config.hosts_of(policy)[: copies_of(config, policy)], of.sync_replicas)] * of.partitions
