"""This module keeps a client's own notes of what it was told: one line of JSON per answer, written before anything else
happens.

A line goes to the kernel in one write as soon as the answer is there, so the journal survives kill -9 of its writer.
Notes of one object stand in the order in which its writes were answered, since each write waits for the one before.
halog never reads a journal: it is the evidence against which logs and objects are held at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

ACKNOWLEDGED, UNKNOWN, DENIED = "acknowledged", "unknown", "denied"
"""Denied: the outcome was unknown at first, then settled as "did not happen"; the work was run again under another
id."""
PROBE: Final = -1
"""The number of a note that belongs to a probe's write, not to a row."""

Sums = tuple[int, int, int]
"""Landings or arrivals, miles, minutes."""


class ObjectWrite(msgspec.Struct, frozen=True, array_like=True):
    """Holds one write to one object. Of a departure it has the state found and the state left ("": no object); of a sum
    it has what was added."""

    what: str
    key: str
    saw: str = ""
    left: str = ""
    added: Sums = (0, 0, 0)


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds one answer: the number of the row or step, the transaction's id in hex, and the outcome."""

    number: int
    tx: str
    outcome: str
    partition: str = ""
    """The partition that decides."""
    writes: tuple[ObjectWrite, ...] = ()
    """Every write of the transaction, where the judge needs them."""


class Journal:
    """A `Journal` appends notes to a file. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, note: Note) -> None:
        """Append a note with one write call, so that lines of several threads never mix."""
        os.write(self._fd, msgspec.json.encode(note) + b"\n")

    def close(self) -> None:
        """Close the file; no more notes can follow."""
        os.close(self._fd)


def read(path: Path) -> Iterator[Note]:
    """Yield the notes of a journal. A last line that a crash cut off was never acted upon; it is left out."""
    decoder = msgspec.json.Decoder(Note)
    with path.open("rb") as f:
        for line in f:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


class NotedIds(NamedTuple):
    """Holds transaction ids by outcome. An id that was unknown at first counts as what it was settled as."""

    acknowledged: set[str]
    unknown: set[str]
    denied: set[str]


def ids_of(notes: Iterable[Note]) -> NotedIds:
    """Return the ids of all noted transactions."""
    ids: dict[str, set[str]] = {ACKNOWLEDGED: set(), UNKNOWN: set(), DENIED: set()}
    for note in notes:
        ids[note.outcome].add(note.tx)
    return NotedIds(ids[ACKNOWLEDGED], ids[UNKNOWN] - ids[ACKNOWLEDGED] - ids[DENIED], ids[DENIED])


class Claims(NamedTuple):
    """Holds what the journals claim: transaction ids by outcome, and how many acknowledged ones belong to rows."""

    acknowledged: set[bytes]
    unknown: set[bytes]
    denied: set[bytes]
    acknowledged_rows: int


def claims(notes: Iterable[Note]) -> Claims:
    """Return what these notes claim."""
    notes = list(notes)
    of_rows = {note.tx for note in notes if note.outcome == ACKNOWLEDGED and note.number != PROBE}
    acknowledged, unknown, denied = ({bytes.fromhex(tx) for tx in ids} for ids in ids_of(notes))
    return Claims(acknowledged, unknown, denied, len(of_rows))
