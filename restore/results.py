"""This module has what a Spark job has found about two branches, on its way to the node that merges them: records of a
topic (S1, M2).

The initiating branch is closed, and grows no more. The job has seen the source's branch up to some record. So its
findings hold for ever, as far as they go: the difference for every key that either branch touched, and what else must
be known of the branches. The node verifies that its own history has that record, folds what it has done behind it into
the differences, and merges as if it had compared both branches at once. A comparison that the node has made by itself
ahead is folded in the same way (`seen_of`), and travels nowhere.

Differences travel in chunks. Each chunk is named by the hash of its bytes and cut into records that any broker takes.
Chunks may come in any order, any number of times. The findings are complete when every chunk that the manifest counts
is there.

It is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from halog.core.ids import EpochId, digest
from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from restore.branch import Branch
from restore.branches import BranchComparison
from restore.divergence import Fork, Place, Point
from restore.merge import (
    BranchCommit,
    Difference,
    Even,
    Instance,
    KeyTouches,
    Kind,
    State,
    differences,
    touched,
    two_way,
    without_base,
)

FORMAT: Final = 1
CHUNK_BYTES: Final = 200_000
"""The size of one chunk, about; it may have one object more."""
RECORD_BYTES: Final = 900_000
"""The size of one record: what brokers and producers take by default. A chunk may be several records."""

BY: Final = struct.Struct(">16sqq")
"""One of the transactions that touched a key: its id, lsn, and ms since 1970."""

Pair = tuple[bytes, bytes | None] | None
"""A state, in the form that travels."""


class DifferenceRow(msgspec.Struct, frozen=True, array_like=True):
    """A `DifferenceRow` is one key, compared with the common ancestor."""

    key: bytes
    kind: str
    base: Pair
    source: Pair
    initiating: Pair
    source_by: bytes
    """`BY`, one behind the other."""
    initiating_by: bytes


class ChunkPiece(msgspec.Struct, frozen=True, array_like=True):
    """A `ChunkPiece` is a piece of a chunk, as the topic has it. `run`: the run of the job that wrote it."""

    run: bytes
    chunk: bytes
    index: int
    of: int
    """How many pieces the chunk has."""
    data: bytes


class BranchTransactions(msgspec.Struct, frozen=True):
    """A `BranchTransactions` is what is known of transactions where a branch ends."""

    happened: tuple[bytes, ...]
    """As many as a reader remembers (`restore.replay.latest`)."""
    horizon: int = 0
    decided: tuple[tuple[bytes, bool], ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """A `Manifest` is what a job found, without the differences; it is a chunk by itself."""

    format: int
    merge: bytes
    """The merge's name: the hash of the record that the initiating branch was closed with."""
    fork: Place
    parted_at: bytes
    """The hash of the record there."""
    epoch: EpochId
    """With `lsn` and `hash` it names the last record that was seen of the source's branch."""
    lsn: int
    hash: bytes
    keys: int
    chunks: tuple[bytes, ...]
    """Names of the chunks, in order."""
    source: BranchTransactions
    """What happened up to that record, and nothing else."""
    initiating: BranchTransactions

    @property
    def seen(self) -> Fork:
        """Return the last record seen of the source's branch, as if something had parted there."""
        return Fork((Point(self.epoch, self.lsn, self.hash),), ())


class JobFindings(NamedTuple):
    """A `JobFindings` is what a job found, by key."""

    manifest: Manifest
    keys: dict[bytes, Difference]


_RECORD: Final = msgspec.msgpack.Decoder(ChunkPiece)
_CHUNK: Final = msgspec.msgpack.Decoder(list[DifferenceRow])
_MANIFEST: Final = msgspec.msgpack.Decoder(Manifest)

# --- as it is written ---


