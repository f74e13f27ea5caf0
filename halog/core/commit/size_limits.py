"""How large an object may be, so that nobody is left with one that cannot be changed or deleted (R8).

The record of a change has the bytes that it replaces beside the new ones, where the policy keeps before-images; that of
a deletion, and of a move to another partition, has them once. So an object may be as large as fits a record that
changes it at its size. What is larger already, of a time when there was no such limit, may be deleted and moved (its
last record may exceed the limit by what surrounds it), and changed to something so small that both fit a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from halog.core.keys.directory import is_entry
from halog.core.log import records
from halog.core.results import TooLarge
from halog.core.settings import Settings

ENVELOPE: Final = 2_000
"""Of a record beside keys and values: its head, the partitions of a move, an entry of a key directory; half of that is
left with the longest names."""

KEYS: Final = 2
"""Times a record has an object's key beside its value, with that of its entry."""

SHARE: Final = 10
"""Of a small limit the envelope takes no more than this part."""

SPARE: Final = 20
"""The last record of an object that is too large may exceed the limit by this part; the log takes a quarter more."""


def most_bytes(max_record_bytes: int, key_bytes: int, *, before_images: bool) -> int:
    """The largest value that an object with a key of so many bytes may have."""
    room = max_record_bytes - min(ENVELOPE, max_record_bytes // SHARE) - KEYS * key_bytes
    return max(0, room // 2 if before_images else room)


def harmless_bytes(settings: Settings) -> int:
    """A record of so many bytes is not too large, nor is any object in it: it has each one's value, and its key."""
    return most_bytes(settings.max_record_bytes, 0, before_images=True)


def too_large(changes: Sequence[records.Change], settings: Settings) -> TooLarge | None:
    """The first object of these that could not be changed at its size."""
    most, keeps = settings.max_record_bytes, settings.before_images
    for c in changes:
        if c.value is not None and len(c.value) > (limit := most_bytes(most, len(c.key), before_images=keeps)):
            return TooLarge(len(c.value), limit, c.key)
    return None


def record_limit(changes: Sequence[records.Change], settings: Settings, *, moves: bool = False) -> int:
    """Bytes of a record with these changes. `moves`: they carry what is there already to another partition."""
    most = settings.max_record_bytes
    objects = [c for c in changes if not is_entry(c.key)]
    alone = len(objects) == 1 and (moves or objects[0].op == records.DELETE)
    return most + most // SPARE if alone else most
