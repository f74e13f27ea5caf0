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

ACKNOWLEDGED, UNKNOWN, DENIED = "acknowledged", "unknown", "denied"
"""Denied: unknown at first, then settled as "did not happen", and run again under another id."""


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
    """What the journals claim: transaction ids by outcome, and how many acknowledged ones are the rows' own."""

    acknowledged: set[bytes]
    unknown: set[bytes]
    denied: set[bytes]
    acknowledged_rows: int


def claims(notes: Iterable[Note]) -> Claims:
    """Gathered. An id that was unknown at first counts as what it was settled as."""
    ids: dict[str, set[bytes]] = {ACKNOWLEDGED: set(), UNKNOWN: set(), DENIED: set()}
    of_rows = 0
    for note in notes:
        of_rows += note.outcome == ACKNOWLEDGED and note.row >= 0 and note.tx not in ids[ACKNOWLEDGED]
        ids[note.outcome].add(note.tx)
    unsettled = ids[UNKNOWN] - ids[ACKNOWLEDGED] - ids[DENIED]
    return Claims(ids[ACKNOWLEDGED], unsettled, ids[DENIED], of_rows)