def told(found: Difference) -> DifferenceRow:
    """Return the key in the form that travels, without what the transactions changed."""
    by = [b"".join(BY.pack(c.tx, c.lsn, c.time_ms) for c in side) for side in (found.source_by, found.initiating_by)]
    return DifferenceRow(found.key, found.kind.value, found.base, found.source, found.initiating, *by)


def chunks_of(keys: Iterable[DifferenceRow]) -> Iterator[tuple[int, bytes]]:
    """Yield chunks, and how many keys each has."""
    chunk: list[msgspec.Raw] = []
    size = 0
    for one in keys:
        data = msgspec.msgpack.encode(one)
        chunk.append(msgspec.Raw(data))
        size += len(data)
        if size >= CHUNK_BYTES:
            yield len(chunk), msgspec.msgpack.encode(chunk)
            chunk, size = [], 0
    if chunk:
        yield len(chunk), msgspec.msgpack.encode(chunk)


def records_of(run: bytes, chunk: bytes) -> list[bytes]:
    """Return a chunk as values of records."""
    name, cuts = digest(chunk), range(0, len(chunk), RECORD_BYTES)
    pieces = [chunk[at : at + RECORD_BYTES] for at in cuts]
    return [msgspec.msgpack.encode(ChunkPiece(run, name, i, len(pieces), data)) for i, data in enumerate(pieces)]


def packed(manifest: Manifest) -> bytes:
    """Return the manifest as a chunk."""
    return msgspec.msgpack.encode(manifest)


# --- as it is read ---


def read(values: Iterable[bytes], run: bytes, manifest: bytes) -> JobFindings:
    """Read what the topic has of a job. `manifest`: its name. RefusedError where a piece is missing, or is not what it
    was."""
    chunks = _whole(values, run)
    try:
        made = _MANIFEST.decode(_named(chunks, manifest))
        found = [_difference(one) for name in made.chunks for one in _CHUNK.decode(_named(chunks, name))]
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise RefusedError(f"what the Spark job has found cannot be read: {e}") from e
    keys = {d.key: d for d in found}
    if made.format != FORMAT or len(keys) != made.keys or len(found) != made.keys:
        raise RefusedError(
            f"what the Spark job has found is not whole: format {made.format}, {len(keys)} of {made.keys} objects"
        )
    return JobFindings(made, keys)


def _whole(values: Iterable[bytes], run: bytes) -> dict[bytes, list[bytes | None]]:
    """Return the pieces of each chunk. Records of other runs are passed over."""
    found: dict[bytes, list[bytes | None]] = {}
    for value in values:
        try:
            record = _RECORD.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if record.run == run and 0 <= record.index < record.of:
            pieces = found.setdefault(record.chunk, [None] * record.of)
            if record.index < len(pieces):
                pieces[record.index] = record.data
    return found


def _named(chunks: Mapping[bytes, Sequence[bytes | None]], name: bytes) -> bytes:
    pieces = [piece for piece in chunks.get(name, ()) if piece is not None]
    whole = b"".join(pieces)
    if len(pieces) != len(chunks.get(name, ())) or digest(whole) != name:
        raise RefusedError(f"a part of what the Spark job has found is missing, or is not what it was: {name.hex()}")
    return whole


def _difference(one: DifferenceRow) -> Difference:
    states: list[State] = [None if s is None else Instance(*s) for s in (one.base, one.source, one.initiating)]
    by = [_committed(side) for side in (one.source_by, one.initiating_by)]
    return Difference(one.key, Kind(one.kind), states[0], states[1], states[2], by[0], by[1])


def _committed(by: bytes) -> tuple[BranchCommit, ...]:
    return tuple(BranchCommit(tx, lsn, time_ms, ()) for tx, lsn, time_ms in BY.iter_unpack(by))


# --- and merged with ---


