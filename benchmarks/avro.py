"""The 200-byte object of the bulk-load baseline, encoded the way any Python program would: fastavro, schemaless."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from benchmarks.payload import payload

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Item",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "count", "type": "long"},
            {"name": "text", "type": "string"},
        ],
    }
)


def plain(number: int) -> dict[str, Any]:
    """An object as a dict."""
    return {"number": number, "count": 0, "text": payload(number)}


def encode(value: dict[str, Any]) -> bytes:
    """Its bytes."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _SCHEMA, value)
    return out.getvalue()
