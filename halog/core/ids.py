"""Identities of the protocol: epochs, positions, members, objects, transactions.

Pure values. Numbers that order something come first in their tuple, so that tuple comparison is the protocol's order.
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
    """One writer's term. Numbers grow per partition; two sites may use the same one, so all three identify it."""

    number: int
    site: str
    nonce: int


NO_EPOCH = EpochId(0, "", 0)


class Member(NamedTuple):
    """One run of a node process. Sync sets and elections name runs: a restarted node has promised nothing."""

    node: str
    incarnation: int


class Position(NamedTuple):
    """How recent a copy is: the epoch whose history it holds, then the lsn, compared in that order."""

    epoch: int
    lsn: int


class Reference(msgspec.Struct, frozen=True, order=True):
    """An object's identity for life (D1): who created it, since when that node counts, and the count."""

    location: int
    installation: int
    counter: int

    def to_bytes(self) -> bytes:
        """24 bytes, big-endian, so that byte order is creation order on one node."""
        return _REF.pack(self.location, self.installation, self.counter)

    @staticmethod
    def from_bytes(raw: bytes) -> Reference:
        """The inverse of `to_bytes`."""
        return Reference(*_REF.unpack(raw))


_REF = struct.Struct(">QQQ")


def location_code(node_name: str) -> int:
    """The 64-bit location code hashed from a node's name (N1)."""
    return int.from_bytes(hashlib.sha256(node_name.encode()).digest()[:8], "big")


def nonce(claimant: Member, claims: int) -> int:
    """Of an epoch id. Differs between nodes, even where two were started in the same millisecond, between runs and
    claims: two candidates for one number must never take each other's epoch for their own."""
    return (location_code(claimant.node) + (claimant.incarnation << 16) + claims) & (1 << 63) - 1


def barrier_id(lsn: int) -> bytes:
    """The transaction id of a commit that changes nothing: no stamp, so that no horizon ever moves to it (T6), and the
    lsn, which makes it the only one of its history."""
    return bytes(TX_BYTES - 8) + lsn.to_bytes(8, "big")


def digest(data: bytes) -> bytes:
    """The chain's hash of a record's bytes."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()
