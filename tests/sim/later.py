"""Nodes of two versions in one cluster (U1): a later one writes records that the others do not know.

What the later version writes is a commit under another version byte. Nodes of the earlier one read it as halog reads
what it does not know; the others, and whoever looks at the log from outside, read the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from halog.core import effects as fx, events as ev
from halog.core.log import records
from halog.core.partition import Partition

LATER = records.VERSION + 1
LEVEL: Final = 2
"""What the later version knows. The others know level 1."""


class Versions:
    """Says who reads what, and which transactions are written in the later way."""

    def __init__(self, earlier: Collection[str]) -> None:
        self.earlier = frozenset(earlier)
        """Nodes that know no more than this version of halog."""
        self.written: set[bytes] = set()
        """Ids of transactions whose records are the later version's."""
        self._steps = ""
        """The node whose core runs now; "": none."""
        self._encode, self._decode, self._step = records.encode, records.decode, Partition.step

    def encode(self, record: records.Record) -> bytes:
        data = self._encode(record)
        return bytes((LATER,)) + data[1:] if record.header.tx in self.written else data

    def decode(self, data: bytes) -> records.Record:
        later = self._steps not in self.earlier
        if data[:1] == bytes((LATER,)) and later:
            data = bytes((records.VERSION,)) + data[1:]
        records.LEVEL = LEVEL if later else 1  # type: ignore[misc]
        return self._decode(data)

    def step(self, partition: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        self._steps = partition.state.me.node
        try:
            return self._step(partition, event, now)
        finally:
            self._steps = ""


@contextmanager
def versions(made: Versions) -> Iterator[None]:
    """Within it nodes are of these versions."""
    patches: list[tuple[Any, str, Any]] = [
        (records, "encode", made.encode),
        (records, "decode", made.decode),
        (records, "LEVEL", LEVEL),
        (Partition, "step", lambda self, event, now: made.step(self, event, now)),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for owner, name, new in patches:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in kept:
            setattr(owner, name, old)
