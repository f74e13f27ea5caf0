"""A cluster whose coordinator has lost its data, found again from its logs and its nodes' stores (decision 45).

`look` says what is to be done, and changes nothing; `halog.runtime.node.cluster_repair` does it. The logs say of each
partition which history it is, where that ends, in which epoch, and what version of the mapping it serves. Stores say
what no log tells: what only they hold of commits that did not wait for the log, and what their nodes had seen in the
coordinator (`halog.runtime.node.coordinator_memo`). What neither tells is as in the configuration, or is named as lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from halog.config import Config
from halog.config.active_merge import merged
from halog.core.ids import NO_EPOCH, EpochId
from halog.core.keys.mapping import PolicyMapping
from halog.core.settings import Sync
from halog.core.state.tail import Tail
from halog.core.table.table import PartitionTable, Target
from halog.errors import LaterRecordError, LogError, StoreError
from halog.metadata import config_versions as versions, mapped_policies, partition_tables
from halog.metadata.cluster_level import LEVEL_PATH, check_found
from halog.ports import Coordinator, Log, Store, TopicPartition, Versioned
from halog.runtime.keys import policy_agreement as agreement
from halog.runtime.node import cluster_identity as belonging, log_history as histories
from halog.runtime.node.coordinator_memo import newest, noted
from halog.runtime.node.log_history import LogHistory
from halog.runtime.placement import bootstrap as cluster
from halog.runtime.store import replaced_mark as replaced, unlogged_tail as left
from halog.runtime.store.encoding import StoredPosition, unpack_position
from halog.runtime.store.object_table import PREFIX_BYTES, position_key
from halog.runtime.store.pushed_records import PushedRecords
from halog.runtime.topics import topic_names


class RecoveredPartition(msgspec.Struct, frozen=True):
    """A partition is recovered with this. `table` is to be made; None: it has one. `replaces` is the version of one
    that names no history."""

    name: str
    policy: str
    tp: TopicPartition
    history: LogHistory
    table: PartitionTable | None
    replaces: int = -1
    remembered: bool = False
    """Was its table noted by a node? Else it is placed as in the configuration."""
    tail: Tail | None = None
    """What only stores hold."""
    held_by: str = ""
    again: int = 0
    """So many commits that is."""


class RecoveryPlan(msgspec.Struct, frozen=True):
    """A `RecoveryPlan` says what is to be done."""

    config: Config
    id: str
    """The cluster's; "": a new one."""
    partitions: tuple[RecoveredPartition, ...]
    empty: tuple[str, ...]
    """Partitions that never had a history: the first node makes them."""
    znodes: dict[str, bytes]
    """To be made, by path: policies, bindings, the configuration, …"""
    mappings: dict[str, tuple[int, str]]
    """By policy: the version of its mapping, and who tells where that has keys; of those that are restored."""
    needs: dict[str, str]
    """By node: why going on without (all of) its store may lose commits (HALOG-1018)."""
    unsure: dict[str, str]
    """By policy: why it is not known where keys belong."""
    problems: tuple[str, ...]
    """What keeps it from being done."""
    lost: tuple[str, ...]
    """What neither logs nor stores tell."""
    begun: bool = False
    """Did an earlier recovery not end?"""

    @property
    def nothing(self) -> bool:
        """Is all there?"""
        return not (self.begun or self.problems or self.znodes or any(p.table for p in self.partitions))


Progress = Callable[[str], None]


