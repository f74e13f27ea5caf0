"""References: an object's identity for life, usable as a field of another object (D1).

A reference names an object wherever it lives and after it moved. This module never resolves one; that is a node's work.
The theory: (location code, installation stamp, counter) was given at create and is never given twice, so delete +
create of the same key is another reference; type and key ride along, so that routing one needs no look-up.
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
    """A reference to a managed object of type T: `pilot: Ref[Pilot]`. Three unsigned 64-bit numbers, type and key."""

    location: int
    installation: int
    counter: int
    type_name: str
    key: bytes

    @property
    def raw(self) -> bytes:
        """The identity alone: 24 bytes, big-endian, so that byte order is creation order on one node."""
        return _RAW.pack(self.location, self.installation, self.counter)

    @staticmethod
    def from_raw(raw: bytes, type_name: str, key: bytes) -> Ref[Any]:
        """The inverse of `raw`, type and key added."""
        location, installation, counter = _RAW.unpack(raw)
        return Ref(location, installation, counter, type_name, key)
