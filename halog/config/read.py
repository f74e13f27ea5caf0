"""From a TOML file to a `Config`.

Never guesses: an unknown key, a missing one and a value of another type are refused, each with file, key and reason.
The theory: the dataclasses of `model` are the grammar; one small reader walks their annotations.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from halog.config.check import problem
from halog.config.model import Config
from halog.config.static import WrongPartitionsError, taken_out
from halog.errors import ConfigError


def load_config(source: str | Path | Config) -> Config:
    """Read and validate. Relative paths are relative to the file. A Config is validated and returned as it is."""
    if isinstance(source, Config):
        return source.validate()
    path = Path(source)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", file=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}", file=str(path)) from error
    return parse_config(table, str(path), path.absolute().parent)


def parse_config(table: Mapping[str, Any], source: str, directory: Path) -> Config:
    """The configuration from parsed TOML; relative paths are taken from `directory`."""
    try:
        plain, static = taken_out(table)
    except WrongPartitionsError as error:
        raise problem(source, error.key, error.reason) from error
    found = _Reader(source, directory).section(Config, plain, "")
    policies = {n: dataclasses.replace(p, static=static.get(n, {})) for n, p in found.policies.items()}
    return dataclasses.replace(found, policies=types.MappingProxyType(policies), source=source).validate()


S = TypeVar("S")
_NOT_KEYS: Final = ("source", "static")
"""Fields that stand under another key, or under none."""
_KIND_NAMES: Final = {str: "a string", int: "a whole number", bool: "true or false", Path: "a path (a string)"}


@dataclass(frozen=True)
class _Reader:
    """Builds the dataclasses from tables, by their annotations."""

    source: str
    directory: Path

    def section(self, cls: type[S], table: Any, where: str) -> S:
        if not isinstance(table, Mapping):
            raise problem(self.source, where, "must be a table")
        hints = typing.get_type_hints(cls)
        fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls)) if f.name not in _NOT_KEYS}
        for key in table:
            if key not in fields:
                raise problem(self.source, _join(where, key), _unknown(key, list(fields)))
        for name, item in fields.items():
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if required and name not in table:
                raise problem(self.source, _join(where, name), "is missing")
        return cls(**{key: self.value(hints[key], value, _join(where, key)) for key, value in table.items()})

    def value(self, hint: Any, value: Any, where: str) -> Any:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is types.UnionType:
            return self.value(args[0], value, where)
        if dataclasses.is_dataclass(hint):
            return self.section(typing.cast(type[Any], hint), value, where)
        if origin is tuple:
            return self.strings(value, where)
        if origin is Mapping:
            if not isinstance(value, Mapping):
                raise problem(self.source, where, "must be a table")
            return types.MappingProxyType({k: self.value(args[1], v, _join(where, k)) for k, v in value.items()})
        return self.scalar(hint, value, where)

    def scalar(self, kind: type[Any], value: Any, where: str) -> Any:
        if type(value) is not (str if kind is Path else kind):
            raise problem(self.source, where, f"must be {_KIND_NAMES[kind]}, is {json.dumps(value, default=str)[:80]}")
        if kind is Path and not value:
            raise problem(self.source, where, "must not be empty")
        return self.directory / Path(value).expanduser() if kind is Path else value

    def strings(self, value: Any, where: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise problem(self.source, where, "must be a list of strings")
        return tuple(value)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return "is unknown; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")