class RecoverySurvey:
    """A `RecoverySurvey` takes one look at everything. `stores`: by node, open. `missing`: by node, why its store
    cannot be read."""

    def __init__(
        self,
        log: Log,
        coordinator: Coordinator,
        own: Config,
        stores: Mapping[str, Store],
        missing: Mapping[str, str],
        said: Progress = lambda text: None,
    ) -> None:
        self._log = log
        self._coordinator = coordinator
        self._stores = stores
        self._missing = missing
        self._said = said
        self._kept = newest(noted(store) for store in stores.values())
        if (level := self._kept.get(LEVEL_PATH)) is not None:
            check_found(Versioned(level, 0), own.cluster.name)
        self._needs: dict[str, str] = {}
        self._problems: list[str] = []
        self._by_file: set[str] = set()
        """Policies of which neither the coordinator nor a store says where keys belong."""
        self._config = self._in_force(own)

    def _in_force(self, own: Config) -> Config:
        """Return the configuration that a process would run with, once it is restored."""
        data = self._kept.get(versions.ACTIVE)
        found = self._coordinator.get(versions.ACTIVE)
        data = data if found is None else found.data
        if data is None:
            return own
        version = versions.VERSIONS.decode(versions.ACTIVE, data)
        return merged(own, version.parsed())

    def plan(self) -> RecoveryPlan:
        """Return what is to be done. LogError and StoreError where something cannot be read now."""
        restored = dict(self._policies())
        held = {name: _told(name, msgspec.json.decode(data)) for name, data in restored.items()}
        there = mapped_policies.read_all(self._coordinator)
        whole = mapped_policies.with_all_partitions(self._config, {**held, **there})
        found, empty = self._partitions(whole)
        for name in self._config.policies:
            if any(p.policy == name for p in found):
                self._check_stores(name)
        told, unsure = self._mappings(restored, found)
        return RecoveryPlan(
            self._config,
            self._id(),
            tuple(found),
            tuple(empty),
            self._znodes(restored),
            told,
            self._needs,
            unsure,
            tuple(self._problems),
            tuple(self._lost(found)),
            self._coordinator.get(belonging.RECOVERY) is not None,
        )

    def _id(self) -> str:
        known = [belonging.remembered(store) for store in self._stores.values()]
        ids = {k.id for k in known if k is not None and k.id}
        if len(ids) > 1:
            self._problems.append(f"the stores belong to different clusters: {', '.join(sorted(ids))}")
        return next(iter(ids), "")

    # --- policies ---

    def _policies(self) -> Iterator[tuple[str, bytes]]:
        """Yield those policies that have no znode: as a node noted it, else as in the configuration."""
        there = set(self._coordinator.children("policies"))
        noted_ = {p.removeprefix("policies/") for p in self._kept if p.startswith("policies/")}
        for name in sorted({*self._config.policies, *noted_} - there):
            data = self._kept.get(mapped_policies.path_of(name))
            if data is None:
                self._by_file.add(name)
            yield name, data if data is not None else agreement.mapping(self._config, name)

    def _mappings(
        self, restored: Mapping[str, bytes], found: Sequence[RecoveredPartition]
    ) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
        """Return the versions of those restored, and why it is not known what some versions in the logs say."""
        told, unsure = {}, {}
        for name, data in restored.items():
            version = _told(name, msgspec.json.decode(data)).version
            by_node = mapped_policies.path_of(name) in self._kept
            in_logs = max((p.history.mapping for p in found if p.policy == name), default=0)
            told[name] = max(version, in_logs), "a store" if by_node else self._config.source
            if in_logs > version:
                unsure[name] = f"its logs serve version {in_logs} of its mapping, and " + (
                    f"stores know version {version}" if by_node else "no store says where that has keys"
                )
        return told, unsure

    # --- partitions ---

    def _partitions(self, whole: Config) -> tuple[list[RecoveredPartition], list[str]]:
        tables = partition_tables.read_versions(self._coordinator, self._coordinator.children("partitions"))
        found: list[RecoveredPartition] = []
        empty: list[str] = []
        for policy in whole.policies:
            names = whole.partition_names(policy)
            self._check_count(whole, policy, len(names))
            for i, name in enumerate(names):
                one = self._partition(whole, policy, name, i, tables.get(name))
                if one is not None:
                    found.append(one)
                elif name not in tables:
                    empty.append(name)
        return self._placed(whole, found, tables), empty

    def _check_count(self, config: Config, policy: str, count: int) -> None:
        topic = topic_names.log_topic(config, policy)
        made = self._log.partitions(topic)
        if 0 < made < count and policy in self._by_file and self._has_records(topic, 0, made):
            self._problems.append(
                f"{topic} has {made} partitions and records, {config.source} says {count} of policy {policy}, and no "
                "store says where its keys belong: bring the data directory of a node that ran then, or correct "
                f"policies.{policy}.partitions"
            )
        if self._has_records(topic, count, made):
            self._problems.append(
                f"{topic} has more partitions than the {count} of policy {policy} in {config.source}, and they have "
                f"records: bring the data directory of a node that ran then, or correct policies.{policy}.partitions"
            )

    def _has_records(self, topic: str, first: int, beyond: int) -> bool:
        return any(self._log.bounds(TopicPartition(topic, i))[1] for i in range(first, beyond))

    def _partition(
        self, config: Config, policy: str, name: str, index: int, there: tuple[int, PartitionTable] | None
    ) -> RecoveredPartition | None:
        tp = TopicPartition(topic_names.log_topic(config, policy), index)
        state_tp = TopicPartition(topic_names.state_topic(config, policy), index)
        home = config.home_of(policy) if config.mirrored(policy) else ""
        if index >= self._log.partitions(tp.topic):
            self._check_never_made(name, tp.topic)
            return None
        self._said(f"partition {name}: its log is read")
        try:
            history = histories.read(self._log, name, tp, state_tp, config.site.name, home, self._positions)
        except LogError as e:
            self._problems.append(f"partition {name}: {e.message}")
            return None
        if history is None:
            return None
        if there is not None and there[1].log_id == history.log_id:
            return RecoveredPartition(name, policy, tp, history, None)  # what only stores have its next election brings
        if there is not None and there[1].epoch != NO_EPOCH:
            self._problems.append(
                f"partition {name}: its table names history {there[1].log_id}, and its log has {history.log_id}: one "
                "of the two is another cluster's"
            )
            return None
        tail, by = self._tail(config, policy, history)
        kept = self._remembered(name, history)
        base = kept or cluster._table(config, policy, name, index, _NOWHERE)
        made = _made(base, history, tail, tp, config.site.name, home)
        replaces, again = -1 if there is None else there[0], 0 if tail is None else len(tail.run)
        return RecoveredPartition(name, policy, tp, history, made, replaces, kept is not None, tail, by, again)

    def _check_never_made(self, name: str, topic: str) -> None:
        """A policy, or partitions, that the configuration or a change has, and no node has made yet, have no log. A
        table is never made before its log."""
        if f"partitions/{name}" in self._kept:
            self._problems.append(
                f"partition {name}: a node had it, and topic {topic} has no log of it: Kafka's data were lost, too, or "
                f"{self._config.source} names other brokers"
            )

    def _remembered(self, name: str, history: LogHistory) -> PartitionTable | None:
        """Return the latest table that a node has noted of this very history."""
        data = self._kept.get(f"partitions/{name}")
        table = None if data is None else PartitionTable.from_bytes(data)
        return table if table is not None and table.log_id == history.log_id else None

    def _placed(
        self, config: Config, found: list[RecoveredPartition], tables: Mapping[str, tuple[int, PartitionTable]]
    ) -> list[RecoveredPartition]:
        """Return the partitions that no node remembers, placed as a new cluster's, beside the others."""
        known = [p.table for p in found if p.table is not None and p.remembered]
        known += [t for name, (_, t) in tables.items() if all(p.name != name or p.table is None for p in found)]
        planned = {t.name: t for t in cluster.planned_tables(config, known)}
        return [
            p if p.table is None or p.remembered else msgspec.structs.replace(p, table=_like(p.table, planned[p.name]))
            for p in found
        ]

    # --- what stores hold ---

    def _positions(self, log_id: bytes) -> Iterator[StoredPosition]:
        for store in self._stores.values():
            data = store.get(position_key(log_id))
            if data is not None:
                yield unpack_position(data)

    def _tail(self, config: Config, policy: str, history: LogHistory) -> tuple[Tail | None, str]:
        """Return the latest tail that any store has behind this history, and whose it is."""
        if Sync[config.policies[policy].local_sync] is not Sync.NO_SYNC or history.state.owner:
            return None, ""
        best, by = Tail(), ""
        prefix = history.state.log_id[:PREFIX_BYTES]
        for node, store in self._stores.items():
            had = best._rank()
            pushed = PushedRecords(store, prefix)
            try:
                for datas in (pushed.load(), left.stored(store, prefix)):
                    best.adopt(datas, history.state)
            except (StoreError, LaterRecordError) as e:
                self._needs[node] = f"its store cannot be read: {e.message}"
                continue
            if pushed.void:
                self._needs[node] = (
                    "its machine was started anew, or is not this one: if it was, its store may not have all that it "
                    "was pushed"
                )
            by = node if best._rank() > had else by
        if not best.run:
            return None, ""
        if not best.joins(history.state):
            first, last = best.run[0].header.lsn, best.tip
            self._needs[by] = (
                f"its store has lsn {first} to {last} of partition {history.log_id}, and the log ends at "
                f"{history.state.lsn}: what is in between is nowhere"
            )
            return None, ""
        return best, by

    def _check_stores(self, policy: str) -> None:
        """A store that is not there may be the only one that has what was acknowledged."""
        of = self._config.policies[policy]
        if Sync[of.local_sync] is Sync.NO_SYNC:
            for node in self._config.hosts_of(policy):
                why = self._missing.get(node, "")
                if node in self._stores and (before := replaced.found(self._stores[node])) is not None:
                    why = f"its store was found damaged once, and set aside as {before.aside}"
                if why:
                    self._needs.setdefault(
                        node, f"{why}, and it may hold commits of policy {policy} that the log lacks"
                    )

    # --- the rest ---

    def _znodes(self, restored: Mapping[str, bytes]) -> dict[str, bytes]:
        made = {mapped_policies.path_of(name): data for name, data in restored.items()}
        for path, data in self._kept.items():
            if not path.startswith(("policies/", "partitions/")) and self._coordinator.get(path) is None:
                made[path] = data
        return made

    def _lost(self, found: Iterable[RecoveredPartition]) -> Iterator[str]:
        made = [p for p in found if p.table is not None]
        if not made:
            return
        unplaced = [p.name for p in made if not p.remembered]
        if unplaced:
            yield (
                f"where {_some(unplaced)} had been moved to, their priorities, quorum overrides and definitions: they "
                "are placed as in the configuration"
            )
        if "bindings" not in self._kept:
            yield "the bindings of types: the first node enters them by its configuration"
        if versions.ACTIVE not in self._kept:
            yield "activated versions of the configuration, if there were any: every process goes by its file"
        in_memory = [
            name
            for name, policy in self._config.policies.items()
            if policy.local_sync == policy.remote_sync == "NO_SYNC" and any(p.policy == name for p in made)
        ]
        if in_memory:
            yield f"of {_some(in_memory)}: commits that only the memory of nodes held, where all of these were killed"
        if not self._kept:
            yield "zones whose quorum was switched off, and marks of drained nodes, if there were any"
        yield "holds of logs (`halog log hold`, Spark jobs, undos): register those that are still needed anew"
        yield "plans and their history: make a new one with `halog plan create`"
        if self._config.other_sites:
            yield (
                "of other sites: how far mirrors got (they begin again), votes of sites (they are made anew), merges "
                "that were asked for and had not ended (ask again), and which of them commits waited for"
            )


