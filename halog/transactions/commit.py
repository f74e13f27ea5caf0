"""The end of a transaction: check what was read, or present all changes to the active nodes once.

Never decides a conflict and never retries. The theory: nothing read twice is checked (one object is always a
snapshot); several objects read and nothing changed: their versions are
validated, unless they are of one moment anyhow (`read="local"`); changes: one `Work`, whose
acceptance is the commit, or one for each partition, which happen together (D4). Whatever is raised before the
backend's `commit` returns means nothing happened, except OutcomeUnknownError.
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
"""Between looks whether a participant has heard that an attempt was withdrawn."""


class Presented(NamedTuple):
    """What is presented to the active node of a partition."""

    partition: str
    work: Work
    after: Sequence[tuple[bytes, Image]]
    """What changed objects will be then, taken together with their bytes: who assigns to them later changes nothing."""
    works: Mapping[str, Work] | None = None
    """By partition, if there is more than one; `work` is all of it then."""


def commit(tx: Transaction) -> None:
    """End `tx` one way or the other; raises why it did not happen."""
    presented = prepare(tx)
    if presented is not None:
        finish(tx, presented)


def prepare(tx: Transaction) -> Presented | None:
    """What `tx` changes, checked; it has its id then. None: it changes nothing and has ended. Raises, and has ended,
    if it cannot commit."""
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


def finish(tx: Transaction, presented: Presented) -> None:
    """Present it until it has happened, or has not."""
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
    except BaseException:  # interrupted: nobody knows, unless nobody was asked
        if tx.id is not None and tx.backend.unsent(tx.id):
            tx.finish(ROLLED_BACK)
        else:
            tx.unsettled = unsettled(presented)
            tx.finish(UNKNOWN)
        raise
    tx.spread = lsns
    happened(tx, presented, lsn)


def _commit(tx: Transaction, presented: Presented) -> tuple[int, Mapping[str, int] | None]:
    assert tx.id is not None
    if presented.works is None:
        return tx.backend.commit(presented.partition, tx.id, presented.work), None
    lsns = tx.backend.commit_over(tx.id, presented.works)
    return lsns[presented.partition], lsns


def _wait_for_own(
    tx: Transaction, error: LockedError, presented: Presented, withdrawn: Collection[str], since: float
) -> None:
    """An attempt of this very transaction holds the object: it is `withdrawn`, and the participant has not heard that
    yet. Raises the error if another transaction holds it, or if this has gone on `since` for longer than any answer
    may take."""
    limit_s = tx.backend.deadline_of(error.evidence.get("partition", presented.partition))
    if error.evidence.get("tx") not in withdrawn or time.monotonic() - since > limit_s:
        raise error
    time.sleep(WITHDRAWN_S)


def _remapped(tx: Transaction, presented: Presented) -> Presented:
    """It was routed by a mapping that is served no more, so nothing of it has happened: routed anew (T8)."""
    works = {presented.partition: presented.work} if presented.works is None else presented.works
    return _over(tx, moving.routed(tx, works), presented.after)


def happened(tx: Transaction, presented: Presented, lsn: int) -> None:
    """It is committed; what its objects are now need not be decoded when they are read next."""
    tx.lsn, tx.home = lsn, presented.partition
    for key, image in presented.after:
        tx.space.remember(key, image, lsn)
    tx.finish(COMMITTED)


def unanswered(tx: Transaction, partition: str) -> OutcomeUnknownError:
    """Nobody said in time what became of it, presented here; the error to raise."""
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


def _told(tx: Transaction, presented: Presented, error: HalogError) -> HalogError:
    """The error, naming what the application knows."""
    partition = presented.partition
    if isinstance(error, OutcomeUnknownError):
        error.evidence.setdefault("partition", partition)  # whoever asks what became of it asks there
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
    """Why the key may exist only because what was read is old, if so: a partition that met a duplicate knows nothing of
    what was read in the others, and whoever made that object may have changed them. What nobody can check counts as
    old. None: all of it still was as it was read when the key existed."""
    for partition, its in works.items():
        reads = [(k, v) for k, v in _rests_on(its) if v != ABSENT or not moving.reserved(works, k, partition)]
        try:
            if reads:
                tx.backend.validate(partition, reads, mapping=its.mapping)
        except LockedError as error:
            if tx.id is None or error.evidence.get("tx") != tx.id.hex():  # its own vote: it was as it was read
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
    """Every version it has read in one partition, with those that it replaces."""
    yield from its.reads
    for key, writes in work.by_key(its.writes).items():
        if writes[0].replaced != ABSENT:
            yield key, writes[0].replaced


def _presented(tx: Transaction, changes: Mapping[bytes, Sequence[Write]], reads: Mapping[bytes, int]) -> Presented:
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
        after.clear()  # the log may give its lsn to something else
    return _over(tx, works, after)


def _over(tx: Transaction, works: Mapping[str, Work], after: Sequence[tuple[bytes, Image]]) -> Presented:
    """Under a new id, in as many partitions as it takes."""
    if len(works) > 1:
        return _presented_over(tx, works)
    partition, its = next(iter(_sited(tx, works).items()))
    work.check_size(tx.space, its.writes)
    if tx.durability is not None:
        its = msgspec.structs.replace(its, durability=tx.durability)
    tx.id = tx.backend.new_transaction_id()
    tx.state = COMMITTING
    return Presented(partition, its, after)


def _presented_over(tx: Transaction, works: Mapping[str, Work]) -> Presented:
    """In several partitions. Its records wait for the log, so asking for less is granted by more."""
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
    return Presented(first, works[first], (), works)


def _sited(tx: Transaction, works: Mapping[str, Work]) -> Mapping[str, Work]:
    """Each for the site that served its partition when the transaction began (M5)."""
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
            raise _named(tx, partition, error)  # noqa: B904 - the same error, told better
    if tx.mapped is not tx.backend.mapped:
        _check_sites(tx, parts)


def _check_sites(tx: Transaction, partitions: Iterable[str]) -> None:
    """SwitchedError unless the versions were read, and hold, at one site each."""
    was, now = tx.mapped.sites, tx.backend.mapped.sites
    for partition in partitions:
        if was.get(partition) != now.get(partition):
            raise SwitchedError(
                f"another site serves partition {partition} than when the transaction began; run it again",
                partition=partition,
                settled_lsn=0,
            )


def _least(tx: Transaction, partition: str, of: int) -> int:
    """Behind barriers: what its reads had; of several partitions each must stand still behind the last read of all."""
    return tx.backend.barrier(partition) if of > 1 else (tx.least or {}).get(partition, 0)


def _by_partition(tx: Transaction, reads: Mapping[bytes, int]) -> Mapping[str, Mapping[bytes, int]]:
    """With what was only looked at."""
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
    """The same error, naming the object and the partition."""
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
