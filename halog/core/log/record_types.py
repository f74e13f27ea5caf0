"""What the records of a log say (see `halog.core.log.records`, which has them all, for their bytes). Values, pure."""

from __future__ import annotations

import msgspec

from halog.core.ids import NO_HASH, NO_TX, EpochId

CREATE, UPDATE, DELETE = 0, 1, 2


class Header(msgspec.Struct, frozen=True, gc=False):
    """What every record carries. `prev` is the hash of the accepted record before it; `lsn` counts accepted records.

    An `EpochStarted` stands outside the chain: its writer has not read the tail yet, so its lsn is 0 and prev empty.
    """

    log_id: bytes
    epoch: EpochId
    lsn: int = 0
    prev: bytes = NO_HASH
    tx: bytes = NO_TX


class Change(msgspec.Struct, frozen=True, gc=False):
    """One object's change. `key` is the index key, `value` the encoded object (None: deleted), `replaced` the version
    it replaces (-1: none), `before` the bytes it replaces where the policy keeps before-images."""

    op: int
    ref: bytes
    key: bytes
    value: bytes | None
    replaced: int
    before: bytes | None = None


class Origin(msgspec.Struct, frozen=True):
    """Where a commit recovered by a later epoch was first written."""

    epoch: EpochId
    lsn: int


class EpochStarted(msgspec.Struct, frozen=True):
    """A writer announces its epoch; everything lower is dead behind it. `parent_*` is the announcer's own position."""

    header: Header
    parent_epoch: EpochId
    parent_lsn: int


class EpochOpened(msgspec.Struct, frozen=True):
    """The writer has read up to its `EpochStarted`; header.lsn and header.prev state the history it stands on."""

    header: Header
    lineage: tuple[tuple[EpochId, int], ...]


class Commit(msgspec.Struct, frozen=True):
    """Everything one transaction changes in this partition."""

    header: Header
    changes: tuple[Change, ...]
    origin: Origin | None = None


class Prepare(msgspec.Struct, frozen=True):
    """A participant's vote in a transaction over several partitions (T1): what it read here, (key, version), and would
    change here."""

    header: Header
    first: str
    participants: tuple[str, ...]
    mapper_version: int
    digest: bytes
    changes: tuple[Change, ...]
    reads: tuple[tuple[bytes, int], ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """The decision of a transaction over several partitions (T2), or a copy of it."""

    header: Header
    commit: bool


class HandedOver(msgspec.Struct, frozen=True):
    """The last record of an epoch: its writer has given up in favour of node `to`."""

    header: Header
    to: str


class MapperChanged(msgspec.Struct, frozen=True):
    """From here on requests must carry at least this mapper version (T8)."""

    header: Header
    mapper_version: int


class SiteSwitched(msgspec.Struct, frozen=True):
    """The log's owner site changes (F1)."""

    header: Header
    to: str
    lineage_head: tuple[EpochId, int]


class Horizon(msgspec.Struct, frozen=True):
    """Transaction ids below this stamp are settled for good (T6)."""

    header: Header
    stamp: int


Lineage = tuple[tuple[EpochId, int], ...]
"""Opened epochs, oldest first, each with the lsn of the record that opened it."""


class Branch(msgspec.Struct, frozen=True):
    """A history that went on by itself: its last record, and its lineage from the beginning."""

    epoch: EpochId
    lsn: int
    hash: bytes
    lineage: Lineage


class Joined(msgspec.Struct, frozen=True):
    """An epoch that stands on several histories."""

    epoch: EpochId
    branches: tuple[Branch, ...]


class Merged(msgspec.Struct, frozen=True, gc=False):
    """What is to stand under an index key, whatever a branch has there; no `value`: nothing. `evidence` says to people
    what it was made of."""

    key: bytes
    ref: bytes
    value: bytes | None
    evidence: bytes = b""


class MergePart(msgspec.Struct, frozen=True):
    """Part `index` of a merge. Outside the chain (lsn 0), and nothing until the `EpochMerged` of its epoch counts
    (F5). `happened`: transactions of any branch; `decided`: of those over several partitions, each with its result."""

    header: Header
    index: int
    merged: tuple[Merged, ...]
    happened: tuple[bytes, ...] = ()
    decided: tuple[tuple[bytes, bool], ...] = ()


class EpochMerged(msgspec.Struct, frozen=True):
    """An `EpochOpened` that stands on several branches, and makes all of them one by what its parts say. It continues
    the first; a reader that holds another one comes to the same objects by them. `parts_hash` is the hash of the parts'
    hashes, in order."""

    header: Header
    merge: bytes
    branches: tuple[Branch, ...]
    joined: tuple[Joined, ...]
    """Epochs that stood on several histories before this one, in any of the branches."""
    undoings: tuple[bytes, ...]
    """Names of the merges before this one, in any of the branches, that stand on one: each has undone another one."""
    parts: int
    parts_hash: bytes
    horizon: int
    mapper_version: int


Record = (
    EpochStarted
    | EpochOpened
    | Commit
    | Prepare
    | Outcome
    | HandedOver
    | MapperChanged
    | SiteSwitched
    | Horizon
    | MergePart
    | EpochMerged
)
