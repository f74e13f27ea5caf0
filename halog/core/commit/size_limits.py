"""This module limits the size of an object, so that none exists that cannot be changed or deleted (R8).

The record of a change has the replaced bytes beside the new ones, where the policy keeps before-images. The record of a
deletion, or of a move to another partition, has them once. So an object may be as large as fits a record that changes
it at its size. Larger objects, of a time without such a limit, may be deleted and moved; their last record may exceed
the limit by what surrounds the object. They may be changed to something so small that both values fit a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from halog.core.keys.directory import is_entry
from halog.core.log import records
from halog.core.results import OversizedRecord
from halog.core.settings import Settings

ENVELOPE: Final = 2_000
"""The bytes of a record beside keys and values: its head, the partitions of a move, an entry of a key directory. Half
of that is left with the longest names."""

KEYS: Final = 2
"""So many times a record has an object's key beside its value, counting that of its entry."""

SHARE: Final = 10
"""The envelope takes no more than this part of a small limit."""

SPARE: Final = 20
"""The last record of an object that is too large may exceed the limit by this part; the log takes a quarter more."""


def most_bytes(max_record_bytes: int, key_bytes: int, *, before_images: bool) -> int:
    """Return the largest value that an object may have whose key has so many bytes."""
    room = max_record_bytes - min(ENVELOPE, max_record_bytes // SHARE) - KEYS * key_bytes
    return max(0, room // 2 if before_images else room)


def harmless_bytes(settings: Settings) -> int:
    """Return a size up to which neither a record is too large nor any object in it: it has each object's value and
    key."""
    return most_bytes(settings.max_record_bytes, 0, before_images=True)


def too_large(changes: Sequence[records.Change], settings: Settings) -> OversizedRecord | None:
    """Return the first of these objects that could not be changed at its size."""
    most, keeps = settings.max_record_bytes, settings.before_images
    for c in changes:
        if c.value is not None and len(c.value) > (limit := most_bytes(most, len(c.key), before_images=keeps)):
            return OversizedRecord(len(c.value), limit, c.key)
    return None


def record_limit(changes: Sequence[records.Change], settings: Settings, *, moves: bool = False) -> int:
    """Return how many bytes a record with these changes may have. `moves`: they carry existing objects to another
    partition."""
    most = settings.max_record_bytes
    objects = [c for c in changes if not is_entry(c.key)]
    alone = len(objects) == 1 and (moves or objects[0].op == records.DELETE)
    return most + most // SPARE if alone else most
