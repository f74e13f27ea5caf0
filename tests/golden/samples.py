"""Samples of all that halog writes for other processes, or for later ones: each kind once, with every field given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import inspect as shapes

from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.table.table import PartitionTable
from halog.core.tolerant import UNKNOWN
from halog.metadata.cluster_level import ClusterLevel
from halog.metadata.config_versions import Version
from halog.metadata.drains import DrainMark
from halog.metadata.log_holds import Hold
from halog.metadata.mirrors import MirrorStatus
from halog.metadata.nodes import NodeInfo
from halog.metadata.restore_requests import ClosedBranch, RestoreRequest
from halog.metadata.sync_waits import SyncWait
from halog.metadata.zone_switches import ZoneSwitch
from halog.runtime.placement.auto_rebalance import RebalanceState
from halog.runtime.placement.plan import Plan
from halog.runtime.rpc import frames
from halog.runtime.sites.split_watch import Split
from halog.runtime.sites.voting import SiteVote

KINDS = get_args(frames.Control | frames.Request | frames.Reply)
INCOMING = get_args(frames.Control | frames.Request)
ZNODES: Mapping[str, type] = {
    "closed": ClosedBranch,
    "config": Version,
    "drained": DrainMark,
    "awaited": SyncWait,
    "holders": Hold,
    "level": ClusterLevel,
    "mirrors": MirrorStatus,
    "nodes": NodeInfo,
    "parted": Split,
    "partitions": PartitionTable,
    "plan": Plan,
    "rebalanced": RebalanceState,
    "restores": RestoreRequest,
    "site_votes": SiteVote,
    "zones": ZoneSwitch,
}
"""What a znode holds, by the first part of its path."""

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


def znode(kind: type) -> Any:
    """The JSON of a znode."""
    return without_unknown(msgspec.json.decode(msgspec.json.encode(sample(shapes.type_info(kind)))))


def without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_unknown(item) for name, item in value.items() if name != UNKNOWN}
    return [without_unknown(item) for item in value] if isinstance(value, list) else value


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
        "znodes": {name: znode(kind) for name, kind in ZNODES.items()},
    }
