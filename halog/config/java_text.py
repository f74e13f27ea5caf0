"""This module writes text as Java reads it: properties files, and the settings of login modules (JAAS).

A password may hold any character but a zero byte. Whatever it holds, it stays one value of one key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_IN_PROPERTIES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_KEYS: Final = {**_IN_PROPERTIES, " ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
_IN_QUOTES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def properties(values: Mapping[str, object]) -> str:
    """Return a properties file. It is ASCII, since Java reads it as Latin-1."""
    return "".join(f"{_escaped(key, _IN_KEYS)}={_value(str(value))}\n" for key, value in values.items())


def _value(text: str) -> str:
    rest = text.lstrip(" ")  # a space in front would be taken for one behind the equals sign
    return "\\ " * (len(text) - len(rest)) + _escaped(rest, _IN_PROPERTIES)


def _escaped(text: str, known: Mapping[str, str]) -> str:
    return "".join(known.get(c) or (c if " " <= c <= "~" else _units(c)) for c in text)


def _units(char: str) -> str:
    """Return a character as Java counts it: those beyond 16 bits are two."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))


def jaas(module: str, options: Mapping[str, str]) -> str:
    """Return the setting `sasl.jaas.config`: one login module that is required, and its options."""
    said = "".join(f' {key}="{_quoted(value)}"' for key, value in options.items())
    return f"{module} required{said};"


def _quoted(text: str) -> str:
    return "".join(_IN_QUOTES.get(c, c) for c in text)
