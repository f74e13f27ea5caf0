"""A reader of a partition's log that knows halog only by docs/protocol.md and the schemas beside it.

It needs fastavro and the standard library. `History` reads the records of one log and holds the objects that they
leave. `Types` turns the bytes of keys and values into Python values, by the definitions of the schemas topic.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import fastavro.read

PUBLISHED = Path(__file__).resolve().parents[2] / "docs/protocol"
VERSION = 1
DIRECTORY = hashlib.sha256(b"#directory").digest()[:8]
"""Keys of directory entries begin so; they are no objects."""


def _published(name: str) -> Any:
    return json.loads((PUBLISHED / f"{name}.avsc").read_text())


_SCHEMAS = [json.loads(path.read_text()) for path in sorted(PUBLISHED.glob("*.avsc"))]
KINDS = {s["kind"]: (s["name"], fastavro.parse_schema(s)) for s in _SCHEMAS if s.get("version") == VERSION}
"""By kind byte: the record's name and its schema."""

Epoch = tuple[int, str, int]
NO_EPOCH: Epoch = (0, "", 0)
Place = tuple[Epoch, int]
"""An epoch, and an lsn in it."""


class LogError(Exception):
    """The log, or this reader's history, is broken: reading ends here."""


class Row(NamedTuple):
    """What stands under a key."""

    ref: bytes
    version: int
    value: bytes


def decode(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the kind and the fields of a record."""
    if len(data) < 2 or data[0] != VERSION or data[1] not in KINDS:
        raise LogError(f"a record of an unknown version or kind: {data[:2].hex()}")
    name, schema = KINDS[data[1]]
    return name, _read_all(schema, data, 2)


def _read_all(schema: Any, data: bytes, start: int) -> Any:
    body = io.BytesIO(data)
    body.seek(start)
    value = fastavro.schemaless_reader(body, schema, None)
    if body.read(1):
        raise LogError("bytes behind the end of a value")
    return value


def digest(data: bytes) -> bytes:
    """Return the hash of a record, or of other hashes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _epoch(fields: Mapping[str, Any]) -> Epoch:
    return fields["epoch"], fields["site"], fields["nonce"]


def _place(fields: Mapping[str, Any]) -> Place:
    return _epoch(fields), fields["at_lsn"]


def _epoch_of(parts: Iterable[Any]) -> Epoch:
    number, site, nonce = parts
    return number, site, nonce


def unpack(data: bytes) -> Any:
    """Return the value that MessagePack bytes hold."""
    return _unpacked(io.BytesIO(data))


_SIZES = {0xC4: "bin", 0xC5: "bin", 0xC6: "bin", 0xD9: "str", 0xDA: "str", 0xDB: "str"}
_SIZES |= {0xDC: "array", 0xDD: "array", 0xDE: "map", 0xDF: "map"}
_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}


def _unpacked(source: io.BytesIO) -> Any:
    (head,) = source.read(1)
    if head < 0x80 or head >= 0xE0:
        return head if head < 0x80 else head - 0x100
    if head in _FIXED:
        return _FIXED[head]
    if 0xCC <= head <= 0xD3:
        return int.from_bytes(source.read(1 << (head & 3)), "big", signed=head >= 0xD0)
    if head < 0xC0:
        kind, size = ("map", head & 15) if head < 0x90 else ("array", head & 15) if head < 0xA0 else ("str", head & 31)
    else:
        kind, size = _SIZES[head], int.from_bytes(source.read(_WIDTHS[head]), "big")
    match kind:
        case "map":
            return {_unpacked(source): _unpacked(source) for _ in range(size)}
        case "array":
            return [_unpacked(source) for _ in range(size)]
        case "str":
            return source.read(size).decode()
        case _:
            return source.read(size)


