"""The clients' own notes: one line of JSON per answer, with every write of the transaction, what it found and left.

A line goes to the kernel in one write as soon as the answer is there. Notes of one object stand in the order in which
its writes were answered, since each of them waits for the one before. Never read by halog: it is the evidence.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN

DEPARTURE, AIRCRAFT, AIRPORT = "departure", "aircraft", "airport"

Sums = tuple[int, int, int]
"""Landings or arrivals, miles, minutes."""


class Write(msgspec.Struct, frozen=True, array_like=True):
    """To one object. A departure's is what it found and what it left ("": nothing there); a sum's what it added."""

    what: str
    key: str
    saw: str = ""
    left: str = ""
    added: Sums = (0, 0, 0)


class Note(msgspec.Struct, frozen=True):
    """Of one answer."""

    step: int
    tx: str
    outcome: str
    writes: tuple[Write, ...]


class Journal:
    """Appends notes; any thread."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, note: Note) -> None:
        """One write call, so lines of several threads never mix."""
        os.write(self._fd, msgspec.json.encode(note) + b"\n")

    def close(self) -> None:
        """No more notes."""
        os.close(self._fd)


def read(path: Path) -> Iterator[Note]:
    """The notes; a last line that was cut off was never acted upon and is left out."""
    decoder = msgspec.json.Decoder(Note)
    with path.open("rb") as f:
        for line in f:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


class Claims(NamedTuple):
    """What a site's client was told: the acknowledged writes to each object, in order, and how many transactions it
    never learned the outcome of."""

    writes: dict[tuple[str, str], list[Write]]
    unknown: int

    @property
    def acknowledged(self) -> int:
        """Writes."""
        return sum(len(writes) for writes in self.writes.values())


def claims(notes: Iterable[Note]) -> Claims:
    """Gathered. What was unknown at first counts as what it was settled as."""
    ids: dict[str, set[str]] = {ACKNOWLEDGED: set(), UNKNOWN: set(), DENIED: set()}
    writes: dict[tuple[str, str], list[Write]] = defaultdict(list)
    for note in notes:
        if note.outcome == ACKNOWLEDGED and note.tx not in ids[ACKNOWLEDGED]:
            for write in note.writes:
                writes[write.what, write.key].append(write)
        ids[note.outcome].add(note.tx)
    return Claims(dict(writes), len(ids[UNKNOWN] - ids[ACKNOWLEDGED] - ids[DENIED]))
