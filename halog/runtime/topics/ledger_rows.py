"""This module writes a ledger into the state topic, and reads it: as it was at a marker, whole, in rows of its own.

Their keys name the marker's lsn. So rows that were written for a marker that never came, or half of them, destroy
nothing that the last one needs (trace 32). The last one's rows are deleted once the next one is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from halog.core.log.transactions import Decision, Ledger, UndecidedTransaction
from halog.errors import LogError
from halog.runtime.rpc.pages import pieces
from halog.runtime.store import prepared as ledgers

Keyed = tuple[bytes, bytes | None, dict[str, bytes]]

LEDGER = b"l"

DECISIONS_EACH = 1_000
"""Decisions in a row: about 60 kB of two participants each. A row of decisions with hundreds of participants holds
fewer."""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """Holds a transaction in doubt, or some decisions: (id, decision)."""

    undecided: bytes | None = None
    decided: tuple[tuple[bytes, Decision], ...] = ()


_ROW = msgspec.msgpack.Decoder(_Row)


def rows(ledger: Ledger) -> list[bytes]:
    """Return the rows of a whole ledger; none if it is empty. The horizon stands in the marker."""
    found = [_Row(undecided=ledgers.pack(u)) for u in ledger.undecided.values()]
    for some in pieces(ledger.decided.items(), _size_of, limit=DECISIONS_EACH):
        found.append(_Row(decided=tuple(some)))
    return [msgspec.msgpack.encode(row) for row in found]


def _size_of(item: tuple[bytes, Decision]) -> int:
    return 60 + sum(len(name) + 5 for name in item[1].participants)


def keyed(lsn: int, of: Sequence[bytes]) -> Iterator[Keyed]:
    """Return the rows of the marker at `lsn` under their keys."""
    return ((_key(lsn, n), row, {}) for n, row in enumerate(of))


def gone(lsn: int, count: int) -> Iterator[Keyed]:
    """Return what deletes the rows of an older marker."""
    return ((_key(lsn, n), None, {}) for n in range(count))


def _key(lsn: int, n: int) -> bytes:
    return LEDGER + lsn.to_bytes(8, "big") + n.to_bytes(4, "big")


def restored(topic: Mapping[bytes, bytes | None], lsn: int, count: int, horizon: bytes, mapping: int = 0) -> Ledger:
    """Return the ledger that a marker names. Raises LogError if rows of it are missing."""
    undecided: list[UndecidedTransaction] = []
    decided: list[tuple[bytes, Decision]] = []
    for n in range(count):
        data = topic.get(_key(lsn, n))
        if data is None:
            raise LogError(f"row {n} of the {count} of its snapshot's ledger is missing; restore the state topic")
        row = _ROW.decode(data)
        decided += row.decided
        if row.undecided is not None:
            undecided.append(ledgers.unpack(row.undecided))
    return Ledger(undecided, decided, horizon, mapping)
