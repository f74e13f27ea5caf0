"""This module has every record a log topic may hold, and its bytes.

A record's value is one version byte, one kind byte, then schemaless Avro of that kind's schema. A version or a kind
beyond those known here is a `LaterRecordError`, and is never skipped (U1): a reader that skipped what it does not
understand would no longer see the same objects as the others. So is a change that does something unknown to its object.
Anything else that is no record is damage, a plain `RecordFormatError`. `docs/protocol.md` specifies the bytes; this
module never looks inside object values.
"""

from __future__ import annotations

import io
from typing import Any, Protocol

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from halog.core.ids import HASH_BYTES, LOG_ID_BYTES, REF_BYTES, TX_BYTES, EpochId
from halog.core.log import commit_codec as commit_bytes
from halog.core.log.record_types import (
    CREATE as CREATE,
    DELETE as DELETE,
    UPDATE as UPDATE,
    Branch as Branch,
    Change as Change,
    Commit as Commit,
    EpochMerged as EpochMerged,
    EpochOpened as EpochOpened,
    EpochStarted as EpochStarted,
    HandedOver as HandedOver,
    Header as Header,
    Horizon as Horizon,
    Joined as Joined,
    LevelStated as LevelStated,
    Lineage as Lineage,
    MapperChanged as MapperChanged,
    Merged as Merged,
    MergePart as MergePart,
    Origin as Origin,
    Outcome as Outcome,
    Prepare as Prepare,
    Record as Record,
    SiteSwitched as SiteSwitched,
)
from halog.errors import LaterRecordError, RecordFormatError
from halog.release import LEVEL as LEVEL, RELEASE as HALOG

VERSION = 1
LAST_VERSION = 31
"""No version of a record will be above this one: what begins with a larger byte, as text does, is damage."""

_EPOCH = [
    {"name": "epoch", "type": "long"},
    {"name": "site", "type": "string"},
    {"name": "nonce", "type": "long"},
]
_HEADER = [
    {"name": "log_id", "type": {"type": "fixed", "name": "LogId", "size": LOG_ID_BYTES}},
    *_EPOCH,
    {"name": "lsn", "type": "long"},
    {"name": "prev", "type": {"type": "fixed", "name": "Hash", "size": HASH_BYTES}},
    {"name": "tx", "type": {"type": "fixed", "name": "TxId", "size": TX_BYTES}},
]
_EPOCH_AT = {"type": "record", "name": "EpochAt", "fields": [*_EPOCH, {"name": "at_lsn", "type": "long"}]}
_CHANGE = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "op", "type": "int"},
        {"name": "ref", "type": {"type": "fixed", "name": "Ref", "size": REF_BYTES}},
        {"name": "key", "type": "bytes"},
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "replaced", "type": "long"},
        {"name": "before", "type": ["null", "bytes"]},
    ],
}
_CHANGES = {"name": "changes", "type": {"type": "array", "items": _CHANGE}}
_READ = {
    "type": "record",
    "name": "Read",
    "fields": [{"name": "key", "type": "bytes"}, {"name": "version", "type": "long"}],
}

_TX = {"type": "fixed", "name": "Tx", "size": TX_BYTES}
_MERGED = {
    "type": "record",
    "name": "Merged",
    "fields": [
        {"name": "key", "type": "bytes"},
        {"name": "ref", "type": "bytes"},
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "evidence", "type": "bytes"},
    ],
}
_DECIDED = {
    "type": "record",
    "name": "DecidedTx",
    "fields": [{"name": "tx", "type": "Tx"}, {"name": "commit", "type": "boolean"}],
}
_BRANCH = {
    "type": "record",
    "name": "Branch",
    "fields": [
        *_EPOCH,
        {"name": "at_lsn", "type": "long"},
        {"name": "hash", "type": "Hash"},
        {"name": "lineage", "type": {"type": "array", "items": _EPOCH_AT}},
    ],
}
_JOINED = {
    "type": "record",
    "name": "Joined",
    "fields": [*_EPOCH, {"name": "branches", "type": {"type": "array", "items": "Branch"}}],
}

