"""`python -m tools.schemas` writes the Avro schemas of docs/protocol/: what a reader without halog needs as files.

A test says when the files are stale (tests/unit/protocol/test_schemas.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from halog.core.keys.directory import ID_BYTES
from halog.core.log.records import KINDS, SCHEMAS, VERSION
from halog.schema.shapes import REF_AVRO

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs/protocol"

ENTRY: Final[dict[str, Any]] = {
    "type": "record",
    "name": "DirectoryEntry",
    "namespace": "halog.log",
    "fields": [
        {"name": "type_id", "type": {"type": "fixed", "name": "TypeId", "size": ID_BYTES}},
        {"name": "partition", "type": "string"},
    ],
}
"""What stands behind the first 8 bytes of a directory entry's value (P6)."""


def documents() -> dict[str, str]:
    """Return the text of each file, by its name."""
    schemas = {name: {"version": VERSION, "kind": KINDS[name], **schema} for name, schema in SCHEMAS.items()}
    schemas |= {"DirectoryEntry": ENTRY, "Ref": dict(REF_AVRO)}
    return {f"{name}.avsc": json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}


def main() -> None:
    """Write all files, and delete those of schemas that are gone."""
    FOLDER.mkdir(exist_ok=True)
    made = documents()
    for path in FOLDER.glob("*.avsc"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)
    print(f"{len(made)} schemas written to {FOLDER.name}")


if __name__ == "__main__":
    main()
