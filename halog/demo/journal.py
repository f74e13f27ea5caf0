"""The client's own notes of what it was told: one line per transaction, written before anything else happens.

    17 flight flights-3 17fe...c4 acknowledged

A line goes to the kernel in one write as soon as the answer is there, so the journal survives kill -9 of its writer.
Never read by halog: it is the evidence against which the log is held at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ACKNOWLEDGED, UNKNOWN = "acknowledged", "unknown"


class Note(NamedTuple):
    """One line. `row` is -1 for a probe's write."""

    row: int
    what: str
    partition: str
    tx: bytes
    outcome: str


class Journal:
    """Appends notes; any thread."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, note: Note) -> None:
        """One write call, so lines of several threads never mix."""
        line = f"{note.row} {note.what} {note.partition} {note.tx.hex()} {note.outcome}\n"
        os.write(self._fd, line.encode())

    def close(self) -> None:
        """No more notes."""
        os.close(self._fd)


def read(path: Path) -> Iterator[Note]:
    """The notes; a last line that was cut off by a crash was never acted upon and is left out."""
    with path.open(encoding="ascii") as f:
        for line in f:
            if line.endswith("\n"):
                row, what, partition, tx, outcome = line.split()
                yield Note(int(row), what, partition, bytes.fromhex(tx), outcome)


class Claims(NamedTuple):
    """What the journals claim: transaction ids by outcome, and how many of them are the rows' own (not probes')."""

    acknowledged: set[bytes]
    unknown: set[bytes]
    acknowledged_rows: int
    unknown_rows: int


def claims(notes: Iterable[Note]) -> Claims:
    """Gathered. An id that was unknown and acknowledged later counts as acknowledged."""
    acknowledged: dict[bytes, int] = {}
    unknown: dict[bytes, int] = {}
    for note in notes:
        (acknowledged if note.outcome == ACKNOWLEDGED else unknown)[note.tx] = note.row
    for tx in acknowledged:
        unknown.pop(tx, None)
    return Claims(set(acknowledged), set(unknown), _of_rows(acknowledged), _of_rows(unknown))


def _of_rows(ids: dict[bytes, int]) -> int:
    return sum(row >= 0 for row in ids.values())
