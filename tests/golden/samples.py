"""Samples of all that halog writes for other processes, or for later ones: each kind once, with every field given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import inspect as shapes

from halog.adapters.memory import MemoryCoordinator
from halog.core import tolerant
from halog.core.ids import EpochId
from halog.core.keys.mapping import PolicyMapping
from halog.core.log import records
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.core.tolerant import UNKNOWN
from halog.metadata import (
    bindings,
    cluster_level,
    config_versions,
    drains,
    log_holds,
    mapped_policies,
    mirror_starts,
    mirrors,
    move_jobs,
    nodes,
    restore_requests,
    sync_waits,
    upgrades,
    zone_switches,
)
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Versioned
from halog.runtime.membership import challenges, decision_relay
from halog.runtime.merge import spark_results
from halog.runtime.node import cluster_identity
from halog.runtime.placement import auto_rebalance
from halog.runtime.placement.plan import Plan
from halog.runtime.rpc import frames
from halog.runtime.sites import mirror_audience, split_watch, voting
from halog.runtime.topics.state_topic import WITH_MAPPING, SnapshotMark

KINDS = get_args(frames.Control | frames.Request | frames.Reply)
INCOMING = get_args(frames.Control | frames.Request)

SCALARS: dict[type[shapes.Type], object] = {
    shapes.BytesType: b"b",
    shapes.StrType: "s",
    shapes.BoolType: True,
    shapes.IntType: 7,
    shapes.FloatType: 0.5,
}


def sample(kind: shapes.Type) -> Any:
    """A value of a type, as MessagePack has it."""
    match kind:
        case shapes.StructType(fields=fields, array_like=False):
            return {f.encode_name: sample(f.type) for f in fields}
        case shapes.StructType(fields=fields, tag=tag):
            return [*([tag] if tag is not None else []), *(sample(f.type) for f in fields)]
        case shapes.NamedTupleType(fields=fields):
            return [sample(f.type) for f in fields]
        case shapes.TupleType(item_types=items):
            return [sample(item) for item in items]
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            return [sample(item)]
        case shapes.DictType(key_type=key, value_type=value):
            return {sample(key): sample(value)}
        case shapes.UnionType(types=types):
            return sample(next(t for t in types if not isinstance(t, shapes.NoneType)))
        case shapes.LiteralType(values=values):
            return values[0]
        case _:
            return SCALARS.get(type(kind))


def frame(kind: type, *later: object) -> bytes:
    """The bytes of a frame, with these fields behind all others."""
    return msgspec.msgpack.encode([*sample(shapes.type_info(kind)), *later])


def made(kind: type) -> Any:
    """A value of a type that a znode holds."""
    return tolerant.TolerantDecoder(kind).decode(msgspec.json.encode(document(kind)))


def document(kind: Any) -> Any:
    """The JSON of a znode."""
    return without_unknown(msgspec.json.decode(msgspec.json.encode(sample(shapes.type_info(kind)))))


def without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_unknown(item) for name, item in value.items() if name != UNKNOWN}
    return [without_unknown(item) for item in value] if isinstance(value, list) else value


class Znode(NamedTuple):
    """What a znode holds, as JSON, or as text where it is no JSON."""

    sample: Any
    again: Callable[[bytes], bytes]
    """Reads it as halog does, and writes what was read."""


def of(kind: Any, read: ZnodeFormat[Any] | Callable[[bytes], object]) -> Znode:
    """One of this type, which halog reads so."""

    def again(data: bytes) -> bytes:
        return tolerant.encode(read.decode("it", data) if isinstance(read, ZnodeFormat) else read(data))

    return Znode(document(kind), again)


def policy() -> Znode:
    """The mapping of a policy, among what else all agree on."""
    path = mapped_policies.path_of("p")

    def again(data: bytes) -> bytes:
        held = mapped_policies.parse(path, found(data))
        return mapped_policies.packed(held.said, held.mapping)

    said = {"local_sync": "s", "remote_sync": "s", "lease_ttl_ms": 7}
    return Znode(msgspec.json.decode(mapped_policies.packed(said, made(PolicyMapping))), again)


def trimmed(data: bytes) -> bytes:
    """Up to where a log is trimmed."""
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    coordinator.create("trimmed/p", data)
    return str(log_holds.floor(coordinator, "p")).encode()


def found(data: bytes) -> Versioned:
    return Versioned(data, 0)


ZNODES: Mapping[str, Znode] = {
    "awaited": of(sync_waits.SyncWait, sync_waits._AWAITED),
    "bindings": of(dict[str, str], bindings._BINDINGS),
    "classified": of(spark_results.ClassifiedResult, spark_results._CLASSIFIED),
    "closed": of(restore_requests.ClosedBranch, restore_requests._CLOSED),
    "cluster": of(cluster_identity.Identity, cluster_identity._IDENTITY),
    "config": of(config_versions.Version, config_versions.VERSIONS),
    "decisions": of(decision_relay.DecisionBatch, decision_relay._DECODER.decode),
    "drained": of(drains.DrainMark, drains._MARK),
    "holders": of(log_holds.Hold, log_holds._HOLD.decode),
    "level": of(cluster_level.ClusterLevel, cluster_level._LEVEL),
    "lines": of(challenges.Challenge, challenges._DECODER.decode),
    "mirroring": of(mirror_audience.MirrorReport, mirror_audience._WORD.decode),
    "mirrors": of(mirrors.MirrorStatus, mirrors._STANDING),
    "nodes": of(nodes.NodeInfo, nodes._INFO),
    "parted": of(split_watch.Split, split_watch._SPLIT),
    "partitions": of(PartitionTable, PartitionTable.from_bytes),
    "places": of(Checkpoint, mirror_starts._CHECKPOINT),
    "plan": of(Plan, Plan.from_bytes),
    "policies": policy(),
    "rebalanced": of(auto_rebalance.RebalanceState, auto_rebalance._DECODER.decode),
    "restores": of(restore_requests.RestoreRequest, restore_requests._RESTORE),
    "site_votes": of(voting.SiteVote, voting._VOTE),
    "snapshots": Znode(
        SnapshotMark(7, 7, 7, 7).to_bytes(WITH_MAPPING).decode(),
        lambda data: SnapshotMark.from_bytes(data).to_bytes(WITH_MAPPING),
    ),
    "sweeps": of(move_jobs.JobAnnouncement, lambda data: move_jobs.parse(found(data))),
    "trimmed": Znode("7", trimmed),
    "upgrade": of(upgrades.Upgrade, upgrades._UPGRADE),
    "zones": of(zone_switches.ZoneSwitch, zone_switches._SWITCH),
}
"""By the first part of its path. Of `recovery` and `recovering` nobody reads more than that they are there; of
`upgrading` who is at it is shown."""


EPOCH = EpochId(7, "west", -3)
AT = (EPOCH, 41)
HEADER = records.Header(bytes(range(16)), EPOCH, 42, bytes(range(16, 32)), bytes(range(32, 48)))
CHANGES = (
    records.Change(records.CREATE, bytes(24), b"key", b"value", -1),
    records.Change(records.UPDATE, bytes(range(24)), b"other", b"now", 40, b"before"),
    records.Change(records.DELETE, bytes(24), b"third", None, 39, None),
)
BRANCH = records.Branch(EPOCH, 41, bytes(16), (AT,))
RECORDS: tuple[records.Record, ...] = (
    records.EpochStarted(HEADER, EPOCH, 41),
    records.EpochOpened(HEADER, (AT, AT)),
    records.Commit(HEADER, CHANGES, records.Origin(EPOCH, 40)),
    records.Prepare(HEADER, "p-0", ("p-0", "p-1"), 3, b"digest", CHANGES, ((b"read", 38),)),
    records.Outcome(HEADER, commit=True),
    records.HandedOver(HEADER, "B"),
    records.MapperChanged(HEADER, 4),
    records.LevelStated(HEADER, 1),
    records.SiteSwitched(HEADER, "east", AT),
    records.Horizon(HEADER, 1_790_000_000_000),
    records.MergePart(
        HEADER, 1, (records.Merged(b"key", b"ref", b"value", b"why"),), (bytes(16),), ((bytes(16), True),)
    ),
    records.EpochMerged(
        HEADER, b"merge", (BRANCH,), (records.Joined(EPOCH, (BRANCH,)),), (b"undone",), 2, bytes(16), 5, 6
    ),
)


def all_samples() -> dict[str, dict[str, Any]]:
    """By file: each kind by name, its bytes as hex or its JSON."""
    return {
        "frames": {kind.__name__: frame(kind).hex() for kind in KINDS},
        "records": {type(record).__name__: records.encode(record).hex() for record in RECORDS},
        "znodes": {name: znode.sample for name, znode in ZNODES.items()},
    }
