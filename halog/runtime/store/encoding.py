"""This module encodes a partition's position and its objects as the store has them
(`halog.runtime.store.object_table`)."""

from __future__ import annotations

import struct

import msgspec

from halog.backend import CommittedObject
from halog.core.ids import REF_BYTES
from halog.core.log.chain import ChainState
from halog.errors import StoreError

_HEAD = struct.Struct(f">Q{REF_BYTES}s")


class StoredPosition(msgspec.Struct, frozen=True):
    """Holds what stands under `p`."""

    state: ChainState
    next_offset: int
    last_offset: int
    """Offset of the last accepted record: its hash in the log must be the chain's, else this copy is foreign."""
    horizon: bytes
    settled: bytes = b""
    """The horizon of transactions over several partitions."""
    mapping: int = 0
    """The version of the mapping that is served (T8)."""
    state_hash: bytes = b""
    """The hash of the objects beside it (`halog.runtime.store.state_hash`); b"": not known, halog 0.1 kept none."""


_POSITION = msgspec.msgpack.Decoder(StoredPosition)


def unpack_position(data: bytes) -> StoredPosition:
    """Decode a position. Raises StoreError if it cannot be read, or has fields that only a later version of halog
    knows: what they say of the objects beside it nobody here can tell (U1)."""
    try:
        found, raw = _POSITION.decode(data), msgspec.msgpack.decode(data)
        odd = sorted({*raw} - {*StoredPosition.__struct_fields__} | {*raw["state"]} - {*ChainState.__struct_fields__})
        if odd:
            why = f"its position has {', '.join(map(repr, odd))}, which a later version of halog wrote"
            raise StoreError(f"the local store is not readable by this version: {why}", rebuild=True, why=why)
        return found
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise StoreError(f"the local store's position cannot be read: {e}; delete the data directory") from e


def pack_object(lsn: int, ref: bytes, value: bytes) -> bytes:
    """Encode an object as it is stored, and as it is written to the state topic."""
    return _HEAD.pack(lsn, ref) + value


def unpack_object(key: bytes, data: bytes) -> CommittedObject:
    """Decode what `pack_object` encoded."""
    lsn, ref = _HEAD.unpack_from(data)
    return CommittedObject(ref, lsn, data[_HEAD.size :], key)
