"""The end of a transaction: check what was read, or present all changes to the active node once.

Never decides a conflict and never retries. The theory: nothing read twice is checked (one object is always a
snapshot); several objects read and nothing changed: their versions are validated; changes: one `Work`, whose
acceptance is the commit. Whatever is raised before the backend's `commit` returns means nothing happened, except
OutcomeUnknownError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.backend import Work, Write
from halog.errors import (
    ConflictError,
    DuplicateKeyError,
    HalogError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RefusedError,
)
from halog.transactions import work

if TYPE_CHECKING:
    from halog.transactions.writing import Transaction

COMMITTED, ROLLED_BACK, UNKNOWN = 2, 3, 4


def commit(tx: Transaction) -> None:
    """End `tx` one way or the other; raises why it did not happen."""
    try:
        changes = work.changed(tx.entries.values()) if tx.entries else None
        if not changes:
            if len(tx.entries) > 1 and not tx.local:
                _validate(tx)
        elif tx.local:
            raise RefusedError(
                f'{tx.space.name_of(next(iter(changes)))} was changed in a transaction with read="local"; '
                "its reads may be old, so nothing was written"
            )
        else:
            _write(tx, changes)
    except OutcomeUnknownError:
        tx.finish(UNKNOWN)
        raise
    except HalogError:
        tx.finish(ROLLED_BACK)
        raise
    tx.finish(COMMITTED)


def _validate(tx: Transaction) -> None:
    by_partition: dict[str, list[tuple[bytes, int]]] = {}
    partitions = {e.key: e.partition for e in tx.entries.values()}
    for key, version in work.reads_of(tx.entries.values(), {}):
        by_partition.setdefault(partitions[key], []).append((key, version))
    if sum(map(len, by_partition.values())) < 2:
        return
    for partition, reads in by_partition.items():
        try:
            tx.backend.validate(partition, reads)
        except ConflictError as error:
            raise _named(tx, partition, error)  # noqa: B904 - the same error, told better


def _write(tx: Transaction, changes: dict[bytes, list[Write]]) -> None:
    partition = work.check_one_partition(tx, changes)
    writes = tuple(w for group in changes.values() for w in group)
    work.check_size(tx.space, writes)
    reads = tuple(work.reads_of(tx.entries.values(), changes))
    tx.id = tx.backend.new_transaction_id()
    try:
        tx.lsn = tx.backend.commit(partition, tx.id, Work(reads, writes))
    except (ConflictError, DuplicateKeyError) as error:
        raise _named(tx, partition, error)  # noqa: B904 - the same error, told better
    except RecordTooLargeError as error:
        size, limit = error.evidence.get("size", 0), error.evidence.get("limit", tx.space.max_record_bytes)
        raise work.too_large(tx.space, writes, size, limit) from None
    except OutcomeUnknownError as error:
        error.evidence.setdefault("tx", tx.id.hex())
        raise


def _named(
    tx: Transaction, partition: str, error: ConflictError | DuplicateKeyError
) -> ConflictError | DuplicateKeyError:
    """The same error, naming the object and the partition."""
    error.evidence["partition"] = partition
    key = error.evidence.get("key")
    if isinstance(key, bytes):
        name = tx.space.name_of(key)
        error.evidence["object"] = name
        if isinstance(error, DuplicateKeyError):
            error.message = f"{name} exists"
        else:
            error.message = f"{name}: {error.message}"
    return error
