"""This module turns a merge into the records that carry it out: the parts, and the `EpochMerged` that makes them count
(F5, M2).

They settle everything that either branch did behind the fork: what is to stand under each key that any branch touched,
which transactions happened, and how those over several partitions were decided. A merge is named after the record that
the initiating branch was closed with: the same two branches cannot be merged twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import branch_of, hash_of
from halog.core.log.outcomes import KEEP, STAMP_BYTES
from halog.core.log.records import Branch, EpochMerged, Header, Joined, Merged, MergePart
from restore.branches import BranchComparison

PART_BYTES = 200_000
"""The size of one part, about: a fifth of what brokers take by default. A larger object has a part alone."""

PART_IDS = 5_000
"""How many transactions a part names: 80 kB."""


class Opening(NamedTuple):
    """An `Opening` is the epoch that a merge is to open."""

    epoch: EpochId
    state: ChainState
    """The end of the history that it continues."""
    horizon: int
    mapper_version: int
    decided: Mapping[bytes, bool]


def merge_records(
    opening: Opening,
    others: Sequence[ChainState],
    found: BranchComparison | None,
    merged: Iterable[Merged],
    name: bytes,
    *,
    part_bytes: int = PART_BYTES,
    part_ids: int = PART_IDS,
) -> list[bytes]:
    """Return the parts, then the record that makes them count. No `others`: the history is corrected, and stays one
    branch. `part_bytes`: of the objects of one part; `part_ids`: the transactions that it names."""
    log_id, s = opening.state.log_id, opening.state
    horizon, decided, happened = _settled(opening, found)
    head = Header(log_id, opening.epoch)
    parts = [*_object_parts(head, [*merged], part_bytes)]
    parts += _transaction_parts(head, len(parts), happened, decided, part_ids)
    branches = tuple(branch_of(state) for state in (s, *others))
    lsn = max(b.lsn for b in branches) + 1
    last = EpochMerged(
        Header(log_id, opening.epoch, lsn, s.hash),
        name,
        branches,
        _joined((s, *others)),
        _undoings((s, *others)),
        len(parts),
        hash_of(digest(p) for p in parts),
        horizon,
        opening.mapper_version,
    )
    return [*parts, records.encode(last)]


def _joined(states: Iterable[ChainState]) -> tuple[Joined, ...]:
    return tuple({j.epoch: j for state in states for j in state.joined}.values())


def _undoings(states: Iterable[ChainState]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(name for state in states for name in state.undoings))


def name_of(closed: ChainState) -> bytes:
    """Return the name of the merge of a branch that ends there."""
    return closed.hash


def _settled(opening: Opening, found: BranchComparison | None) -> tuple[int, dict[bytes, bool], list[bytes]]:
    """Return the horizon, what was decided above it, and what happened on either branch."""
    branches = [b for b in (found.source, found.initiating) if b is not None] if found is not None else []
    horizon = max([opening.horizon, *(b.horizon for b in branches)])
    decided = dict(opening.decided)
    for b in branches:
        for tx, commit in b.decided.items():
            decided[tx] = commit or decided.get(tx, False)
    decided = {tx: c for tx, c in decided.items() if int.from_bytes(tx[:STAMP_BYTES], "big") > horizon}
    happened = [latest(b.happened) for b in branches]
    return horizon, decided, [tx for ids in happened for tx in ids]


def latest(ids: Iterable[bytes]) -> list[bytes]:
    """Return as many ids as a reader remembers, oldest first, and one more. A reader that forgets that one knows that
    all before it may have happened, too."""
    return sorted(ids)[-KEEP - 1 :]


def _object_parts(header: Header, merged: Sequence[Merged], most: int) -> Iterator[bytes]:
    for index, standing in enumerate(_pieces(merged, most)):
        yield records.encode(MergePart(header, index, standing))


def _transaction_parts(
    header: Header, index: int, happened: Sequence[bytes], decided: Mapping[bytes, bool], most: int
) -> Iterator[bytes]:
    ids, votes = list(dict.fromkeys(happened)), list(decided.items())
    while ids or votes:
        yield records.encode(MergePart(header, index, (), tuple(ids[:most]), tuple(votes[:most])))
        ids, votes, index = ids[most:], votes[most:], index + 1


def _pieces(merged: Sequence[Merged], most: int) -> Iterator[tuple[Merged, ...]]:
    piece: list[Merged] = []
    size = 0
    for m in merged:
        its = len(m.key) + len(m.value or b"") + len(m.evidence) + 64
        if piece and size + its > most:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(m)
        size += its
    if piece:
        yield tuple(piece)


def is_merged(state: ChainState, other: Branch | ChainState) -> bool:
    """Say whether a history that ended there is a part of this one."""
    lines = [b for j in state.joined for b in j.branches]
    return any(b.lsn == other.lsn and b.hash == other.hash for b in lines)
