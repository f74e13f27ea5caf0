"""This module reads a TOML file into a `Config`.

It never guesses: an unknown key, a missing one and a value of another type are refused, each with file, key and reason.
The dataclasses of `model` are the grammar; one small reader walks their annotations, and notes what is wrong instead of
stopping at it.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import json
import sys
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from halog.config.addresses import Addresses
from halog.config.check import operators_problems, problem, shared_addresses
from halog.config.field_types import hints
from halog.config.model import Config
from halog.config.multi_site import here
from halog.config.security import DAYS, security_warnings
from halog.config.sites import base_warnings
from halog.config.static import taken_out
from halog.errors import ConfigError


def load_config(source: str | Path | Config) -> Config:
    """Read and validate a configuration. Relative paths are relative to the file. A Config is validated and returned.
    ConfigError names file, key and reason."""
    if isinstance(source, Config):
        return source.validate()
    path = Path(source)
    return parse_config(read_toml(path), name_of(path), path.absolute().parent)


STANDARD: Final = Path("-")
"""Stands for standard input, in the place of a file."""
DEEPEST: Final = 50
"""No configuration nests its tables and lists so deeply, by far."""
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""Text that begins with these bytes has another encoding (Windows calls it Unicode)."""


def name_of(path: Path) -> str:
    """Return the file's name for messages."""
    return "standard input" if path == STANDARD else str(path)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file; ConfigError if it cannot be read as TOML. A byte order mark is skipped, and a line
    may end as on Windows."""
    name = name_of(path)
    try:
        data = _all_of(sys.stdin) if path == STANDARD else path.read_bytes()
        return _shallow(tomllib.loads(data.decode("utf-8-sig")), name)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        what = "UTF-16" if data.startswith(UTF_16) else f"not UTF-8 text (line {line} has byte {data[error.start]:02x})"
        raise ConfigError(f"{name}: is {what}: save it as UTF-8", file=str(path)) from error
    except ValueError as error:  # TOMLDecodeError, or a value that Python refuses: a number of 5,000 digits
        raise ConfigError(f"{name}: is not TOML: {error}", file=str(path)) from error
    except RecursionError as error:
        raise _too_deep(name) from error


def _shallow(table: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the table. ConfigError if it is nested more deeply than any configuration: who walks it has an end."""
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        level = [v for each in level for v in (each.values() if isinstance(each, dict) else each)]
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return table
    raise _too_deep(name)


def _too_deep(name: str) -> ConfigError:
    return ConfigError(
        f"{name}: is nested too deeply: no key of a configuration lies below {DEEPEST} others", file=name
    )


@functools.lru_cache(1)
def _all_of(stream: TextIO) -> bytes:
    """Read all of a stream, once: a command may ask twice for its configuration."""
    return stream.buffer.read()


def parse_config(table: Mapping[str, Any], source: str, directory: Path, *, checked: bool = True) -> Config:
    """Return the configuration from parsed TOML; relative paths are taken from `directory`. `checked`: raise
    ConfigError if it cannot be run."""
    found, problems = _read(table, source, directory)
    if problems or found is None:
        raise problem(source, *problems[0])
    return found.validate() if checked else here(found)


def operators_config(path: Path) -> Config:
    """Return what a file would make of the cluster. Its relative paths stay as they are: they belong to each node's own
    directory. ConfigError if it cannot be run, or cannot be given to nodes."""
    found = parse_config(read_toml(path), name_of(path), Path())
    for key, reason in shared_addresses(found):
        raise problem(name_of(path), key, reason)
    return found


def problems_of(table: Mapping[str, Any], source: str) -> list[tuple[str, str]]:
    """Return (key, reason) of everything that is wrong. A value that depends on one that is missing, or of another
    type, is checked only when that is corrected."""
    found, problems = _read(table, source, Path())
    if found is None:
        return problems
    unread = tuple(key.partition(".partitions")[0] + "." for key, _ in problems if ".partitions" in key)
    judged = (p for p in operators_problems(found) if not p[0].startswith(unread))
    return list(dict.fromkeys([*problems, *judged]))


