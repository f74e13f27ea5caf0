"""The spread of keys over partitions and nodes is counted here, and how many would move if there were more of either
(P2, P6).

It is arithmetic over routing keys and tables; it asks nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from halog.config import Config
from halog.core.placement.drain import MoveProposal
from halog.core.placement.rebalance import PolicyDemand, rebalance
from halog.core.placement.spread import PlacementZone
from halog.core.table.table import PartitionTable
from halog.runtime.keys.key_owners import Owner
from mappers import ConsistentHash


class Share(msgspec.Struct, frozen=True):
    """Holds the share of a partition or a node. `of_mean`: 1.0 is an even share."""

    name: str
    keys: int
    of_mean: float


class Growth(msgspec.Struct, frozen=True):
    """Says what would change with more (or fewer) of something. `minimum` is what an even spread cannot do without."""

    what: str
    before: int
    after: int
    moved: int
    minimum: int


class Distribution(msgspec.Struct, frozen=True):
    """Says how some keys spread over one policy. `copies` counts keys whose copies a node holds; `leads` counts those
    it is preferred for."""

    policy: str
    keys: int
    partitions: list[Share]
    leads: list[Share]
    copies: list[Share]
    growth: list[Growth]


def distribution(
    owner: Owner, counts: Counter[str], tables: Sequence[PartitionTable], growth: Sequence[Growth]
) -> Distribution:
    """Return where keys are. `counts` says how many are in each partition. `tables` are those of the policy's
    partitions; one that nobody has placed yet (P7) has no nodes to count for."""
    leads: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for table in tables:
        if table.configured:
            leads[table.configured[0]] += counts[table.name]
        for node in table.configured:
            leads[node] += 0
            copies[node] += counts[table.name]
    return Distribution(
        owner.policy, counts.total(), shares(counts, owner.names), shares(leads), shares(copies), list(growth)
    )


def counted(owner: Owner, type_name: str, keys: Sequence[bytes]) -> Counter[str]:
    """Return how many keys each partition has. MapperError."""
    return Counter(owner.partition(type_name, key) for key in keys)


def shares(counts: Mapping[str, int], names: Collection[str] = ()) -> list[Share]:
    """Return each count beside the mean; in the order of `names`, else by name."""
    order = list(names) or sorted(counts)
    mean = sum(counts.get(n, 0) for n in order) / max(1, len(order))
    return [Share(n, counts.get(n, 0), round(counts.get(n, 0) / mean, 3) if mean else 0.0) for n in order]


def more_partitions(mapper: ConsistentHash, keys: Sequence[bytes], partitions: int) -> Growth:
    """Return how many keys would belong to another partition if there were `partitions`. ValueError if the ring is too
    small."""
    other, before = ConsistentHash(partitions, mapper.ring_size), mapper.partitions
    moved = sum(mapper.partition(key) != other.partition(key) for key in keys)
    minimum = round(len(keys) * abs(partitions - before) / max(1, partitions, before))
    return Growth("partitions", before, partitions, moved, minimum)


def fewer_partitions(counts: Mapping[str, int], names: Sequence[str], partitions: int) -> Growth:
    """Return how many objects would have to leave their partition if there were `partitions`, where the mapper is no
    function of the key: those of the partitions that would go."""
    moved = sum(counts.get(name, 0) for name in names[partitions:])
    return Growth("partitions", len(names), partitions, moved, moved)


def more_nodes(
    config: Config, policy_name: str, counts: Mapping[str, int], tables: Sequence[PartitionTable], added: int
) -> Growth:
    """Return how many copies of keys `halog plan` would make if the zone had `added` empty nodes more. A static
    policy's partitions stay."""
    policy = config.policies[policy_name]
    nodes = config.hosts_of(policy_name)
    copies_of = {t.name: len(t.configured) * counts.get(t.name, 0) for t in tables}
    if policy.static:
        return Growth("nodes", len(nodes), len(nodes) + added, 0, 0)
    every = (*nodes, *(f"new node {i + 1}" for i in range(added)))
    domains = {n: config.nodes[n].failure_domain for n in nodes}
    copies = 1 + policy.sync_replicas + policy.async_replicas
    zone = PlacementZone(every, every, domains, backup=config.backups_of(policy_name))
    moves = rebalance(tables, PolicyDemand(copies, policy.sync_replicas, zone), nodes)
    moved = sum(counts.get(m.partition, 0) * len(_new(m)) for m in moves)
    return Growth("nodes", len(nodes), len(every), moved, round(sum(copies_of.values()) * added / max(1, len(every))))


def _new(move: MoveProposal) -> list[str]:
    return [] if move.target is None else [n for n in move.target.nodes if n not in move.before]