_NOWHERE: Final = Target((), 0)


def _told(policy: str, said: Mapping[str, Any]) -> PolicyMapping:
    return mapped_policies.told(said, mapped_policies.path_of(policy))


def by_file(plan: RecoveryPlan, policies: Iterable[str]) -> RecoveryPlan:
    """Return the plan in which keys of these policies belong where the configuration says, under the version that their
    logs serve."""
    znodes = dict(plan.znodes)
    for name in policies:
        if name in plan.unsure:
            said = msgspec.json.decode(agreement.mapping(plan.config, name))
            mapping = PolicyMapping(_told(name, said).now, plan.mappings[name][0])
            znodes[mapped_policies.path_of(name)] = mapped_policies.packed(said, mapping)
    return msgspec.structs.replace(plan, znodes=znodes)


def _made(
    base: PartitionTable, history: LogHistory, tail: Tail | None, tp: TopicPartition, site: str, home: str
) -> PartitionTable:
    """Return the table of a partition that goes on behind its history: nobody is active, its log has all there is."""
    state, last = history.state, 0 if tail is None or not tail.run else tail.run[-1].header.epoch.number
    number = max(state.epoch.number, state.led, base.epoch.number, last) + 1
    return msgspec.structs.replace(
        base,
        log_id=history.log_id,
        topic=tp.topic,
        index=tp.partition,
        active=None,
        replicas=(),
        resync=None,
        passed_over=(),
        synced=(),
        epoch=EpochId(number, site, secrets.randbits(62)),
        home=base.home or home,
        owner=state.owner or base.owner,
    )


def _like(table: PartitionTable, planned: PartitionTable) -> PartitionTable:
    """Return this table, placed as the other one."""
    return msgspec.structs.replace(
        planned,
        log_id=table.log_id,
        epoch=table.epoch,
        home=table.home,
        owner=table.owner,
        topic=table.topic,
        index=table.index,
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
