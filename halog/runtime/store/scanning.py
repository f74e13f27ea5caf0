"""This module reads objects of a partition in key order, as the store has them, with others over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from halog.backend import CommittedObject
from halog.ports import Snapshot
from halog.runtime.store.encoding import unpack_object


def scan(source: Snapshot, prefix: bytes, key_prefix: bytes, after: bytes = b"") -> Iterator[CommittedObject]:
    """Yield objects of one partition whose index key starts with `key_prefix` and is greater than `after`, in key
    order."""
    n = len(prefix) + 1
    for k, data in source.scan(prefix + b"k" + key_prefix, prefix + b"k" + after if after else b""):
        yield unpack_object(k[n:], data)


def merged(
    stored: Iterator[CommittedObject], others: Mapping[bytes, CommittedObject | None]
) -> Iterator[CommittedObject]:
    """Yield stored objects with others over them, newer or older ones, by index key."""
    newer = deque(sorted(others))
    for found in stored:
        while newer and newer[0] < found.key:
            if (between := others[newer.popleft()]) is not None:
                yield between
        if newer and newer[0] == found.key:
            if (instead := others[newer.popleft()]) is not None:
                yield instead
        else:
            yield found
    for key in newer:
        if (last := others[key]) is not None:
            yield last
