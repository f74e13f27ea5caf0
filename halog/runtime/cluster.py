"""What the cluster agrees on in the coordinator before anything runs: partition tables and node registrations.

nodes/<name>         ephemeral: NodeInfo as JSON
policies/<name>      how keys map to partitions, as JSON: every node and tool must map alike
partitions/<name>    PartitionTable as JSON, changed by compare-and-set only
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable

import msgspec

from halog.config import Config, PolicyConfig
from halog.core.group import majority
from halog.core.planner import place
from halog.core.spreading import Zone, spread
from halog.core.table import PartitionTable
from halog.errors import ConfigError, CoordinatorError, DuplicateNodeError
from halog.ports import Coordinator, Log
from halog.runtime.members import NodeInfo

logger = logging.getLogger("halog.cluster")

EVENTS_KEPT_MS = 30 * 24 * 3_600_000
"""The event history: long enough to ask about last month."""

_INFO = msgspec.json.Decoder(NodeInfo)


def log_topic(config: Config, policy: str) -> str:
    """`<cluster>.<policy>.log`"""
    return f"{config.cluster.name}.{policy}.log"


def events_topic(cluster: str) -> str:
    """`<cluster>.events`"""
    return f"{cluster}.events"


def state_topic(config: Config, policy: str) -> str:
    """`<cluster>.<policy>.state`"""
    return f"{config.cluster.name}.{policy}.state"


def schemas_topic(config: Config) -> str:
    """`<cluster>.schemas`"""
    return f"{config.cluster.name}.schemas"


def partition_name(policy: str, index: int) -> str:
    """`<policy>-<index>`, unique in the cluster (P1)."""
    return f"{policy}-{index}"


def planned_tables(config: Config) -> Iterable[PartitionTable]:
    """Every partition of every policy, as the configuration places it; log ids are drawn anew."""
    for name, policy in config.policies.items():
        copies = 1 + policy.sync_replicas + policy.async_replicas
        for i, nodes in enumerate(_placed(config, policy, copies)):
            yield PartitionTable(
                name=partition_name(name, i),
                log_id=uuid.uuid4().hex,
                topic=log_topic(config, name),
                index=i,
                policy=name,
                configured=nodes,
                sync_replicas=policy.sync_replicas,
                quorum=majority(copies) if policy.quorum else 0,
                count_never=policy.count_never,
            )


def _placed(config: Config, policy: PolicyConfig, copies: int) -> list[tuple[str, ...]]:
    """The nodes of each partition of a new policy. Without failure domains the partitions of a node that dies fall to
    all others alike; with them they are apart, and even."""
    nodes = config.nodes_of(policy.zone)
    domains = {n: config.nodes[n].failure_domain for n in nodes}
    if not any(domains.values()):
        return [place(i, nodes, copies) for i in range(policy.partitions)]
    nobody: dict[str, tuple[str, ...]] = {str(i): () for i in range(policy.partitions)}
    return list(spread(nobody, copies, Zone(nodes, nodes, domains)).values())


def create_topics(log: Log, coordinator: Coordinator, config: Config) -> None:
    """Create what is missing, and check what is there. ConfigError if the cluster was set up differently, RefusedError
    for a topic that halog cannot build on."""
    for name in config.policies:  # first: it says best what differs
        check_mapping(coordinator, config, name)
    flushed = {name: policy.local_sync == "SYNC" for name, policy in config.policies.items()}
    for name, policy in config.policies.items():
        log.ensure_topic(log_topic(config, name), policy.partitions, flushed=flushed[name])
        # It stands for what was trimmed, so it must survive what the log survives.
        log.ensure_topic(state_topic(config, name), policy.partitions, compacted=True, flushed=flushed[name])
    log.ensure_topic(schemas_topic(config), 1, compacted=True, flushed=any(flushed.values()))
    log.ensure_topic(events_topic(config.cluster.name), 1, keep_ms=EVENTS_KEPT_MS)


def create_tables(
    coordinator: Coordinator,
    config: Config,
    created: Callable[[str], None] = lambda name: None,
    *,
    planned: bool = False,
) -> dict[str, tuple[int, PartitionTable]]:
    """Create what is missing, and tell `created`; the first node to come wins, the others read. ConfigError if the
    cluster was set up differently (mapping, placement). `planned`: numbers of copies that differ are for a plan, also
    where a partition was never moved."""
    for name in config.policies:
        coordinator.create(f"policies/{name}", mapping(config, name))
        check_mapping(coordinator, config, name)
    tables, elsewhere = {}, 0
    for wanted in planned_tables(config):
        path = f"partitions/{wanted.name}"
        if coordinator.create(path, wanted.to_bytes()):
            created(wanted.name)
        found = coordinator.get(path)
        if found is None:
            raise CoordinatorError(f"znode {path} vanished while the cluster was set up")
        table = PartitionTable.from_bytes(found.data)
        _check(config, wanted, table, planned)
        elsewhere += table.configured != wanted.configured
        tables[table.name] = (found.version, table)
    if elsewhere:
        logger.info(
            "%d of %d partitions are not where a new cluster would have them: moved, or the zone's nodes have "
            "changed; they stay where they are",
            elsewhere,
            len(tables),
        )
    return tables


def mapping(config: Config, policy: str) -> bytes:
    """What all nodes and tools must agree on, as the coordinator holds it: what decides where a key belongs, what an
    acknowledgement says (R6), and how long a lease may last (R5)."""
    p = config.policies[policy]
    names = ("mapper", "partitions", "ring_size", "local_sync", "remote_sync")
    leased = ("lease_ttl_ms",) if p.lease_ttl_ms else ()  # absent where there are none, as before there were any
    return msgspec.json.encode({name: getattr(p, name) for name in (*names, *leased)})


def check_mapping(coordinator: Coordinator, config: Config, policy: str) -> None:
    """ConfigError if the cluster was made with another one: objects would be looked for where they are not, or be less
    safe than some node believes."""
    want = mapping(config, policy)
    found = coordinator.get(f"policies/{policy}")
    if found is not None and found.data != want:
        raise ConfigError(
            f"{config.source}: policies.{policy} is {want.decode()}, the cluster was created with "
            f"{found.data.decode()}; change the configuration back or use another cluster name",
            policy=policy,
        )


def _check(config: Config, wanted: PartitionTable, table: PartitionTable, planned: bool) -> None:
    """Where a partition is, and with how many nodes once it was moved (P12), the table says alone. ConfigError for
    anything else that differs, and for a host that this configuration does not have."""
    zone = config.policies[table.policy].zone
    away = [n for n in table.hosts if n not in config.nodes_of(zone)]
    if away:
        raise ConfigError(
            f"{config.source}: {', '.join(away)} has a copy of partition {table.name} and is not in zone {zone}; put "
            "it back, or empty it with `halog drain` before you take it out",
            partition=table.name,
            nodes=away,
        )
    for field in ("topic", "index", "sync_replicas", "quorum", "count_never", "copies"):
        want, have = _setting(wanted, field), _setting(table, field)
        # An operator may have changed these since; but whether there is a quorum stays as it was.
        may_move = field in ("sync_replicas", "copies") or (field == "quorum" and bool(want) == bool(have))
        if want != have and not ((table.config_version or planned) and may_move):
            raise ConfigError(
                f"{config.source}: partition {table.name} was created with {field} {have}, this configuration says "
                f"{want}; {_REMEDY.get(field, 'change the configuration back')} or use another cluster name",
                partition=table.name,
            )


_REMEDY = dict.fromkeys(
    ("copies", "sync_replicas"), "change the configuration back, let `halog plan apply` with this one bring them there,"
)


def _setting(table: PartitionTable, field: str) -> object:
    return len(table.configured) if field == "copies" else getattr(table, field)


def register(coordinator: Coordinator, info: NodeInfo, wait_s: float) -> None:
    """Register this node. An older run of this very node (same installation) is waited for until its session ends;
    any other holder of the name is an error."""
    path, data = f"nodes/{info.name}", msgspec.json.encode(info)
    until = time.monotonic() + wait_s
    while not coordinator.create(path, data, ephemeral=True):
        found = coordinator.get(path)
        holder = None if found is None else _INFO.decode(found.data)
        if holder is not None and holder.installation == info.installation and found is not None:
            coordinator.delete(path, found.version)
            continue
        if time.monotonic() >= until and holder is not None:
            raise DuplicateNodeError(
                f"a node named {info.name} is running already (pid {holder.pid} at {holder.address}); "
                "stop it or choose another name",
                node=info.name,
                pid=holder.pid,
                address=holder.address,
            )
        time.sleep(0.05)


def read_nodes(coordinator: Coordinator, names: Iterable[str]) -> dict[str, NodeInfo]:
    """The registrations below `nodes/`."""
    infos = {}
    for name in names:
        found = coordinator.get(f"nodes/{name}")
        if found is not None:
            infos[name] = _INFO.decode(found.data)
    return infos


def is_registration(data: bytes, info: NodeInfo) -> bool:
    """Is this registration the very one `info` made?"""
    return _INFO.decode(data) == info