class History:
    """One partition, as its log tells it. `site` is the site whose log is read, `owner` the home where that is another
    site. `read` takes the values of the log's records in the order of their offsets, and says how each counts."""

    def __init__(self, site: str = "", owner: str = "") -> None:
        self.site = site
        self.owner = owner
        self.log_id: bytes | None = None
        self.epoch = NO_EPOCH
        self.opened = False
        self.over = False
        self.handed_to = ""
        self.fenced = 0
        self.lsn = 0
        self.hash = bytes(16)
        self.lineage: list[Place] = []
        self.parts: dict[Epoch, dict[int, tuple[bytes, dict[str, Any]]]] = {}
        self.objects: dict[bytes, Row] = {}
        """By index key, directory entries among them."""
        self.in_doubt: dict[bytes, dict[str, Any]] = {}
        """By transaction id: its `Prepare`."""
        self.decided: dict[bytes, bool] = {}
        self.horizon = -1
        self.mapping = 0

    @classmethod
    def restored(cls, rows: Iterable[tuple[bytes, bytes | None]]) -> tuple[History, int]:
        """Return what the rows of a state topic hold, and the offset of the log to go on from."""
        latest = dict(rows)
        marker = unpack(latest.get(b"p") or b"\xc0")
        if marker is None or marker.get("format") not in (2, 3, 4):
            raise LogError("no snapshot, or one of another format")
        position, state = marker["position"], marker["position"]["state"]
        made = cls(state["site"], state["owner"])
        made.log_id, made.epoch = state["log_id"], _epoch_of(state["epoch"])
        made.opened, made.over, made.handed_to = state["opened"], state["void"], state["closed_for"]
        made.fenced, made.lsn, made.hash = state["fenced"], state["lsn"], state["hash"]
        made.lineage = [(_epoch_of(epoch), lsn) for epoch, lsn in state["lineage"]]
        made.horizon = int.from_bytes(position["settled"], "big") if position["settled"] else -1
        made.mapping = position["mapping"]
        objects = {key[1:]: value for key, value in latest.items() if key[:1] == b"k" and value}
        made.objects = {k: Row(v[8:32], int.from_bytes(v[:8], "big"), v[32:]) for k, v in objects.items()}
        for n in range(marker["rows"]):
            doubt, decided = unpack(latest[b"l" + made.lsn.to_bytes(8, "big") + n.to_bytes(4, "big")] or b"")
            if doubt is not None:
                _, prepare = decode(doubt[8:])
                made.in_doubt[prepare["tx"]] = prepare
            made.decided |= {tx: decision[0] for tx, decision in decided}
        return made, position["next_offset"]

    @property
    def head(self) -> Place:
        """The last opened epoch and the lsn where the history ends."""
        return (self.lineage[-1][0] if self.lineage else NO_EPOCH), self.lsn

    # --- which records count ---

    def read(self, data: bytes) -> str:
        """Return how the next record counts: started, opened, accepted, skipped, voided, held or switched."""
        kind, record = decode(data)
        if self.log_id is None:
            self.log_id = record["log_id"]
        if record["log_id"] != self.log_id:
            raise LogError("a record of another history: the topic was made anew")
        if self.owner:
            return self._read_mirrored(kind, record, digest(data))
        epoch = _epoch(record)
        if kind == "EpochStarted":
            return self._start(epoch)
        if epoch == self.epoch:
            return self._read_current(kind, record, digest(data))
        if epoch[1] == self.site and epoch[0] > self.epoch[0]:
            raise LogError(f"epoch {epoch[0]} writes and never started")
        return "skipped"

    def _read_current(self, kind: str, record: dict[str, Any], hash_: bytes) -> str:
        if kind == "SiteSwitched":
            return self._switch(record)
        if self.over or (kind == "MergePart" and self.opened):
            return "skipped"
        if kind == "MergePart":
            return self._hold(record, hash_)
        if kind in ("EpochOpened", "EpochMerged"):
            return self._open(kind, record, hash_)
        self.parts.clear()
        return self._accept(kind, record, hash_) if self._continues(record) else self._void()

    def _start(self, epoch: Epoch) -> str:
        if epoch[1] != self.site or epoch[0] <= self.epoch[0]:
            return "skipped"
        self._begin(epoch, opened=False)
        return "started"

    def _begin(self, epoch: Epoch, *, opened: bool) -> None:
        self.parts.clear()
        self.epoch = epoch
        self.opened = opened
        self.over = False
        self.handed_to = ""

    def _continues(self, record: Mapping[str, Any]) -> bool:
        return bool(record["lsn"] == self.lsn + 1 and record["prev"] == self.hash)

    def _void(self) -> str:
        self.over = True
        return "voided"

    def _accept(self, kind: str, record: dict[str, Any], hash_: bytes) -> str:
        self.lsn = record["lsn"]
        self.hash = hash_
        if kind == "HandedOver":
            self.over = True
            self.handed_to = record["to"]
        self._apply(kind, record)
        return "accepted"

    def _open(self, kind: str, record: dict[str, Any], hash_: bytes) -> str:
        if self.opened:
            return self._void()
        merges = kind == "EpochMerged"
        if not (self._ends(record["branches"][0]) if merges else self._continues(record)):
            raise LogError("an epoch was opened on a history that this reader does not have")
        if merges:
            return self._merge(record, hash_) or self._void()
        return self._stand(record, hash_, self.lineage)

    def _stand(self, record: dict[str, Any], hash_: bytes, lineage: Iterable[Place]) -> str:
        self._begin(_epoch(record), opened=True)
        self.lsn = record["lsn"]
        self.hash = hash_
        self.lineage = [*lineage, (self.epoch, self.lsn)]
        return "opened"

    # --- logs that change hands ---

    def _switch(self, record: Mapping[str, Any]) -> str:
        if self.over and self.handed_to != record["to"]:
            return "skipped"
        if _place(record["lineage_head"]) != self.head:
            return self._void()
        self.owner = record["to"]
        self.fenced = self.epoch[0]
        self.over = False
        self.opened = True
        return "switched"

    def _read_mirrored(self, kind: str, record: dict[str, Any], hash_: bytes) -> str:
        epoch = _epoch(record)
        own = epoch[1] == self.site
        if own and epoch[0] <= self.fenced:
            return "skipped"
        if kind == "MergePart":
            return self._hold(record, hash_)
        if kind == "EpochMerged":
            known = any(self._ends(b) for b in record["branches"])
            return (self._merge(record, hash_) if known else None) or "skipped"
        if kind == "EpochStarted" and own:
            self._begin(epoch, opened=False)
            self.owner = ""
            self.fenced = 0
            return "started"
        if not self._continues(record):
            return "skipped"
        if kind == "EpochOpened":
            return self._stand(record, hash_, self.lineage)
        if self.over or epoch not in (self.epoch, self.head[0]):
            return "skipped"
        self.parts.clear()
        return self._accept(kind, record, hash_)

    # --- merges ---

    def _hold(self, record: dict[str, Any], hash_: bytes) -> str:
        self.parts.setdefault(_epoch(record), {})[record["index"]] = hash_, record
        return "held"

    def _ends(self, branch: Mapping[str, Any]) -> bool:
        return bool(branch["at_lsn"] == self.lsn and branch["hash"] == self.hash)

    def _merge(self, record: dict[str, Any], hash_: bytes) -> str | None:
        branches, held = record["branches"], self.parts.get(_epoch(record), {})
        if any(i not in held for i in range(record["parts"])):
            return None
        parts = [held[i] for i in range(record["parts"])]
        highest = max(b["at_lsn"] for b in branches)
        if (
            digest(b"".join(part_hash for part_hash, _ in parts)) != record["parts_hash"]
            or record["prev"] != branches[0]["hash"]
            or record["lsn"] != highest + 1
        ):
            return None
        self._stand(record, hash_, [_place(at) for at in branches[0]["lineage"]])
        self.in_doubt.clear()
        self.decided.clear()
        self.horizon = record["horizon"] or -1
        self.mapping = record["mapper_version"]
        for _, part in parts:
            self.decided |= {item["tx"]: item["commit"] for item in part["decided"]}
            self._put(part["merged"], record["lsn"])
        return "opened"

    # --- what they change ---

    def _apply(self, kind: str, record: dict[str, Any]) -> None:
        tx: bytes = record["tx"]
        match kind:
            case "Commit":
                self._put(record["changes"], record["lsn"])
            case "Prepare" if not (self._expired(tx) or tx in self.in_doubt or tx in self.decided):
                self.in_doubt[tx] = record
            case "Outcome":
                self._decide(tx, record)
            case "Horizon":
                self.horizon = max(self.horizon, record["stamp"])
                self.decided = {tx: commit for tx, commit in self.decided.items() if not self._expired(tx)}
            case "MapperChanged":
                self.mapping = max(self.mapping, record["mapper_version"])

    def _decide(self, tx: bytes, record: Mapping[str, Any]) -> None:
        if self._expired(tx) or tx in self.decided or (record["commit"] and tx not in self.in_doubt):
            return
        self.decided[tx] = record["commit"]
        prepared = self.in_doubt.pop(tx, None)
        if prepared is not None and record["commit"]:
            self._put(prepared["changes"], record["lsn"])

    def _expired(self, tx: bytes) -> bool:
        return int.from_bytes(tx[:8], "big") <= self.horizon

    def _put(self, changes: Iterable[Mapping[str, Any]], version: int) -> None:
        for change in changes:
            if change["value"] is None:
                self.objects.pop(change["key"], None)
            else:
                self.objects[change["key"]] = Row(change["ref"], version, change["value"])