_BODIES: dict[type[Any], tuple[int, list[dict[str, Any]]]] = {
    EpochStarted: (1, [{"name": "parent", "type": _EPOCH_AT}]),
    EpochOpened: (2, [{"name": "lineage", "type": {"type": "array", "items": _EPOCH_AT}}]),
    Commit: (3, [_CHANGES, {"name": "origin", "type": ["null", _EPOCH_AT]}]),
    Prepare: (
        4,
        [
            {"name": "first", "type": "string"},
            {"name": "participants", "type": {"type": "array", "items": "string"}},
            {"name": "mapper_version", "type": "long"},
            {"name": "digest", "type": "bytes"},
            _CHANGES,
            {"name": "reads", "type": {"type": "array", "items": _READ}},
        ],
    ),
    Outcome: (5, [{"name": "commit", "type": "boolean"}]),
    HandedOver: (6, [{"name": "to", "type": "string"}]),
    MapperChanged: (7, [{"name": "mapper_version", "type": "long"}]),
    SiteSwitched: (8, [{"name": "to", "type": "string"}, {"name": "lineage_head", "type": _EPOCH_AT}]),
    Horizon: (9, [{"name": "stamp", "type": "long"}]),
    MergePart: (
        10,
        [
            {"name": "index", "type": "int"},
            {"name": "merged", "type": {"type": "array", "items": _MERGED}},
            {"name": "happened", "type": {"type": "array", "items": _TX}},
            {"name": "decided", "type": {"type": "array", "items": _DECIDED}},
        ],
    ),
    EpochMerged: (
        11,
        [
            {"name": "merge", "type": "bytes"},
            {"name": "branches", "type": {"type": "array", "items": _BRANCH}},
            {"name": "joined", "type": {"type": "array", "items": _JOINED}},
            {"name": "undoings", "type": {"type": "array", "items": "bytes"}},
            {"name": "parts", "type": "int"},
            {"name": "parts_hash", "type": "bytes"},
            {"name": "horizon", "type": "long"},
            {"name": "mapper_version", "type": "long"},
        ],
    ),
    LevelStated: (12, [{"name": "level", "type": "long"}]),
}


def _schema(cls: type[Any]) -> dict[str, Any]:
    return {"type": "record", "name": cls.__name__, "namespace": "halog.log", "fields": [*_HEADER, *_BODIES[cls][1]]}


SCHEMAS: dict[str, dict[str, Any]] = {cls.__name__: _schema(cls) for cls in _BODIES}
"""The Avro schema of each record kind, as documented in docs/protocol.md."""

KINDS: dict[str, int] = {cls.__name__: kind for cls, (kind, _) in _BODIES.items()}
"""The kind byte of each record."""

_PARSED = {cls: parse_schema(SCHEMAS[cls.__name__], _write_hint=False) for cls in _BODIES}
_PREFIX = {cls: bytes((VERSION, kind)) for cls, (kind, _) in _BODIES.items()}
_BY_KIND = {kind: cls for cls, (kind, _) in _BODIES.items()}
LAST_KIND = max(_BY_KIND)
"""Kinds have consecutive numbers: a later version's are beyond this one."""
LAST_OP = DELETE
"""So have the ops of changes."""


def _flat(epoch: EpochId, lsn: int) -> dict[str, Any]:
    return {"epoch": epoch[0], "site": epoch[1], "nonce": epoch[2], "at_lsn": lsn}


def _body_out(record: Record) -> dict[str, Any]:
    match record:
        case Commit(changes=changes, origin=origin):
            return {
                "changes": [_change_out(c) for c in changes],
                "origin": None if origin is None else _flat(origin.epoch, origin.lsn),
            }
        case EpochStarted():
            return {"parent": _flat(record.parent_epoch, record.parent_lsn)}
        case EpochOpened():
            return {"lineage": [_flat(e, n) for e, n in record.lineage]}
        case Prepare():
            plain = {n: getattr(record, n) for n in ("first", "participants", "mapper_version", "digest")}
            reads = [{"key": key, "version": version} for key, version in record.reads]
            return {**plain, "changes": [_change_out(c) for c in record.changes], "reads": reads}
        case SiteSwitched():
            return {"to": record.to, "lineage_head": _flat(*record.lineage_head)}
        case MergePart() | EpochMerged():
            return _merge_out(record)
        case _:
            return {n: getattr(record, n) for n in record.__struct_fields__ if n != "header"}


def _merge_out(record: MergePart | EpochMerged) -> dict[str, Any]:
    if isinstance(record, MergePart):
        merged = [{"key": s.key, "ref": s.ref, "value": s.value, "evidence": s.evidence} for s in record.merged]
        decided = [{"tx": tx, "commit": commit} for tx, commit in record.decided]
        return {"index": record.index, "merged": merged, "happened": record.happened, "decided": decided}
    joined = [{**_epoch_out(j.epoch), "branches": [_branch_out(b) for b in j.branches]} for j in record.joined]
    plain = {n: getattr(record, n) for n in ("merge", "undoings", "parts", "parts_hash", "horizon", "mapper_version")}
    return {**plain, "branches": [_branch_out(b) for b in record.branches], "joined": joined}