def check(manifest: Manifest, name: bytes, fork: Fork) -> None:
    """Refuse findings of another merge than `name`, or of branches that parted elsewhere than at this fork.
    RefusedError."""
    if manifest.merge != name:
        raise RefusedError(
            "what the Spark job has found is of another branch than the one that is to be merged: run it again"
        )
    if [manifest.fork] != [(point.epoch, point.lsn) for point in fork.at]:
        raise RefusedError(
            f"what the Spark job has found is of branches that parted at lsn {manifest.fork[1]}, and these did at lsn "
            f"{fork.at[0].lsn}: run it again"
        )


def check_later(manifest: Manifest, later: Branch, now: ChainState) -> None:
    """Refuse findings that do not fit what the source's branch has done since.

    `later`: what the source's branch has done behind the record that was seen last; `now`: where it stands.
    RefusedError where the job did not see that record there, or where what was done may be on the other branch, too:
    votes from before the fork, and what was recovered or brought from elsewhere.
    """
    before = later.parted_at or now.hash
    if before != manifest.hash:
        raise RefusedError(f"the Spark job has seen another record at lsn {manifest.lsn} than this site's log has")
    for what, committed in later.committed:
        if committed.changes and what.origin is not None:
            epoch, lsn = what.origin
            if lsn <= manifest.fork[1] or epoch.site != what.epoch.site:
                raise RefusedError(
                    f"lsn {what.lsn}, behind what the Spark job has seen, may be on the other branch as well, which "
                    "only the job can tell: run it again, with another checkpoint directory"
                )
    if later.brought:
        raise RefusedError(
            "a merge was made behind what the Spark job has seen: run it again, with another checkpoint directory"
        )


def seen_of(look: BranchComparison, name: bytes, now: ChainState) -> JobFindings:
    """Return what the merging node has found by itself, looking at the source's branch up to `now`, in the form of a
    job's findings."""
    assert isinstance(look.relation, Fork)
    assert look.source is not None
    assert look.initiating is not None
    (point,), theirs = look.relation.at, look.initiating
    settled = BranchTransactions(tuple(theirs.happened), theirs.horizon, tuple(theirs.decided.items()))
    made = Manifest(
        FORMAT,
        name,
        (point.epoch, point.lsn),
        theirs.parted_at,
        *now.head,
        now.hash,
        len(look.keys),
        (),
        BranchTransactions(tuple(look.source.happened)),
        settled,
    )
    return JobFindings(made, {d.key: d for d in look.keys})


def two_way_of(found: JobFindings) -> JobFindings:
    """Return the same by the manual's rule."""
    return JobFindings(found.manifest, {key: without_base(d) for key, d in found.keys.items()})


def compared(
    found: JobFindings, fork: Fork, later: Branch, *, three_way: bool = True, even: Even | None = None
) -> BranchComparison:
    """Compare as `restore.branches.merged_at` does, from what a job found by the same rule and what the source has done
    since. Keys that the source has not touched since keep the differences that were found."""
    made = found.manifest
    keys = {**found.keys, **folded(found.keys, later, three_way=three_way, even=even)}
    happened = [*made.source.happened, *later.happened]
    ours = later._replace(committed=[], happened=happened, parted_at=made.parted_at)
    theirs = made.initiating
    other = Branch([], dict(theirs.decided), theirs.horizon, (), made.parted_at, theirs.happened)
    return BranchComparison(fork, tuple(keys[key] for key in sorted(keys)), ours, other)


def folded(
    keys: Mapping[bytes, Difference], later: Branch, *, three_way: bool, even: Even | None = None
) -> dict[bytes, Difference]:
    """Compare anew the keys that the source has touched since."""
    committed = [c for _, c in later.committed if c.changes]
    again = {change.key for c in committed for change in c.changes}
    some = [keys[key] for key in again if key in keys]
    begun = {d.key: KeyTouches(d.base, d.source, d.source_by) for d in some if d.source_by}
    theirs = {d.key: KeyTouches(d.base, d.initiating, d.initiating_by) for d in some if d.initiating_by}
    now = touched(committed, begun)
    return {d.key: d for d in (differences if three_way else two_way)(now, theirs, even)}
