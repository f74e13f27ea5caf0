"""This module writes a `Config` as TOML text that reads back equal.

Python reads TOML but does not write it; this writes exactly the values a `Config` can hold.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halog.config.multi_site import node_toml
from halog.config.security import NOTHING_SET
from halog.config.static import as_toml

if TYPE_CHECKING:
    from halog.config.model import Config


def toml_lines(config: Config) -> Iterator[str]:
    """Yield the lines of the file, of all its sites."""
    config = config.all_sites
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name == "bindings" or (item.name == "discovery" and value):
            yield from _toml_table(item.name, value)
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                values = as_toml(entry) if item.name == "policies" else vars(entry)
                values = node_toml(entry) if item.name == "nodes" else values
                yield from _toml_table(f"{item.name}.{toml_key(name)}", values)
        elif value == NOTHING_SET:
            continue  # so that a halog which does not know the table reads the file
        elif item.metadata.get("table", True):
            yield from _toml_table(item.name, vars(value))


def _toml_table(name: str, values: Mapping[str, Any], *, inline: bool = False) -> Iterator[str]:
    """Yield the lines of a table. `inline`: tables in it keep their place among the other values, whose order
    counts."""
    tables: dict[str, Mapping[str, Any]] = {k: vars(v) for k, v in values.items() if dataclasses.is_dataclass(v)}
    tables |= {k: v for k, v in values.items() if isinstance(v, Mapping) and not inline}
    yield f"[{name}]"
    for key, value in values.items():
        if value is not None and key not in tables:
            yield f"{toml_key(key)} = {_toml_value(value)}"
    yield ""
    for key, table in tables.items():
        if any(value is not None for value in table.values()):
            yield from _toml_table(f"{name}.{toml_key(key)}", table, inline=key == "partitions")


def toml_key(key: str) -> str:
    """Return a key as TOML writes it, quoted where it must be."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _json(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {_toml_value(item)}' for key, item in value.items())} }}"
    plain = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    return _json(plain)


def _json(value: Any) -> str:
    """Return JSON of a value. Its strings, numbers and lists are TOML's, except for escaped surrogates and the raw DEL
    character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
