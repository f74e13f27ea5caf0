"""The last line of an export is its checksum line. It says how many objects of which types stand above it, and the
checksum of their lines.

An import that finds it knows that it has the whole file. Each line of an export also has its number. So a file that has
lost its end is told from one that somebody has written by hand.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import IO, Any

import msgspec

from halog.errors import RecordFormatError

UNVERIFIED = "--unverified imports what is there"


class Sum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds the values of the checksum line; the field `export` marks it as one."""

    export: str
    objects: int
    types: dict[str, int]
    sha256: str


COMPLETE = "complete"


class ChecksumWriter:
    """Writes the lines of an export, and the checksum line at the end."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.types: Counter[str] = Counter()

    def write(self, type_name: str, document: dict[str, Any]) -> None:
        """Write one object."""
        self.types[type_name] += 1
        text = json.dumps({"number": self.types.total(), **document}, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._hash.update(text.encode())
        self._out.write(text)

    def end(self) -> None:
        """Write the checksum line: no object follows."""
        made = Sum(COMPLETE, self.types.total(), dict(self.types), self._hash.hexdigest())
        self._out.write(json.dumps(msgspec.to_builtins(made), ensure_ascii=False, separators=(",", ":")) + "\n")


def is_sum(document: Any) -> bool:
    """Is this line of a file of objects its checksum line?"""
    return isinstance(document, dict) and "export" in document and "type" not in document


class ChecksumCheck:
    """Follows the lines of a file as they are read, and says at the end whether they are what was exported. Without
    `strict` it only counts them."""

    def __init__(self, source: object, *, strict: bool) -> None:
        self._source = source
        self._strict = strict
        self._hash = hashlib.sha256()
        self._sum: Sum | None = None
        self._numbered = 0
        """How many lines have a number."""
        self.lines = 0
        """How many lines have an object."""
        self.cut_line = 0
        """The number of the last line, if only its beginning is there; else 0."""

    @property
    def verified(self) -> bool:
        """Is it known that the file is complete?"""
        return self._strict and self._sum is not None

    def object(self, number: int, raw: bytes, ordinal: int) -> None:
        """Take a line with an object, the `ordinal`-th of its export; 0 if the line has no number.
        RecordFormatError."""
        self.lines += 1
        self._numbered += ordinal > 0
        self._hash.update(raw)
        if not self._strict:
            return
        if self._sum is not None:
            raise self._wrong(f"line {number} stands behind the checksum line, which is the last one of an export")
        if ordinal and ordinal != self.lines:
            raise self._wrong(f"line {number} is object {ordinal} of its export, and object {self.lines} of the file")

    def sum(self, document: Any) -> None:
        """Take the checksum line. RecordFormatError."""
        if self._strict and self._sum is not None:
            raise self._wrong("it has two checksum lines: two exports in one file")
        try:
            self._sum = msgspec.convert(document, Sum)
        except msgspec.ValidationError as error:
            raise self._wrong(f"its checksum line is not valid: {error}") from error

    def cut(self, number: int, error: RecordFormatError) -> None:
        """Take note that the last line is cut: it is no document, and has no end. It raises `error` if `strict`."""
        if self._strict:
            error.message = f"{error.message}; the file ends within this line; nothing was imported ({UNVERIFIED})"
            raise error
        self.cut_line = number

    def end(self) -> None:
        """Check that the lines are all of an export, or of a file without a checksum line. RecordFormatError."""
        if not self.lines and self._sum is None:
            raise RecordFormatError(
                f"{self._source}: the file is empty: it has not even the checksum line, the last line of every export; "
                "nothing was imported"
            )
        if not self._strict:
            return
        if self._sum is None:
            if self._numbered:
                raise self._wrong("it is cut: the checksum line is missing, the last line of every export")
        elif self._sum.objects != self.lines:
            raise self._wrong(f"it has {self.lines:,} of the {self._sum.objects:,} objects that were exported")
        elif self._sum.sha256 != self._hash.hexdigest():
            raise self._wrong("it was changed since it was exported: its checksum differs")

    def _wrong(self, why: str) -> RecordFormatError:
        return RecordFormatError(f"{self._source}: {why}; nothing was imported ({UNVERIFIED})", file=str(self._source))
