"""This module ends a transaction: it checks what was read, or presents all changes to the active nodes once.

It never decides a conflict and never retries. One object is always a snapshot, so a single read is not checked. If
several objects were read and nothing was changed, their versions are validated, unless they are of one moment anyhow
(`read="local"`). Changes become one `Work`, whose acceptance is the commit, or one for each partition, which happen
together (D4). If anything is raised before the backend's `commit` returns, nothing happened, except for
OutcomeUnknownError.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halog.backend import Work, Write
from halog.core.ids import ABSENT
from halog.core.keys.directory import object_key
from halog.core.log.records import UPDATE
from halog.errors import (
    ConflictError,
    DuplicateKeyError,
    HalogError,
    LockedError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RefusedError,
    RemappedError,
    SwitchedError,
)
from halog.transactions import directory, remapped as moving, work_set as work
from halog.transactions.outcomes import told_by, unsettled
from halog.transactions.space import Image
from halog.transactions.untouched_reads import images, untouched

if TYPE_CHECKING:
    from halog.transactions.writing import Transaction

COMMITTED, ROLLED_BACK, UNKNOWN, COMMITTING = 2, 3, 4, 5

WITHDRAWN_S = 0.01
"""Seconds between looks whether a participant has heard that an attempt was withdrawn."""


class CommitRequest(NamedTuple):
    """Holds what is presented to the active node of a partition."""

    partition: str
    work: Work
    after: Sequence[tuple[bytes, Image]]
    """What changed objects will be after the commit, taken together with their bytes: a later assignment to the object
    changes nothing here."""
    works: Mapping[str, Work] | None = None
    """The work by partition, if there is more than one; `work` is that of the deciding partition then."""


def commit(tx: Transaction) -> None:
    """End `tx` one way or the other; raise why it did not happen."""
    presented = prepare(tx)
    if presented is not None:
        finish(tx, presented)


def prepare(tx: Transaction) -> CommitRequest | None:
    """Check what `tx` changes and return it; `tx` has its id then. None: it changes nothing and has ended. If it cannot
    commit this raises, and `tx` has ended."""
    try:
        if tx.looked and not untouched(tx.looked.values(), tx.given):
            tx.hold()
        changes, reads = work.compared(tx.held.values())
        if changes:
            if tx.looked:
                changes, reads = work.compared(tx.entries.values())
            return _presented(tx, changes, reads)
        if len(reads) + len(tx.looked) > 1 and (tx.checked or not tx.local) and not tx.unchanged():
            _validate(tx, reads)
    except HalogError as error:
        _end(tx, error)
        raise
    except BaseException:  # interrupted: nothing has been presented
        tx.finish(ROLLED_BACK)
        raise
    tx.finish(COMMITTED)
    return None


def finish(tx: Transaction, presented: CommitRequest) -> None:
    """Present the changes until they have happened, or cannot."""
    lsns: Mapping[str, int] | None = None
    since = 0.0
    withdrawn: set[str] = set()
    try:
        while True:
            try:
                lsn, lsns = _commit(tx, presented)
                break
            except RemappedError as error:
                since = tx.space.relearn(error, since)
            except LockedError as error:
                _wait_for_own(tx, error, presented, withdrawn, since)
            assert tx.id is not None
            withdrawn.add(tx.id.hex())
            presented = _remapped(tx, presented)
    except HalogError as error:
        _end(tx, error)
        told = _told(tx, presented, error)
        if isinstance(told, DuplicateKeyError) and presented.works is not None:
            told = _lost_race(tx, presented.works) or told
        raise told from None
    except BaseException:  # interrupted: the outcome is unknown, unless nothing was sent
        if tx.id is not None and tx.backend.unsent(tx.id):
            tx.finish(ROLLED_BACK)
        else:
            tx.unsettled = unsettled(presented)
            tx.finish(UNKNOWN)
        raise
    tx.spread = lsns
    happened(tx, presented, lsn)


def _commit(tx: Transaction, presented: CommitRequest) -> tuple[int, Mapping[str, int] | None]:
    assert tx.id is not None
    if presented.works is None:
        return tx.backend.commit(presented.partition, tx.id, presented.work), None
    lsns = tx.backend.commit_over(tx.id, presented.works)
    return lsns[presented.partition], lsns


def _wait_for_own(
    tx: Transaction, error: LockedError, presented: CommitRequest, withdrawn: Collection[str], since: float
) -> None:
    """Wait while an attempt of this very transaction holds the object: the attempt is `withdrawn`, and the participant
    has not heard that yet. Raise the error if another transaction holds it, or if this has gone on `since` for longer
    than any answer may take."""
    limit_s = tx.backend.deadline_of(error.evidence.get("partition", presented.partition))
    if error.evidence.get("tx") not in withdrawn or time.monotonic() - since > limit_s:
        raise error
    time.sleep(WITHDRAWN_S)


def _remapped(tx: Transaction, presented: CommitRequest) -> CommitRequest:
    """Return the changes routed anew (T8). They were routed by a mapping that is not served any more, so none has
    happened."""
    works = {presented.partition: presented.work} if presented.works is None else presented.works
    return _over(tx, moving.routed(tx, works), presented.after)


def happened(tx: Transaction, presented: CommitRequest, lsn: int) -> None:
    """Note that it is committed, and keep what its objects are now, so that the next read need not decode them."""
    tx.lsn, tx.home = lsn, presented.partition
    for key, image in presented.after:
        tx.space.remember(key, image, lsn)
    tx.finish(COMMITTED)


def unanswered(tx: Transaction, partition: str) -> OutcomeUnknownError:
    """Return the error for a commit that got no answer in time, presented on this node; the transaction has ended."""
    error = OutcomeUnknownError(
        "nobody answered in time; the transaction may have happened",
        partition=partition,
        epoch=tx.backend.epoch_of(partition),
    )
    _end(tx, error)
    return error


def _end(tx: Transaction, error: HalogError) -> None:
    if isinstance(error, OutcomeUnknownError):
        error.evidence.setdefault("tx", None if tx.id is None else tx.id.hex())
        tx.unsettled = told_by(error.evidence)
        tx.finish(UNKNOWN)
    else:
        tx.finish(ROLLED_BACK)


def _told(tx: Transaction, presented: CommitRequest, error: HalogError) -> HalogError:
    """Return the error with the names that the application knows."""
    partition = presented.partition
    if isinstance(error, OutcomeUnknownError):
        error.evidence.setdefault("partition", partition)  # `Node.outcome` asks there
    if presented.works is not None:
        partition = error.evidence.get("partition", partition)
    if isinstance(error, ConflictError) and error.evidence.get("expected") == ABSENT:
        key = error.evidence.get("key")
        if moving.reserved(presented.works or {partition: presented.work}, key, partition):
            error = DuplicateKeyError(error.message, key=key)
    if isinstance(error, ConflictError | DuplicateKeyError):
        return _named(tx, partition, error)
    if isinstance(error, RecordTooLargeError) and "frame" not in error.evidence:
        its = presented.work if presented.works is None else presented.works[partition]
        return work.named(tx.space, its.writes, error, () if presented.works is None else its.reads)
    return error


def _lost_race(tx: Transaction, works: Mapping[str, Work]) -> HalogError | None:
    """Return the conflict that explains a duplicate key, or None if all versions read still held when the key existed.

    A partition that met a duplicate knows nothing of what was read in the others, and the transaction that made that
    object may have changed them. What cannot be checked counts as old.
    """
    for partition, its in works.items():
        reads = [(k, v) for k, v in _rests_on(its) if v != ABSENT or not moving.reserved(works, k, partition)]
        try:
            if reads:
                tx.backend.validate(partition, reads, mapping=its.mapping)
        except LockedError as error:
            if tx.id is None or error.evidence.get("tx") != tx.id.hex():  # its own vote proves: still as it was read
                return _named(tx, partition, error)
        except ConflictError as error:
            return _named(tx, partition, error)
        except HalogError as error:
            return ConflictError(
                f"a key exists in another partition, and whether what was read in {partition} still held is not known "
                f"({error}); run the transaction again",
                partition=partition,
                settled_lsn=0,
            )
    return None


def _rests_on(its: Work) -> Iterator[tuple[bytes, int]]:
    """Yield every version it has read in one partition, those that it replaces included."""
    yield from its.reads
    for key, writes in work.by_key(its.writes).items():
        if writes[0].replaced != ABSENT:
            yield key, writes[0].replaced


def _presented(tx: Transaction, changes: Mapping[bytes, Sequence[Write]], reads: Mapping[bytes, int]) -> CommitRequest:
    if tx.local:
        raise RefusedError(
            f'{tx.space.name_of(next(iter(changes)))} was changed in a transaction with read="local"; '
            "its reads may be old, so nothing was written"
        )
    works: Mapping[str, Work] = work.spread(tx, changes, reads)
    if tx.backend.mapped.listed:
        works = directory.entered(tx, works)
    space, entries, mapped = tx.space, tx.entries, tx.mapped
    if mapped.versions or mapped is not tx.backend.mapped:
        works = moving.presented(tx, works)
    if len(works) > 1:
        return _presented_over(tx, works)
    after: list[tuple[bytes, Image]] = []
    for key, group in changes.items():
        for w in group:
            entry = entries[key]
            if w.op == UPDATE and entry.obj is not None and entry.image is not None and w.value is not None:
                image = space.after(entry.image, entry.obj, w.value)
                if image is not None:
                    after.append((key, image))
    if tx.durability is not None and tx.durability.early:
        after.clear()  # the log may give this lsn to another record
    return _over(tx, works, after)


def _over(tx: Transaction, works: Mapping[str, Work], after: Sequence[tuple[bytes, Image]]) -> CommitRequest:
    """Return the changes under a new id, in as many partitions as they take."""
    if len(works) > 1:
        return _presented_over(tx, works)
    partition, its = next(iter(_sited(tx, works).items()))
    work.check_size(tx.space, its.writes)
    if tx.durability is not None:
        its = msgspec.structs.replace(its, durability=tx.durability)
    tx.id = tx.backend.new_transaction_id()
    tx.state = COMMITTING
    return CommitRequest(partition, its, after)


def _presented_over(tx: Transaction, works: Mapping[str, Work]) -> CommitRequest:
    """Return the changes for several partitions. Such records always wait for the log, which is more than a transaction
    may ask for."""
    if tx.durability is not None and tx.durability.flushed:
        raise RefusedError(
            f"the transaction is over {len(works)} partitions ({', '.join(sorted(works))}), and only one within a "
            'partition may ask for remote="SYNC"; nothing was done',
        )
    works = _sited(tx, works)
    for its in works.values():
        work.check_size(tx.space, its.writes)
    tx.id = tx.backend.new_transaction_id()
    tx.state = COMMITTING
    first = min(works)
    return CommitRequest(first, works[first], (), works)


def _sited(tx: Transaction, works: Mapping[str, Work]) -> Mapping[str, Work]:
    """Mark each work for the site that served its partition when the transaction began (M5)."""
    sites = tx.mapped.sites
    if not sites:
        return works
    return {p: msgspec.structs.replace(its, site=sites.get(p)) for p, its in works.items()}


def _validate(tx: Transaction, reads: Mapping[bytes, int]) -> None:
    since = 0.0
    while True:
        try:
            _validate_once(tx, reads)
            return
        except RemappedError as error:
            since = tx.space.relearn(error, since)


def _validate_once(tx: Transaction, reads: Mapping[bytes, int]) -> None:
    parts = _by_partition(tx, reads)
    if tx.mapped.versions or tx.mapped is not tx.backend.mapped:
        parts = moving.read_only(tx, parts)
    for partition, here in parts.items():
        mapping = tx.mapped.versions.get(partition, 0)
        least = 0 if tx.least is None else _least(tx, partition, len(parts))
        try:
            tx.backend.validate(partition, here.items(), least=least, mapping=mapping)
        except RemappedError:
            raise
        except ConflictError as error:
            raise _named(tx, partition, error)  # noqa: B904 - the same error, with names
    if tx.mapped is not tx.backend.mapped:
        _check_sites(tx, parts)


def _check_sites(tx: Transaction, partitions: Iterable[str]) -> None:
    """Raise SwitchedError unless each partition is served by the site where it was read."""
    was, now = tx.mapped.sites, tx.backend.mapped.sites
    for partition in partitions:
        if was.get(partition) != now.get(partition):
            raise SwitchedError(
                f"another site serves partition {partition} than when the transaction began; run it again",
                partition=partition,
                settled_lsn=0,
            )


def _least(tx: Transaction, partition: str, of: int) -> int:
    """Return the lsn that validation behind a barrier needs. In one partition it is that of its reads; with several,
    each must still hold behind the last read of all, so there is a new barrier."""
    return tx.backend.barrier(partition) if of > 1 else (tx.least or {}).get(partition, 0)


def _by_partition(tx: Transaction, reads: Mapping[bytes, int]) -> Mapping[str, Mapping[bytes, int]]:
    """Return the versions read by partition, objects that were only looked at included."""
    held = tx.held
    found: dict[str, dict[bytes, int]] = {}
    for key, version in reads.items():
        found.setdefault(held[key].partition, {})[key] = version
    for image in images(tx.given):
        found.setdefault(image.partition, {})[image.key] = image.version
    return found


def _named(
    tx: Transaction, partition: str, error: ConflictError | DuplicateKeyError
) -> ConflictError | DuplicateKeyError:
    """Return the same error, with the names of the object and the partition."""
    error.evidence["partition"] = partition
    key = error.evidence.get("key")
    if isinstance(key, bytes):
        name = tx.space.name_of(key)
        error.evidence["key"], error.evidence["object"] = object_key(key), name
        if isinstance(error, DuplicateKeyError):
            error.message = f"{name} exists"
        else:
            error.message = f"{name}: {error.message}"
    return error