def warnings_of(table: Mapping[str, Any], source: str) -> list[tuple[str, str]]:
    """Return (key, reason) of everything that is allowed but may not be meant."""
    found, _ = _read(table, source, Path())
    return [] if found is None else [*base_warnings(found), *security_warnings(found)]


def _read(table: Mapping[str, Any], source: str, directory: Path) -> tuple[Config | None, list[tuple[str, str]]]:
    plain, static, problems = taken_out(table)
    reader = _Reader(directory, problems)
    found = reader.section(Config, plain, "")
    if found is _WRONG:
        return None, reader.problems
    policies = {n: dataclasses.replace(p, static=static.get(n, {})) for n, p in found.policies.items()}
    made = dataclasses.replace(
        found, policies=types.MappingProxyType(policies), source=source, written=frozenset(_leaves(table))
    )
    return made, reader.problems


def _leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and above[2:] != ("partitions",):  # a partition placed by hand is one value
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


_KIND_NAMES: Final = {str: "a string", int: "a whole number", bool: "true or false", Path: "a path (a string)"}
_WRONG: Final[Any] = object()
"""Stands for a value that cannot be read."""


@dataclass(frozen=True)
class _Reader:
    """Builds the dataclasses from tables, by their annotations."""

    directory: Path
    problems: list[tuple[str, str]] = field(default_factory=list)

    def wrong(self, where: str, reason: str) -> Any:
        self.problems.append((where, reason))
        return _WRONG

    def section(self, cls: type[Any], table: Any, where: str) -> Any:
        if not isinstance(table, Mapping):
            return self.wrong(where, "must be a table")
        fields = {f.name: f for f in dataclasses.fields(cls) if f.metadata.get("table", True)}
        for key in table:
            if key not in fields:
                self.wrong(_join(where, key), _unknown(key, list(fields)))
        missing = [n for n, f in fields.items() if _required(f) and n not in table]
        for name in missing:
            self.wrong(_join(where, name), "is missing")
        values = {k: self.value(hints(cls)[k], v, _join(where, k)) for k, v in table.items() if k in fields}
        return _WRONG if missing or _WRONG in values.values() else cls(**values)

    def value(self, hint: Any, value: Any, where: str) -> Any:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint == Addresses:
            return self.addresses(value, where)
        if origin is types.UnionType:
            return self.value(args[0], value, where)
        if dataclasses.is_dataclass(hint):
            return self.section(typing.cast(type[Any], hint), value, where)
        if origin is tuple:
            return self.strings(value, where)
        if origin is Mapping:
            if not isinstance(value, Mapping):
                return self.wrong(where, "must be a table")
            entries = {k: self.value(args[1], v, _join(where, k)) for k, v in value.items()}
            return _WRONG if _WRONG in entries.values() else types.MappingProxyType(entries)
        return self.scalar(hint, value, where)

    def scalar(self, kind: type[Any], value: Any, where: str) -> Any:
        if type(value) is datetime.date and where in DAYS:  # TOML has dates of its own, and people write them so
            return value.isoformat()
        if type(value) is not (str if kind is Path else kind):
            return self.wrong(where, f"must be {_KIND_NAMES[kind]}, is {json.dumps(value, default=str)[:80]}")
        if kind is Path and not value:
            return self.wrong(where, "must not be empty")
        return self.directory / Path(value).expanduser() if kind is Path else value

    def addresses(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return value
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            said = json.dumps(value, default=str)[:80]
            return self.wrong(where, f"must be a string, or a list of strings in order of preference, is {said}")
        return tuple(value)

    def strings(self, value: Any, where: str) -> Any:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            return self.wrong(where, "must be a list of strings")
        return tuple(value)


def _required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return "is unknown; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")
