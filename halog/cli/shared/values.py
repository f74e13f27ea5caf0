"""Keys and objects have one form for operators: by the stored definition, without any class.

The module is pure. The theory: `halog.schema.plain` has one JSON form for every value, and keys are written in it, too.
So a key copied from any output is accepted by any command.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from halog.backend import CommittedObject
from halog.core.ids import REF_BYTES
from halog.core.keys.directory import is_entry, object_key
from halog.core.log.provisional import lsn_of
from halog.errors import FieldTypeError, HalogError, LaterRecordError, RecordFormatError, UnknownTypeError
from halog.runtime.topics.schemas import Definitions
from halog.schema import Definition, ForeignType
from halog.schema.definition import ID_BYTES
from halog.schema.plain import from_plain


def parse_key(definition: Definition, words: Sequence[str]) -> tuple[Any, ...]:
    """Return the key from words: one word for each key field, or all fields as one JSON array."""
    if len(words) == 1 and len(definition.key) > 1:
        return key_from_plain(definition, _json_array(definition, words[0]))
    return ForeignType(definition).key_from_text(words)


def _json_array(definition: Definition, text: str) -> list[Any]:
    names = ", ".join(definition.key)
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list):
        raise FieldTypeError(
            f"{definition.name}: the key is ({names}); give {len(definition.key)} words or one JSON array",
            type=definition.name,
        )
    return parts


def key_from_plain(definition: Definition, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key from plain JSON values, checked."""
    name = definition.name
    if len(parts) != len(definition.key):
        names = ", ".join(definition.key)
        raise FieldTypeError(f"{name}: the key is ({names}), got {len(parts)} values", type=name)
    return tuple(from_plain(definition.shape(n), p, f"{name}.{n}") for n, p in zip(definition.key, parts, strict=True))


def describe(definitions: Definitions, found: CommittedObject) -> dict[str, Any]:
    """Return a committed object as plain values: type, definition, key, reference, version, fields. RecordFormatError
    names an object that cannot be read."""
    type_name = None
    try:
        foreign = definitions.foreign(found.value[:ID_BYTES])
        type_name = foreign.name
        fields = foreign.decode(found.value)
    except RecordFormatError as error:
        family, key = describe_key(definitions, found.key)
        type_name = type_name or family
        deletes = "" if isinstance(error, LaterRecordError) else ", `halog delete` deletes it"
        raise error.retold(
            f"{type_name} {' '.join(map(str, key))} cannot be read: {error.message}; `halog get --raw` shows its "
            f"bytes{deletes}",
            type=type_name,
            key=found.key,
        ) from error
    return {
        "type": foreign.name,
        "key": [fields[name] for name in foreign.parsed.key],
        "fields": fields,
        "ref": found.ref.hex(),
        "version": lsn_of(found.version),
        "definition": foreign.type_id.hex(),
    }


def describe_any(definitions: Definitions, found: CommittedObject, *, raw: bool = False) -> dict[str, Any]:
    """Describe an object. With `raw`, or if it cannot be read, the document has the bytes of its value and of its key
    instead of its fields, and says why."""
    why = None
    try:
        whole = describe(definitions, found)
        if not raw:
            return whole
    except (RecordFormatError, UnknownTypeError) as error:
        why = error.message
    family, key = describe_key(definitions, found.key)
    type_id = found.value[:ID_BYTES]
    with suppress(HalogError):  # else only its key space is known
        family = definitions.find(type_id).name
    shown = {
        "type": family,
        "key": key,
        "key_bytes": found.key[ID_BYTES:].hex(),
        "bytes": found.value.hex(),
        "ref": found.ref.hex(),
        "version": lsn_of(found.version),
        "definition": type_id.hex(),
    }
    return shown if why is None else {**shown, "why": why}


def describe_key(definitions: Definitions, index_key: bytes) -> tuple[str, list[Any]]:
    """Return (type or family, key) of an index key alone, for changes that carry no value. The key of an entry is told
    as `entry of` the type."""
    if is_entry(index_key):
        family, key = describe_key(definitions, object_key(index_key))
        return f"entry of {family}", key
    definition = definitions.of_family(index_key[:ID_BYTES])
    if definition is None:
        return "?", [index_key.hex()]
    try:
        return definition.root, list(definitions.foreign(definition.type_id).decode_index_key(index_key).values())
    except HalogError:
        return definition.root, [index_key[ID_BYTES:].hex()]


def ref_text(raw: bytes) -> str:
    """Return a reference as people read it: location, installation, count."""
    if len(raw) != REF_BYTES:
        return raw.hex()
    return f"{raw[:8].hex()}-{int.from_bytes(raw[8:16], 'big')}-{int.from_bytes(raw[16:], 'big')}"


def short(value: Any, width: int = 60) -> str:
    """Return a plain value on one line, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