def _epoch_out(epoch: EpochId) -> dict[str, Any]:
    return {"epoch": epoch.number, "site": epoch.site, "nonce": epoch.nonce}


def _branch_out(b: Branch) -> dict[str, Any]:
    return {**_flat(b.epoch, b.lsn), "hash": b.hash, "lineage": [_flat(e, n) for e, n in b.lineage]}


def _change_out(c: Change) -> dict[str, Any]:
    return {"op": c.op, "ref": c.ref, "key": c.key, "value": c.value, "replaced": c.replaced, "before": c.before}


def encode(record: Record) -> bytes:
    """Return the record's bytes: version, kind, Avro."""
    h = record.header
    if type(record) is Commit and record.origin is None:
        return commit_bytes.write(_PREFIX[Commit], h.log_id, h.epoch, h.lsn, h.prev, h.tx, record.changes)
    if type(record) is Prepare:
        return commit_bytes.write_prepare(_PREFIX[Prepare], h, record)
    if type(record) is Outcome:
        return commit_bytes.write_outcome(_PREFIX[Outcome], h, record.commit)
    if type(record) is MergePart:
        return commit_bytes.write_part(_PREFIX[MergePart], h, record)
    return _encode(record)


def _encode(record: Record) -> bytes:
    h = record.header
    out = _body_out(record)
    out["log_id"], out["lsn"], out["prev"], out["tx"] = h.log_id, h.lsn, h.prev, h.tx
    out["epoch"], out["site"], out["nonce"] = h.epoch
    cls = type(record)
    fo = io.BytesIO()
    fo.write(_PREFIX[cls])
    schemaless_writer(fo, _PARSED[cls], out)
    return fo.getvalue()


def _unknown_op(header: Header, op: int) -> LaterRecordError:
    return LaterRecordError(
        f"a record (lsn {header.lsn}) with a change of op {op}, which a later version of halog wrote: halog {HALOG} "
        f"knows ops up to {LAST_OP}. Upgrade the installation that says so",
        version=VERSION,
        op=op,
        lsn=header.lsn,
    )


def _epoch_at(d: dict[str, Any]) -> tuple[EpochId, int]:
    return EpochId(d["epoch"], d["site"], d["nonce"]), d["at_lsn"]


def _changes_in(header: Header, items: list[dict[str, Any]]) -> tuple[Change, ...]:
    for op in {item["op"] for item in items}:
        if op < CREATE:
            raise ValueError(f"a change with op {op}")
        if op > LAST_OP:
            raise _unknown_op(header, op)
    return tuple(Change(**c) for c in items)


def _body_in(cls: type[Any], header: Header, d: dict[str, Any]) -> Record:
    if cls is Commit:
        origin = d["origin"]
        return Commit(header, _changes_in(header, d["changes"]), None if origin is None else Origin(*_epoch_at(origin)))
    if cls is EpochStarted:
        return EpochStarted(header, *_epoch_at(d["parent"]))
    if cls is EpochOpened:
        return EpochOpened(header, tuple(_epoch_at(e) for e in d["lineage"]))
    if cls is Prepare:
        reads = tuple((r["key"], r["version"]) for r in d["reads"])
        plain = (d["first"], tuple(d["participants"]), d["mapper_version"], d["digest"])
        return Prepare(header, *plain, _changes_in(header, d["changes"]), reads)
    if cls is SiteSwitched:
        return SiteSwitched(header, d["to"], _epoch_at(d["lineage_head"]))
    if cls is MergePart:
        merged = tuple(Merged(**item) for item in d["merged"])
        decided = tuple((item["tx"], item["commit"]) for item in d["decided"])
        return MergePart(header, d["index"], merged, tuple(d["happened"]), decided)
    if cls is EpochMerged:
        branches, joined = _branches_in(d["branches"]), tuple(_joined_in(item) for item in d["joined"])
        rest = (d[n] for n in ("parts", "parts_hash", "horizon", "mapper_version"))
        return EpochMerged(header, d["merge"], branches, joined, tuple(d["undoings"]), *rest)
    if cls is LevelStated:
        check_level(d["level"])
    result: Record = cls(header, *(d[n] for n in cls.__struct_fields__ if n != "header"))
    return result


def check_level(level: int) -> None:
    """Raise LaterRecordError if this halog does not know the level of what follows."""
    if level > LEVEL:
        raise LaterRecordError(
            f"what follows may be of level {level}, which a later version of halog wrote: halog {HALOG} knows levels "
            f"up to {LEVEL}. Upgrade the installation that says so",
            level=level,
            known=LEVEL,
        )