# --- objects ---

_SCALARS: dict[str, Any] = {
    "bool": "boolean",
    "int": "long",
    "float": "double",
    "str": "string",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "datetime": {"type": "long", "logicalType": "timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}
_WRITTEN = "halog-decimal"


def avro_of(kind: Any, names: Iterator[int], decimal: str = "decimal") -> Any:
    """Return the Avro schema of a definition's type. Names are numbered, since they are not in the bytes."""
    if isinstance(kind, str):
        return _SCALARS[kind]
    ((form, body),) = kind.items()
    match form:
        case "list":
            return {"type": "array", "items": avro_of(body, names, decimal)}
        case "map":
            return {"type": "map", "values": avro_of(body, names, decimal)}
        case "optional":
            return ["null", avro_of(body, names, decimal)]
        case "decimal":
            return {"type": "bytes", "logicalType": decimal, **body}
        case "enum":
            return {"type": "enum", "name": f"Enum{next(names)}", "symbols": body["symbols"]}
        case "record":
            return _record_of(body["fields"], names, decimal)
        case "ref":
            schema, n = _published("Ref"), next(names)
            fixed = {**schema["fields"][0]["type"], "name": f"RefId{n}"}
            return {**schema, "name": f"Ref{n}", "fields": [{"name": "ref", "type": fixed}, *schema["fields"][1:]]}
    raise LogError(f"a type of an unknown form: {form}")


def _record_of(fields: Iterable[Mapping[str, Any]], names: Iterator[int], decimal: str) -> Any:
    name = f"Record{next(names)}"
    made = [{"name": f["name"], "type": avro_of(f["type"], names, decimal)} for f in fields]
    return {"type": "record", "name": name, "fields": made}


def _as_written(data: bytes, schema: Any, _reader: Any = None) -> Decimal:
    """Return a decimal with as many digits behind the point as it was written with."""
    scale, number = schema["scale"], int.from_bytes(data, "big", signed=True)
    more = len(data) - 1 - (number if number >= 0 else ~number).bit_length() // 8
    if not number:
        minus = max(32, scale + 2)
        return Decimal((int(more >= minus), (0,), more % minus - scale))
    whole, rest = divmod(number, 10**more)
    if rest:
        raise LogError("a decimal with more digits than its bytes say")
    return Decimal(whole).scaleb(more - scale, Context(prec=schema["precision"]))


fastavro.read.LOGICAL_READERS[f"bytes-{_WRITTEN}"] = _as_written


class _Type:
    """One definition, ready to read with."""

    def __init__(self, definition: Mapping[str, Any], decimal: str) -> None:
        self.name: str = definition["name"]
        root = definition["bases"][-1] if definition["bases"] else self.name
        self.family = hashlib.sha256(root.encode()).digest()[:8]
        fields = {f["name"]: f for f in definition["fields"]}
        key = [fields[name] for name in definition["key"]]
        self.value_schema = fastavro.parse_schema(_record_of(definition["fields"], itertools.count(), decimal))
        self.key_schema = fastavro.parse_schema(_record_of(key, itertools.count(), decimal))


class Types:
    """The definitions of the schemas topic. `rows` are its keys and values in order. With `decimal="decimal"` numbers
    are read as any reader of Avro does, else with the digits they were written with."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes | None]], decimal: str = _WRITTEN) -> None:
        self._by_id: dict[bytes, _Type] = {}
        for type_id, text in rows:
            if text is None:
                self._by_id.pop(type_id, None)
                continue
            if hashlib.sha256(text).digest()[:8] != type_id:
                raise LogError(f"a definition under another's id: {type_id.hex()}")
            self._by_id[type_id] = _Type(json.loads(text), decimal)

    def object(self, key: bytes, value: bytes) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return the name of the type, the key's parts and the fields of an object."""
        found = self._by_id[value[:8]]
        if key[:8] != found.family:
            raise LogError(f"a {found.name} under a key of another family")
        parts = _read_all(found.key_schema, key, 8)
        return found.name, tuple(parts.values()), _read_all(found.value_schema, value, 8)


def directory_entry(key: bytes, value: bytes) -> tuple[bytes, bytes, str]:
    """Return the key of the object that an entry is of, the type id it was created as, and its partition."""
    if key[:8] != DIRECTORY or value[:8] != DIRECTORY:
        raise LogError("no directory entry")
    said = _read_all(fastavro.parse_schema(_published("DirectoryEntry")), value, 8)
    return key[8:], said["type_id"], said["partition"]
