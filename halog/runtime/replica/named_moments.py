"""This module keeps moments of a copy that transactions elsewhere read at (R5): by name, for as long as they may come
back.

A node keeps nothing of the readers, so a name is all that a transaction has of its moment. A name is unknown if its
moment was let go of, or is of another run of the copy. This module decides nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping

import msgspec

from halog.backend import CommittedObject
from halog.core.replica.moments import LIMIT, Moment
from halog.errors import ConflictError
from halog.runtime.support.clock import monotonic_ms

KEPT_MS = 60_000
"""How long a moment is kept after the last question: a transaction that asks less often gets an error."""

SWEPT_MS = 1_000

AGAIN = "; nothing was done; run the transaction again"

MANY = 20_000
"""Moments kept at once; the oldest go first."""


class ReadMoment(msgspec.Struct, eq=False):
    """Holds a moment at which transactions read."""

    moment: Moment[CommittedObject]
    doubted: Mapping[bytes, int]
    """What transactions in doubt would change at that moment, by index key, with the lsn since which it was in
    doubt."""

    def lacks(self, under: bytes, after: int, *, prefix: bool = False) -> bool:
        """Say whether a session that has seen `after` may have seen more of an object under this key, or prefix of
        keys."""
        if not after or not self.doubted:
            return False
        asked = [key for key in self.doubted if key.startswith(under)] if prefix else [under]
        return any(self.doubted.get(key, after + 1) <= after for key in asked)


class NamedMoments:
    """Keeps the named moments of one copy. Thread-safe."""

    def __init__(self) -> None:
        self._run = os.urandom(8)
        self._counts = itertools.count(1)
        self._lock = threading.Lock()
        self._kept: dict[bytes, ReadMoment] = {}
        """In the order in which they were taken up."""
        self._asked: dict[bytes, int] = {}
        self._newest = b""
        self._swept = 0

    def name(self, taken: ReadMoment, *, alone: bool = False) -> bytes:
        """Keep a moment, and return the name that others ask for it by. `alone`: only one reader asks, and says when it
        is done (`let_go`)."""
        now = monotonic_ms()
        with self._lock:
            newest, name = self._kept.get(self._newest), self._newest
            if alone or newest is None or newest.moment is not taken.moment:
                name = self._run + next(self._counts).to_bytes(8, "big")
                self._newest = self._newest if alone else name
                self._kept[name] = taken
                if len(self._kept) > MANY:
                    self._drop(next(iter(self._kept)))
            self._asked[name] = now
        return name

    def __len__(self) -> int:
        """Return how many moments are kept."""
        return len(self._kept)

    def let_go(self, name: bytes) -> None:
        """Let go of a moment: its only reader is done with it."""
        with self._lock:
            if name in self._kept:
                self._drop(name)

    def find(self, name: bytes) -> ReadMoment | None:
        """Return the moment of this name, and keep it a while longer."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._asked[name] = monotonic_ms()
            return found

    def sweep(self) -> None:
        """Let go of those that nobody has asked for in a while."""
        now = monotonic_ms()
        if not self._kept or now - self._swept < SWEPT_MS:
            return
        with self._lock:
            self._swept = now
            for name in [name for name, asked in self._asked.items() if now - asked >= KEPT_MS]:
                self._drop(name)

    def _drop(self, name: bytes) -> None:
        del self._kept[name], self._asked[name]


def over(partition: str) -> ConflictError:
    """Return the error for a moment since which too much was changed."""
    return ConflictError(
        f"more than {LIMIT >> 20} MB of objects of {partition} were changed since the transaction began to read it, "
        f"and what they were then is not kept{AGAIN}",
        partition=partition,
        settled_lsn=0,
    )


def unknown(partition: str) -> ConflictError:
    """Return the error for a name that nobody knows."""
    return ConflictError(
        f"{partition} does not keep any more what objects were when the transaction began to read it: another node is "
        f"active there, or the transaction did not read there for too long{AGAIN}",
        partition=partition,
        settled_lsn=0,
    )


def undecided(partition: str) -> ConflictError:
    """Return the error for a session that has seen what came after the moment."""
    return ConflictError(
        f"a transaction over several partitions was decided in {partition} only after this one began to read it, and "
        f"`after` asks to see that{AGAIN}",
        partition=partition,
        settled_lsn=0,
    )
