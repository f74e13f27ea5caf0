"""This module makes the rows of a copy that is taken from the state topic, as its store gets them, all at once."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from halog.core.ids import TX_BYTES
from halog.core.log.transactions import Ledger
from halog.runtime.store import prepared as ledgers
from halog.runtime.store.encoding import StoredPosition

OUTCOME = struct.Struct(f">Q{TX_BYTES}s")
"""An lsn, a transaction id."""
EACH = 1_000
"""Outcomes stored together: 24 kB."""
_LSN_BYTES = 8


def items(
    prefix: bytes,
    objects: Mapping[bytes, bytes],
    outcomes: Sequence[tuple[bytes, int]],
    position: StoredPosition,
    ledger: Ledger,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield all items of the copy, ascending. A restore runs at this speed. The hash of the objects is not known: some
    of them may be newer than the position."""
    position = msgspec.structs.replace(position, state_hash=b"")
    for key in sorted(objects):
        yield prefix + key, objects[key]
    decided, undecided = ledgers.all_items(prefix, ledger)
    yield from decided
    yield prefix + b"p", msgspec.msgpack.encode(position)
    yield from undecided
    for at in range(0, len(outcomes), EACH):
        block = b"".join([OUTCOME.pack(lsn, tx) for tx, lsn in outcomes[at : at + EACH]])
        yield prefix + b"t" + block[:_LSN_BYTES], block
