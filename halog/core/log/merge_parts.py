"""This module has a merge as readers meet it: parts that wait for the record that makes them count (F5).

Parts stand in the log before the `EpochMerged` of their epoch, outside the chain. Law: they count together with it, or
never. If another epoch starts, or any record is accepted before, they count no more, for every reader alike. A reader
that stopped in between reads them again, since it stores no position behind them. In another site's log, several
mirrors may bring the same parts. The parts of each epoch are kept apart, and each index has one part.

What counts is the same on every branch. All keys that any branch touched since the fork get the state and the version
that the merge says; all other keys are the same already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from halog.core.ids import ABSENT, EpochId, digest
from halog.core.log.chain_state import ChainState
from halog.core.log.record_types import (
    CREATE,
    DELETE,
    UPDATE,
    Branch,
    Change,
    EpochMerged,
    Header,
    Joined,
    Merged,
    MergePart,
)


class HeldObject(Protocol):
    """A `HeldObject` is an object as a reader has it."""

    @property
    def ref(self) -> bytes: ...

    @property
    def version(self) -> int: ...


class AppliedMerge(msgspec.Struct, frozen=True):
    """An `AppliedMerge` is a merge that counts, for the keeper of the objects.

    `forgotten` are transactions over several partitions that were in doubt or decided here, and are not known any more.
    `decided` are known instead.
    """

    header: Header
    merge: bytes
    merged: tuple[Merged, ...]
    happened: tuple[bytes, ...]
    decided: tuple[tuple[bytes, bool], ...]
    horizon: int
    mapper_version: int
    offset: int = -1
    """Its offset in this reader's log."""
    forgotten: tuple[bytes, ...] = ()


class MergeParts:
    """`MergeParts` holds the parts of merges that may still count."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[EpochId, dict[int, tuple[bytes, MergePart]]] = {}

    def hold(self, part: MergePart, hash_: bytes) -> None:
        """Keep one more part."""
        self._of.setdefault(part.header.epoch, {})[part.index] = hash_, part

    def of(self, record: EpochMerged) -> tuple[MergePart, ...] | None:
        """Return all parts of this record's merge, in order; None if they are not all here."""
        found = self._of.get(record.header.epoch, {})
        if any(i not in found for i in range(record.parts)):
            return None
        inner = [found[i] for i in range(record.parts)]
        return tuple(part for _, part in inner) if hash_of(h for h, _ in inner) == record.parts_hash else None


def hash_of(parts: Iterable[bytes]) -> bytes:
    """Return the hash of all parts, from each part's hash."""
    return digest(b"".join(parts))


def taken(record: EpochMerged, parts: Sequence[MergePart]) -> AppliedMerge:
    """Return the merge that the record and its parts describe together."""
    return AppliedMerge(
        record.header,
        record.merge,
        tuple(m for part in parts for m in part.merged),
        tuple(tx for part in parts for tx in part.happened),
        tuple(item for part in parts for item in part.decided),
        record.horizon,
        record.mapper_version,
    )


def continues(s: ChainState, branch: Branch) -> bool:
    """Say whether this branch ends where that history does."""
    return branch.lsn == s.lsn and branch.hash == s.hash


def is_whole(record: EpochMerged) -> bool:
    """Say whether the record's position follows from its branches."""
    first = record.branches[0]
    return record.header.prev == first.hash and record.header.lsn == max(b.lsn for b in record.branches) + 1


def opened(s: ChainState, record: EpochMerged, hash_: bytes) -> ChainState:
    """Return the history behind the merge, whichever branch it was on before."""
    h, branches = record.header, record.branches
    joined, undoings = record.joined, record.undoings
    if len(branches) > 1:
        joined = (*joined, Joined(h.epoch, _apart(branches)))
    else:
        undoings = (*undoings, record.merge)
    return msgspec.structs.replace(
        s,
        epoch=h.epoch,
        opened=True,
        void=False,
        closed_for="",
        led=h.epoch.number,
        lsn=h.lsn,
        hash=hash_,
        lineage=(*branches[0].lineage, (h.epoch, h.lsn)),
        joined=joined,
        undoings=undoings,
    )


def _apart(branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """Return the branches, each but the first without what the first one has too.

    Such a branch keeps its lineage from the last epoch that both have; the first branch's lineage is left out, because
    the chain has it. Otherwise what is kept for ever would grow with the square of the merges.
    """
    first, *others = branches
    known = set(first.lineage)
    kept = [msgspec.structs.replace(first, lineage=())]
    for b in others:
        at = next((i for i, opened in enumerate(b.lineage) if opened not in known), len(b.lineage))
        kept.append(msgspec.structs.replace(b, lineage=b.lineage[max(0, at - 1) :]))
    return tuple(kept)


def standing(merged: Merged, now: HeldObject | None) -> Iterator[Change]:
    """Yield the changes that turn what a reader has into what the merge says.

    There is a change even where the object is the same already, because its version changes. A new instance comes
    behind the end of the old one.
    """
    key, ref, value = merged.key, merged.ref, merged.value
    if now is not None and (value is None or now.ref != ref):
        yield Change(DELETE, now.ref, key, None, now.version)
    if value is not None:
        same = now is not None and now.ref == ref
        yield Change(UPDATE if same else CREATE, ref, key, value, now.version if same and now else ABSENT)


def branch_of(s: ChainState) -> Branch:
    """Return a history as a branch, the form in which merges name it."""
    return Branch(s.head[0], s.lsn, s.hash, s.lineage)
