"""This module has the records of a log as pure values. `halog.core.log.records` has all of them with their bytes."""

from __future__ import annotations

import msgspec

from halog.core.ids import NO_HASH, NO_TX, EpochId

CREATE, UPDATE, DELETE = 0, 1, 2


class Header(msgspec.Struct, frozen=True, gc=False):
    """A `Header` is what every record carries. `prev` is the hash of the accepted record before it; `lsn` counts
    accepted records.

    An `EpochStarted` stands outside the chain: its writer has not read the tail yet, so its lsn is 0 and prev empty.
    """

    log_id: bytes
    epoch: EpochId
    lsn: int = 0
    prev: bytes = NO_HASH
    tx: bytes = NO_TX


class Change(msgspec.Struct, frozen=True, gc=False):
    """A `Change` is one object's change. `key` is the index key, `value` the encoded object (None: deleted), `replaced`
    the version it replaces (-1: none), `before` the bytes it replaces where the policy keeps before-images."""

    op: int
    ref: bytes
    key: bytes
    value: bytes | None
    replaced: int
    before: bytes | None = None


class Origin(msgspec.Struct, frozen=True):
    """An `Origin` says where a commit that a later epoch recovered was first written."""

    epoch: EpochId
    lsn: int


class EpochStarted(msgspec.Struct, frozen=True):
    """A writer announces its epoch; every lower epoch is dead behind this record. `parent_*` is the writer's own
    position."""

    header: Header
    parent_epoch: EpochId
    parent_lsn: int


class EpochOpened(msgspec.Struct, frozen=True):
    """The writer has read up to its `EpochStarted`; header.lsn and header.prev state the history it stands on."""

    header: Header
    lineage: tuple[tuple[EpochId, int], ...]


class Commit(msgspec.Struct, frozen=True):
    """A `Commit` holds everything that one transaction changes in this partition."""

    header: Header
    changes: tuple[Change, ...]
    origin: Origin | None = None


class Prepare(msgspec.Struct, frozen=True):
    """A `Prepare` is a participant's vote in a transaction over several partitions (T1): what the transaction read
    here, as (key, version), and what it would change here."""

    header: Header
    first: str
    participants: tuple[str, ...]
    mapper_version: int
    digest: bytes
    changes: tuple[Change, ...]
    reads: tuple[tuple[bytes, int], ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """An `Outcome` is the decision of a transaction over several partitions (T2), or a copy of it."""

    header: Header
    commit: bool


class HandedOver(msgspec.Struct, frozen=True):
    """A `HandedOver` is the last record of an epoch: its writer has given up in favour of node `to`."""

    header: Header
    to: str


class MapperChanged(msgspec.Struct, frozen=True):
    """A `MapperChanged` says that from here on requests must carry at least this mapper version (T8)."""

    header: Header
    mapper_version: int


class LevelStated(msgspec.Struct, frozen=True):
    """A `LevelStated` says that records behind it may be of this level (U1). Who does not know it cannot read on."""

    header: Header
    level: int


class SiteSwitched(msgspec.Struct, frozen=True):
    """A `SiteSwitched` changes the log's owner site (F1)."""

    header: Header
    to: str
    lineage_head: tuple[EpochId, int]


class Horizon(msgspec.Struct, frozen=True):
    """A `Horizon` says that transaction ids below this stamp are settled for good (T6)."""

    header: Header
    stamp: int


Lineage = tuple[tuple[EpochId, int], ...]
"""The opened epochs, oldest first, each with the lsn of the record that opened it."""


class Branch(msgspec.Struct, frozen=True):
    """A `Branch` is a history that went on by itself: its last record, and its lineage from the beginning."""

    epoch: EpochId
    lsn: int
    hash: bytes
    lineage: Lineage


class Joined(msgspec.Struct, frozen=True):
    """A `Joined` is an epoch that stands on several histories."""

    epoch: EpochId
    branches: tuple[Branch, ...]


class Merged(msgspec.Struct, frozen=True, gc=False):
    """A `Merged` is the state that a merge gives an index key, whatever a branch has there; without `value` there is no
    object. `evidence` tells people what the state was made from."""

    key: bytes
    ref: bytes
    value: bytes | None
    evidence: bytes = b""


class MergePart(msgspec.Struct, frozen=True):
    """A `MergePart` is part `index` of a merge. It stands outside the chain (lsn 0), and counts only together with the
    `EpochMerged` of its epoch (F5).

    `happened`: transactions of any branch; `decided`: transactions over several partitions, each with its result.
    """

    header: Header
    index: int
    merged: tuple[Merged, ...]
    happened: tuple[bytes, ...] = ()
    decided: tuple[tuple[bytes, bool], ...] = ()


class EpochMerged(msgspec.Struct, frozen=True):
    """An `EpochMerged` is an `EpochOpened` that stands on several branches, and makes them one by what its parts say.

    It continues the first branch. A reader that holds another branch comes to the same objects by the parts.
    `parts_hash` is the hash of the parts' hashes, in order.
    """

    header: Header
    merge: bytes
    branches: tuple[Branch, ...]
    joined: tuple[Joined, ...]
    """Epochs that stood on several histories before this one, in any of the branches."""
    undoings: tuple[bytes, ...]
    """Names of the earlier merges, in any of the branches, that stand on one branch: each has undone another merge."""
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
    | LevelStated
    | SiteSwitched
    | Horizon
    | MergePart
    | EpochMerged
)
