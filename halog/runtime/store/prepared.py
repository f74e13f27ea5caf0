"""This module keeps a copy's ledger in the local store: transactions in doubt and decisions, written with the objects
they lead to.

Keys, behind the first 8 bytes of the log id:
    q <transaction id>   in doubt: offset (8), the `Prepare` as the log has it
    o <transaction id>   decided: MessagePack [commit, lsn, offset, first, participants]
Horizon and mapping version stand with the position. Whatever else a copy stores is in
`halog.runtime.store.object_table`.
"""

from __future__ import annotations

import msgspec

from halog.core.log import records
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.transactions import (
    Applied,
    DecidedTransaction,
    Decision,
    ForgottenDecisions,
    Ledger,
    PreparedTransaction,
    UndecidedTransaction,
)
from halog.errors import LaterRecordError
from halog.ports import Snapshot
from halog.runtime.store.encoding import StoredPosition

OFFSET_BYTES = 8
_DECISION = msgspec.msgpack.Decoder(Decision)

Item = tuple[bytes, bytes | None]


def pack(undecided: UndecidedTransaction) -> bytes:
    """Encode a transaction in doubt as it is stored, and as it is written to the state topic."""
    return undecided.offset.to_bytes(OFFSET_BYTES, "big") + records.encode(undecided.prepare)


def unpack(data: bytes) -> UndecidedTransaction:
    """Decode what `pack` encoded. LaterRecordError if a later version of halog wrote it."""
    try:
        record = records.decode(data[OFFSET_BYTES:])
    except LaterRecordError as error:
        raise error.at("a transaction in doubt includes") from None
    assert isinstance(record, records.Prepare)
    return UndecidedTransaction(record, int.from_bytes(data[:OFFSET_BYTES], "big"))


def items_for(prefix: bytes, meant: Applied) -> list[Item]:
    """Return the store's changes of the ledger for one accepted record."""
    match meant:
        case PreparedTransaction(undecided=undecided):
            return [(prefix + b"q" + undecided.tx, pack(undecided))]
        case DecidedTransaction(header=header, decision=decision):
            return [(prefix + b"q" + header.tx, None), (prefix + b"o" + header.tx, msgspec.msgpack.encode(decision))]
        case ForgottenDecisions(ids=ids):
            return [(prefix + b"o" + tx, None) for tx in ids]
        case AppliedMerge():
            return _merged(prefix, meant)
        case _:
            return []


def _merged(prefix: bytes, meant: AppliedMerge) -> list[Item]:
    """Return the changes for a merge: what was in doubt on a branch, or decided on one only, is dropped, or known as
    the merge says."""
    items: list[Item] = [(prefix + kind + tx, None) for tx in meant.forgotten for kind in (b"q", b"o")]
    items += [(prefix + b"q" + tx, None) for tx, _ in meant.decided]
    made = ((tx, Decision(commit, meant.header.lsn, meant.offset)) for tx, commit in meant.decided)
    return [*items, *((prefix + b"o" + tx, msgspec.msgpack.encode(d)) for tx, d in made)]


def load(source: Snapshot, prefix: bytes, position: StoredPosition | None) -> Ledger:
    """Return the ledger that the store holds. Horizon and mapping stand with the position; decisions are in the order
    they were taken."""
    undecided = [unpack(data) for _, data in source.scan(prefix + b"q")]
    n = len(prefix) + 1
    decided = [(key[n:], _DECISION.decode(data)) for key, data in source.scan(prefix + b"o")]
    decided.sort(key=lambda item: item[1].lsn)
    if position is None:
        return Ledger(undecided, decided)
    return Ledger(undecided, decided, position.settled, position.mapping)


def all_items(prefix: bytes, ledger: Ledger) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return a whole ledger as a restore stores it: decisions, and what is in doubt, each ascending by key."""
    decided = [(prefix + b"o" + tx, msgspec.msgpack.encode(d)) for tx, d in sorted(ledger.decided.items())]
    return decided, [(prefix + b"q" + tx, pack(ledger.undecided[tx])) for tx in sorted(ledger.undecided)]
