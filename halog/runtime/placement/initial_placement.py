"""Places partitions that have no table yet, beside those that have one (P2).

The planner spreads a dynamic policy evenly: its copies and its preferred nodes. Of equal choices it takes the nodes
that have less of other policies. Drained nodes get nothing as long as there are enough others. A static policy's
partitions go where the file has them (P3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from halog.config import Config
from halog.core.placement.seed import OtherPolicies
from halog.core.placement.spread import PlacementZone, spread
from halog.core.table.table import PartitionTable, Target


def copies_of(config: Config, policy: str) -> int:
    """Return the copies of each partition of a dynamic policy, the active one included."""
    of = config.policies[policy]
    return 1 + of.sync_replicas + of.async_replicas


def going_to_be(table: PartitionTable) -> tuple[str, ...]:
    """Return the nodes of a partition, after its move if one is under way."""
    return table.configured if table.target is None else table.target.nodes


def elsewhere(tables: Iterable[PartitionTable], policy: str) -> OtherPolicies:
    """Return what nodes have of other policies than this one."""
    others = [going_to_be(t) for t in tables if t.policy != policy]
    return OtherPolicies(Counter(n for hosts in others for n in hosts), Counter(hosts[0] for hosts in others if hosts))


def zone_of(
    config: Config,
    policy: str,
    open_: Collection[str],
    tables: Iterable[PartitionTable],
    replaced: Collection[str] = (),
) -> PlacementZone:
    """Return what the planner needs to know of a dynamic policy's nodes, without those to be `replaced`. `open_`: nodes
    that may get copies; `tables`: of all policies."""
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
    """Return where each partition of a policy goes that is not among `tables`; those stay as they are, and count. It is
    pure: the same input gives the same result. `up`: nodes that are there. A node that is not up and has nothing may be
    gone, and gets nothing as long as there are enough others. Without `up` all nodes of the policy may get copies.
    `drained`: nodes that an operator has emptied. Only as many of them get copies as others are lacking, and none of
    these is preferred."""
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
    """Return the nodes that were not drained, and as many drained ones as are lacking: first those of failure domains
    that have none of the others, then primary ones."""
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
    """Return what each partition of a policy has, wherever it is: for a dynamic policy only the numbers count."""
    of = config.policies[policy]
    if of.static:
        return list(placed(config, policy, ()).values())
    return [Target(config.hosts_of(policy)[: copies_of(config, policy)], of.sync_replicas)] * of.partitions