def _branches_in(items: list[dict[str, Any]]) -> tuple[Branch, ...]:
    return tuple(Branch(*_epoch_at(b), b["hash"], tuple(_epoch_at(e) for e in b["lineage"])) for b in items)


def _joined_in(d: dict[str, Any]) -> Joined:
    return Joined(EpochId(d["epoch"], d["site"], d["nonce"]), _branches_in(d["branches"]))


def is_part(data: bytes) -> bool:
    """Say whether these are the bytes of a `MergePart`."""
    return data[:2] == _PREFIX[MergePart]


def _unknown(data: bytes) -> RecordFormatError:
    """Return the error of bytes that do not begin as a record that is known here."""
    head = data[:16].hex()
    if len(data) > 1 and (VERSION < data[0] <= LAST_VERSION or (data[0] == VERSION and data[1] > LAST_KIND)):
        return LaterRecordError(
            f"a record of version {data[0]} and kind {data[1]}, which a later version of halog wrote: halog {HALOG} "
            f"reads version {VERSION}, kinds up to {LAST_KIND}. Upgrade the installation that says so",
            version=data[0],
            kind=data[1],
            head=head,
        )
    begins = f"version {data[:1].hex() or '-'} and kind {data[1:2].hex() or '-'}"
    return RecordFormatError(f"bytes that are no record: they begin with {begins}", head=head)


def decode(data: bytes) -> Record:
    """Read the record in `data`. LaterRecordError if a later version wrote it, RecordFormatError if it is damaged."""
    if len(data) < 2 or data[0] != VERSION or data[1] not in _BY_KIND:
        raise _unknown(data)
    cls = _BY_KIND[data[1]]
    if cls is Commit and (plain := commit_bytes.read(data)) is not None:
        return Commit(Header(*plain[0]), tuple(Change(*c) for c in plain[1]))
    if cls is Prepare and (vote := commit_bytes.read_prepare(data)) is not None:
        head, named, changes, reads = vote
        return Prepare(Header(*head), *named, tuple(Change(*c) for c in changes), reads)
    if cls is Outcome and (decision := commit_bytes.read_outcome(data)) is not None:
        return Outcome(Header(*decision[0]), decision[1])
    return _decode(cls, data)


def linked(data: bytes) -> Record:
    """Read the record as `halog.core.log.chain` judges it: a commit comes without its changes, which the chain does not
    look at and which take nearly all of the time.

    A commit that was recovered is read whole, because its origin matters; its last byte belongs to the origin's lsn and
    is never 0. RecordFormatError as in `decode`, for all other records.
    """
    if data[:2] == _PREFIX[Commit] and data[-1] == 0 and (head := commit_bytes.read_head(data)) is not None:
        return Commit(Header(*head), ())
    return decode(data)


class TopicPlace(Protocol):
    """Names a partition of a topic."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class LogEntry(Protocol):
    """Is an entry of a log: bytes with their place."""

    @property
    def tp(self) -> TopicPlace: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes: ...


def read(entry: LogEntry) -> Record:
    """Read an entry's record as `decode` does; a LaterRecordError names the place."""
    try:
        return decode(entry.value)
    except LaterRecordError as error:
        raise _placed(entry, error) from None


def read_linked(entry: LogEntry) -> Record:
    """Read an entry's record as `linked` does; a LaterRecordError names the place."""
    try:
        return linked(entry.value)
    except LaterRecordError as error:
        raise _placed(entry, error) from None


def _placed(entry: LogEntry, error: LaterRecordError) -> LaterRecordError:
    topic, partition = entry.tp.topic, entry.tp.partition
    return error.at(f"{topic}/{partition}, offset {entry.offset}", topic=topic, index=partition, offset=entry.offset)


def _decode(cls: type[Any], data: bytes) -> Record:
    fo = io.BytesIO(data)
    fo.seek(2)
    try:
        d: dict[str, Any] = schemaless_reader(fo, _PARSED[cls], None)  # type: ignore[assignment]
        if fo.tell() != len(data):
            raise ValueError(f"{len(data) - fo.tell()} bytes left over")
        header = Header(d["log_id"], EpochId(d["epoch"], d["site"], d["nonce"]), d["lsn"], d["prev"], d["tx"])
        return _body_in(cls, header, d)
    except LaterRecordError as e:
        raise LaterRecordError(e.message, **e.evidence, kind=_BODIES[cls][0], head=data[:16].hex()) from None
    except Exception as e:
        raise RecordFormatError(f"a {cls.__name__} record cannot be read: {e}", head=data[:16].hex()) from e
