"""This module holds references: an object's identity for life, usable as a field of another object (D1).

A reference names an object wherever it lives and after it moved. This module never resolves one; a node does. The
identity (location code, installation stamp, counter) is given at create and never given twice, so delete + create of
the same key makes another reference. Type and key are part of the reference, so routing one needs no look-up.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

REF_BYTES: Final = 24
_RAW: Final = struct.Struct(">QQQ")


@dataclass(frozen=True, slots=True)
class Ref(Generic[T]):
    """A `Ref` names a managed object of type T for its whole life: declare a field as `pilot: Ref[Pilot]`.

    Get one with `node.ref(obj)`, and the object with `node.resolve(ref)`. It holds three unsigned 64-bit numbers, type
    and key.
    """

    location: int
    installation: int
    counter: int
    type_name: str
    key: bytes

    @property
    def raw(self) -> bytes:
        """Return the identity alone: 24 bytes, big-endian, so that byte order is creation order on one node."""
        return _RAW.pack(self.location, self.installation, self.counter)

    @staticmethod
    def from_raw(raw: bytes, type_name: str, key: bytes) -> Ref[Any]:
        """Make a reference of these 24 bytes, type and key."""
        location, installation, counter = _RAW.unpack(raw)
        return Ref(location, installation, counter, type_name, key)
