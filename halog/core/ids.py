"""This module has the identities of the protocol: epochs, positions, members, objects, transactions.

They are pure values. Numbers that order something come first in their tuple, so tuple comparison is the protocol's
order.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import msgspec

HASH_BYTES = 16
NO_HASH = bytes(HASH_BYTES)
LOG_ID_BYTES = 16
REF_BYTES = 24
TX_BYTES = 16
NO_TX = bytes(TX_BYTES)
ABSENT = -1
"""The version of a key under which no object exists; real versions are lsns, which start at 1."""


class EpochId(NamedTuple):
    """An `EpochId` names one writer's term. Numbers grow per partition. Two sites may use the same number, so all three
    fields identify the epoch."""

    number: int
    site: str
    nonce: int


NO_EPOCH = EpochId(0, "", 0)


class Member(NamedTuple):
    """A `Member` is one run of a node process. Sync sets and elections name runs, because a restarted node has promised
    nothing."""

    node: str
    incarnation: int


class Position(NamedTuple):
    """A `Position` says how recent a copy is: the epoch whose history it holds, then the lsn, compared in that
    order."""

    epoch: int
    lsn: int


class Reference(msgspec.Struct, frozen=True, order=True):
    """A `Reference` is an object's identity for life (D1): the node that created it, the start of that node's counter,
    and the count."""

    location: int
    installation: int
    counter: int

    def to_bytes(self) -> bytes:
        """Return 24 bytes, big-endian, so that byte order is creation order on one node."""
        return _REF.pack(self.location, self.installation, self.counter)

    @staticmethod
    def from_bytes(raw: bytes) -> Reference:
        """Read what `to_bytes` wrote."""
        return Reference(*_REF.unpack(raw))


_REF = struct.Struct(">QQQ")


def location_code(node_name: str) -> int:
    """Return the 64-bit location code hashed from a node's name (N1)."""
    return int.from_bytes(hashlib.sha256(node_name.encode()).digest()[:8], "big")


def nonce(claimant: Member, claims: int) -> int:
    """Return the nonce of an epoch id: two candidates for one epoch number must never take each other's epoch for their
    own.

    It differs between nodes, even between two that were started in the same millisecond, between runs, and between
    claims.
    """
    return (location_code(claimant.node) + (claimant.incarnation << 16) + claims) & (1 << 63) - 1


def barrier_id(lsn: int) -> bytes:
    """Return the transaction id of a commit that changes nothing.

    It has no stamp, so no horizon ever moves to it (T6). The lsn in it makes it unique in its history.
    """
    return bytes(TX_BYTES - 8) + lsn.to_bytes(8, "big")


def digest(data: bytes) -> bytes:
    """Return the chain's hash of a record's bytes."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()
