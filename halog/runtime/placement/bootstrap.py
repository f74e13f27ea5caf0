"""Makes what a cluster needs before anything runs: its topics, and a table for each partition.

The first node makes them; every node checks that they are what its configuration says.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from halog.config import Config, PolicyConfig
from halog.core.keys.mapping import PolicyMapping
from halog.core.table.group import majority
from halog.core.table.table import PartitionTable, Target
from halog.errors import ConfigError, CoordinatorError, RefusedError
from halog.metadata import mapped_policies
from halog.metadata.drains import drained_nodes
from halog.metadata.partition_tables import read_versions
from halog.ports import Coordinator, Log, TopicPartition
from halog.runtime.keys.policy_agreement import agree, check_mapping
from halog.runtime.placement.initial_placement import placed, shape_of
from halog.runtime.topics.topic_names import (
    arrived_topic,
    audit_topic,
    events_topic,
    log_topic,
    schemas_topic,
    state_topic,
)

logger = logging.getLogger("halog.cluster")

EVENTS_KEPT_MS = 30 * 24 * 3_600_000
"""The event history is kept long enough to ask about last month."""

AUDIT_KEPT_MS = 365 * 24 * 3_600_000
"""The audit is kept for a year."""

ARRIVED_KEPT_MS = 3_600_000
"""Notes on what other sites' logs had are kept for an hour; only the last of them counts."""


def planned_tables(
    config: Config,
    tables: Iterable[PartitionTable] = (),
    policies: Iterable[str] | None = None,
    up: Collection[str] | None = None,
    drained: Collection[str] = (),
) -> Iterator[PartitionTable]:
    """Yield a table for every partition of these policies (all) that is not among `tables`. Each is placed beside those
    tables and the ones before it; log ids are drawn anew. `up`, `drained`: as for `placed`."""
    there = {t.name: t for t in tables}
    for name in config.policies if policies is None else policies:
        targets = placed(config, name, there.values(), up, drained)
        for i, partition in enumerate(config.partition_names(name)):
            if partition in targets:
                there[partition] = _table(config, name, partition, i, targets[partition])
                yield there[partition]


def _table(config: Config, policy: str, name: str, index: int, target: Target) -> PartitionTable:
    of = config.policies[policy]
    return PartitionTable(
        name=name,
        log_id=uuid.uuid4().hex,
        topic=log_topic(config, policy),
        index=index,
        policy=policy,
        configured=target.nodes,
        sync_replicas=target.sync_replicas,
        quorum=majority(len(target.nodes)) if of.quorum else 0,
        count_never=of.count_never,
        admitted=None if target.nodes else (),
    )


def by_hand(policy: PolicyConfig) -> dict[str, Target]:
    """Return where the file places the partitions of a static policy (P3). It may leave some to the application
    (P7)."""
    return {name: Target(p.nodes, p.sync_replicas(policy)) for name, p in policy.static.items() if p.nodes}


def create_topics(log: Log, coordinator: Coordinator, config: Config, *, activated: bool = False) -> None:
    """Create the topics that are missing, and check those that are there. ConfigError if the cluster was set up
    differently, RefusedError for a topic that halog cannot build on. What a change of a mapping adds is not there
    before it is open: the nodes make it when they are up (`halog.runtime.remap.remap_driver`). `activated`: as for
    `check_mapping`."""
    for name in config.policies:  # checked first: it says best what differs
        check_mapping(coordinator, config, name, activated=activated)
    held = mapped_policies.read_all(coordinator)
    config = mapped_policies.with_made_partitions(config, held)
    flushed = {name: policy.local_sync == "SYNC" for name, policy in config.policies.items()}
    for name, policy in config.policies.items():
        new = name not in held
        _ensure(log, log_topic(config, name), policy.partitions, new, compacted=False, flushed=flushed[name])
        # The state topic stands for what was trimmed, so it must survive what the log survives.
        _ensure(log, state_topic(config, name), policy.partitions, new, compacted=True, flushed=flushed[name])
    _ensure_schemas(log, schemas_topic(config), needed=any(flushed.values()))
    log.ensure_topic(events_topic(config.cluster.name), 1, keep_ms=EVENTS_KEPT_MS)
    log.ensure_topic(audit_topic(config.cluster.name), 1, keep_ms=AUDIT_KEPT_MS)
    if any(policy.sync_sites for policy in config.policies.values()):
        log.ensure_topic(arrived_topic(config), 1, keep_ms=ARRIVED_KEPT_MS)


def _ensure(log: Log, topic: str, partitions: int, new: bool, *, compacted: bool, flushed: bool) -> None:
    """Create a topic, or check it. `new`: the cluster does not have the policy yet. Then an empty topic with fewer
    partitions was left by a process that died or used an older version, and it grows."""
    try:
        log.ensure_topic(topic, partitions, compacted=compacted, flushed=flushed)
    except RefusedError as error:
        found = error.evidence.get("found") if new and "partitions" in error.evidence else None
        if not isinstance(found, int) or any(log.bounds(TopicPartition(topic, i))[1] for i in range(found)):
            raise
        log.grow_topic(topic, partitions)
        log.ensure_topic(topic, partitions, compacted=compacted, flushed=flushed)


def _ensure_schemas(log: Log, topic: str, needed: bool) -> None:
    """Create or check the topic of schemas. It is flushed from the beginning, so that a policy whose commits are
    flushed may come later. A topic that was made without is good enough as long as no policy needs it."""
    try:
        log.ensure_topic(topic, 1, compacted=True, flushed=True)
    except RefusedError as error:
        if needed or error.evidence.get("setting") != "flush.messages":
            raise


