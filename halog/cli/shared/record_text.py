"""A judged record has two forms: one JSON document, or lines for people.

The module is pure but for the definitions, which read the schemas topic again on a miss. A value that cannot be decoded
is shown as its bytes, with the reason: a tool that stops at the first odd record helps nobody.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from halog.cli.shared.values import describe_key, ref_text, short
from halog.core.ids import NO_TX
from halog.core.keys.directory import is_entry, unpacked
from halog.core.log import records
from halog.errors import HalogError
from halog.runtime.topics.log_judge import NOWHERE, EntryVerdict
from halog.runtime.topics.schemas import Definitions
from halog.schema.definition import ID_BYTES

OPS = {records.CREATE: "create", records.UPDATE: "update", records.DELETE: "delete"}


def as_json(judged: EntryVerdict, definitions: Definitions) -> dict[str, Any]:
    """Return everything about the record."""
    document: dict[str, Any] = {
        "offset": None if judged.offset == NOWHERE else judged.offset,
        "time": _time(judged.timestamp_ms),
        "verdict": judged.verdict,
    }
    if judged.why is not None:
        document["why"] = judged.why
    if judged.record is None:
        return document
    header = judged.record.header
    document |= {
        "record": type(judged.record).__name__,
        "epoch": header.epoch.number,
        "site": header.epoch.site,
        "lsn": header.lsn,
        "prev": header.prev.hex(),
    }
    if header.tx != NO_TX:
        document["tx"] = header.tx.hex()
    return document | _body(judged.record, definitions)


def _time(timestamp_ms: int) -> str:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


def _body(record: records.Record, definitions: Definitions) -> dict[str, Any]:
    match record:
        case records.Commit():
            origin = record.origin
            body: dict[str, Any] = {"changes": [_change(c, definitions) for c in record.changes]}
            return body if origin is None else {**body, "origin": {"epoch": origin.epoch.number, "lsn": origin.lsn}}
        case records.Prepare():
            plain = {"first": record.first, "participants": list(record.participants), "digest": record.digest.hex()}
            reads = [{"key": key.hex(), "version": version} for key, version in record.reads]
            return {**plain, "changes": [_change(c, definitions) for c in record.changes], "reads": reads}
        case records.EpochStarted():
            return {"parent": {"epoch": record.parent_epoch.number, "lsn": record.parent_lsn}}
        case records.EpochOpened():
            return {"lineage": [{"epoch": e.number, "site": e.site, "lsn": lsn} for e, lsn in record.lineage]}
        case records.Outcome():
            return {"commit": record.commit}
        case records.HandedOver() | records.SiteSwitched():
            return {"to": record.to}
        case records.MapperChanged() | records.LevelStated() | records.Horizon():
            return {n: getattr(record, n) for n in record.__struct_fields__ if n != "header"}
        case records.MergePart() | records.EpochMerged():
            return _merge(record)


def _merge(record: records.MergePart | records.EpochMerged) -> dict[str, Any]:
    match record:
        case records.MergePart():
            return {"index": record.index, "objects": len(record.merged), "transactions": len(record.happened)}
        case records.EpochMerged():
            branches = [{"epoch": b.epoch.number, "site": b.epoch.site, "lsn": b.lsn} for b in record.branches]
            return {"merge": record.merge.hex(), "branches": branches, "parts": record.parts}


def _change(change: records.Change, definitions: Definitions) -> dict[str, Any]:
    name, key = _named_key(change, definitions)
    op = OPS.get(change.op, str(change.op))
    shown: dict[str, Any] = {"op": op, "type": name, "key": key, "ref": change.ref.hex()}
    if change.value is not None:
        shown["fields"] = fields_of(change.value, definitions)
    if change.before is not None:
        shown["before"] = fields_of(change.before, definitions)
    return {**shown, "replaced": change.replaced}


def _named_key(change: records.Change, definitions: Definitions) -> tuple[str, list[Any]]:
    """Return type and key of the object: from its value, else from the index key, which knows only the family."""
    family, key = describe_key(definitions, change.key)
    value = change.value or change.before
    if value is None or is_entry(change.key):
        return family, key
    try:
        return definitions.of(value).name, key
    except HalogError:
        return family, key


def fields_of(value: bytes, definitions: Definitions) -> dict[str, Any]:
    """Return an object's fields as plain values. Where they cannot be read, return its bytes and the reason."""
    try:
        if is_entry(value):  # an entry's value begins as its key does
            return {"partition": unpacked(value).partition}
        return definitions.foreign(value[:ID_BYTES]).decode(value)
    except HalogError as error:
        return {"undecoded": value.hex(), "why": str(error)}


# --- for people ---


def as_lines(judged: EntryVerdict, definitions: Definitions) -> list[str]:
    """Return one line for the record, and one more for each change."""
    document = as_json(judged, definitions)
    time = document["time"][11:23]
    head = f"{'' if judged.offset == NOWHERE else judged.offset:>8}  {time}  {judged.verdict:<8}"
    if judged.record is None:
        return [f"{head}  {judged.why}"]
    line = f"{head}  e{document['epoch']:<3} {_lsn(judged.record):<9} {document['record']}{_summary(document)}"
    if judged.why is not None:
        line += f"  {judged.why}"
    return [line, *(_change_line(c) for c in document.get("changes", ()))]


def _lsn(record: records.Record) -> str:
    return "" if isinstance(record, records.EpochStarted) else f"lsn {record.header.lsn}"


def _summary(document: dict[str, Any]) -> str:
    parts = [f" tx {document['tx']}"] if "tx" in document else []
    for name in ("parent", "origin", "first", "commit", "to", "mapper_version", "stamp"):
        if name in document:
            parts.append(f" {name} {short(document[name])}")
    return "".join(parts)


def _change_line(change: dict[str, Any]) -> str:
    before, fields = change.get("before", {}), change.get("fields")
    indent = " " * 34
    head = f"{indent}{change['op']} {change['type']} {short(change['key'])}"
    if fields is None:
        return f"{head}  ref {ref_text(bytes.fromhex(change['ref']))}"
    shown = {n: v for n, v in fields.items() if n not in before or before[n] != v} if before else fields
    return f"{head}  " + "  ".join(_field_text(n, v, before) for n, v in shown.items())


def _field_text(name: str, value: Any, before: dict[str, Any]) -> str:
    return f"{name}={short(before[name], 30)}→{short(value, 30)}" if name in before else f"{name}={short(value)}"
