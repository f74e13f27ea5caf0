"""A merge as readers meet it: parts that wait for the record that makes them count (F5).

Parts stand in the log before the `EpochMerged` of their epoch, outside the chain. Law: they count together with it, or
never. Another epoch that starts, or any record that is accepted before, makes them nothing, for every reader alike; so
a reader that was stopped between reads them again, since it stores no position behind them. In a log that is another
site's, several mirrors may bring the same ones: those of each epoch are kept apart, and an index has one part.

What counts is the same on every branch: all keys that any of them touched since they parted get the state and the
version that the merge says, and all others are the same already.
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


class Found(Protocol):
    """An object as a reader has it."""

    @property
    def ref(self) -> bytes: ...

    @property
    def version(self) -> int: ...


class MergedIn(msgspec.Struct, frozen=True):
    """A merge that counts, for whoever keeps the objects. `forgotten`: transactions over several partitions that were
    known here, in doubt or decided, and are not any more; `decided` are known instead."""

    header: Header
    merge: bytes
    merged: tuple[Merged, ...]
    happened: tuple[bytes, ...]
    decided: tuple[tuple[bytes, bool], ...]
    horizon: int
    mapper_version: int
    offset: int = -1
    """In this reader's log."""
    forgotten: tuple[bytes, ...] = ()


class Parts:
    """Of the merges that may still count."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[EpochId, dict[int, tuple[bytes, MergePart]]] = {}

    def hold(self, part: MergePart, hash_: bytes) -> None:
        """One more."""
        self._of.setdefault(part.header.epoch, {})[part.index] = hash_, part

    def of(self, record: EpochMerged) -> tuple[MergePart, ...] | None:
        """All parts that the record stands for, in order; None if they are not all here."""
        found = self._of.get(record.header.epoch, {})
        if any(i not in found for i in range(record.parts)):
            return None
        inner = [found[i] for i in range(record.parts)]
        return tuple(part for _, part in inner) if hash_of(h for h, _ in inner) == record.parts_hash else None


def hash_of(parts: Iterable[bytes]) -> bytes:
    """Of all parts, from each one's hash."""
    return digest(b"".join(parts))


def taken(record: EpochMerged, parts: Sequence[MergePart]) -> MergedIn:
    """What they say together."""
    return MergedIn(
        record.header,
        record.merge,
        tuple(m for part in parts for m in part.merged),
        tuple(tx for part in parts for tx in part.happened),
        tuple(item for part in parts for item in part.decided),
        record.horizon,
        record.mapper_version,
    )


def continues(s: ChainState, branch: Branch) -> bool:
    """Does this branch end where that history does?"""
    return branch.lsn == s.lsn and branch.hash == s.hash


def is_whole(record: EpochMerged) -> bool:
    """Does its position follow from its branches?"""
    first = record.branches[0]
    return record.header.prev == first.hash and record.header.lsn == max(b.lsn for b in record.branches) + 1


def opened(s: ChainState, record: EpochMerged, hash_: bytes) -> ChainState:
    """The history behind it, whichever branch it was before."""
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
    """Of each branch but the first what that one has not, behind the last epoch of both; the first one's is the
    lineage's own. Else what is kept for ever would grow with the square of the merges."""
    first, *others = branches
    known = set(first.lineage)
    kept = [msgspec.structs.replace(first, lineage=())]
    for b in others:
        at = next((i for i, opened in enumerate(b.lineage) if opened not in known), len(b.lineage))
        kept.append(msgspec.structs.replace(b, lineage=b.lineage[max(0, at - 1) :]))
    return tuple(kept)


def standing(merged: Merged, now: Found | None) -> Iterator[Change]:
    """What makes it of what a reader has: a change of its own also where it is the same already, for the version. A new
    instance comes behind the end of the old one."""
    key, ref, value = merged.key, merged.ref, merged.value
    if now is not None and (value is None or now.ref != ref):
        yield Change(DELETE, now.ref, key, None, now.version)
    if value is not None:
        same = now is not None and now.ref == ref
        yield Change(UPDATE if same else CREATE, ref, key, value, now.version if same and now else ABSENT)


def branch_of(s: ChainState) -> Branch:
    """A history, as a merge names it."""
    return Branch(s.head[0], s.lsn, s.hash, s.lineage)