def add_partitions(log: Log, coordinator: Coordinator, config: Config, policy: str, held: PolicyMapping) -> list[str]:
    """Make topics and tables of the partitions that a changing mapping adds, and return their names. They are placed
    beside those that are there, which stay as they are. Repeating it is harmless."""
    more = mapped_policies.with_all_partitions(config, {policy: held})
    tables = read_versions(coordinator, coordinator.children("partitions"))
    lacking = [name for name in more.partition_names(policy) if name not in tables]
    for topic in (log_topic(config, policy), state_topic(config, policy)):
        log.grow_topic(topic, more.policies[policy].partitions)
    _create(coordinator, more, policy, tables, up=coordinator.children("nodes"))
    return lacking


def _create(
    coordinator: Coordinator,
    config: Config,
    policy: str,
    tables: dict[str, tuple[int, PartitionTable]],
    created: Callable[[str], None] = lambda name: None,
    originals: Callable[[PartitionTable], PartitionTable] = lambda table: table,
    up: Collection[str] | None = None,
) -> None:
    """Make the tables that a policy lacks, one after the other, and add them to `tables`. If another process was
    quicker and placed a table differently, the rest is planned anew beside what there is. So each table is the next one
    of a plan beside all before it: however many processes make them, they are as even as one plan."""
    names = config.partition_names(policy)
    while any(name not in tables for name in names):
        drained = drained_nodes(coordinator)
        for wanted in planned_tables(config, [t for _, t in tables.values()], [policy], up, drained):
            if coordinator.create(f"partitions/{wanted.name}", originals(wanted).to_bytes()):
                created(wanted.name)
            tables |= read_versions(coordinator, [wanted.name])
            if wanted.name not in tables:
                raise CoordinatorError(f"znode partitions/{wanted.name} vanished while the cluster was set up")
            if tables[wanted.name][1].configured != wanted.configured:
                tables |= read_versions(coordinator, [name for name in names if name not in tables])
                break


def create_tables(
    coordinator: Coordinator,
    config: Config,
    created: Callable[[str], None] = lambda name: None,
    *,
    planned: bool = False,
    originals: Callable[[PartitionTable], PartitionTable] = lambda table: table,
) -> dict[str, tuple[int, PartitionTable]]:
    """Create the tables that are missing, and tell `created`; the first node to come wins, the others read. ConfigError
    if the cluster was set up differently (mapping, placement). `planned`: the configuration was activated. Then numbers
    of copies that differ are left to a plan, also where a partition was never moved, and the cluster says where keys
    belong. `originals` turns a table into that of a partition which began at another site (M5)."""
    for name in config.policies:
        agree(coordinator, config, name, activated=planned)
    whole = mapped_policies.with_made_partitions(config, mapped_policies.read_all(coordinator))
    tables = read_versions(coordinator, coordinator.children("partitions"))  # also those that a mapping has left empty
    for name in sorted(config.policies, key=config.mirrored):  # other sites may wait for what begins here
        _check_all(whole, name, tables, planned)
        _create(coordinator, whole, name, tables, created, originals)
        _check_all(whole, name, tables, planned)  # another node may have made some
        if config.policies[name].static:
            _tell_elsewhere(config, name, [tables[partition][1] for partition in whole.partition_names(name)])
    return tables


def _tell_elsewhere(config: Config, policy: str, tables: Iterable[PartitionTable]) -> None:
    """Warn if a static policy's tables differ from the file: the tables win, and the file alone changes nothing."""
    listed = by_hand(config.policies[policy])
    count = sum(t.name in listed and listed[t.name] != Target(t.configured, t.sync_replicas) for t in tables)
    if count:
        logger.warning(
            "policy %s: %d of its partitions are not where %s has them; they stay where they are until `halog plan "
            "create --policy %s` and `halog plan apply` bring them there",
            policy,
            count,
            config.source,
            policy,
        )


def _check_all(config: Config, policy: str, tables: Mapping[str, tuple[int, PartitionTable]], planned: bool) -> None:
    names, shape = config.partition_names(policy), shape_of(config, policy)
    for i, name in enumerate(names):
        if name in tables:
            _check(config, _table(config, policy, name, i, shape[i]), tables[name][1], planned)


def _check(config: Config, wanted: PartitionTable, table: PartitionTable, planned: bool) -> None:
    """Raise ConfigError for anything in which a table differs from the configuration, and for a host that this
    configuration does not have. But where a partition is, and with how many nodes once it was moved (P12), only the
    table says."""
    zones = " or ".join(config.policies[table.policy].spans)
    away = [n for n in table.hosts if n not in config.hosts_of(table.policy)]
    if away:
        raise ConfigError(
            f"{config.source}: {', '.join(away)} has a copy of partition {table.name} and is not in zone {zones}; put "
            "it back, or empty it with `halog drain` before you take it out",
            partition=table.name,
            nodes=away,
        )
    home = config.policies[table.policy].home
    if home and table.home != (home if config.mirrored(table.policy) else ""):
        raise ConfigError(
            f"{config.source}: partition {table.name} began at site {table.home or config.site.name}, and "
            f"policies.{table.policy}.home says {home}; change it back, or use another policy name",
            partition=table.name,
        )
    for field in ("topic", "index", "sync_replicas", "quorum", "count_never", "copies"):
        want, have = _setting(wanted, field), _setting(table, field)
        # An operator may have changed these since; but whether there is a quorum stays as it was.
        may_move = field in ("sync_replicas", "copies") or (field == "quorum" and bool(want) == bool(have))
        moved = table.config_version or planned or config.policies[table.policy].static  # these wait for a plan
        if want != have and not (moved and may_move):
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
