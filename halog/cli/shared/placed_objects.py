"""Objects whose mapper is no function of the key are found and created here (P6); see `halog.core.keys.directory`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from halog.backend import CommittedObject, Work, Write
from halog.core.keys.directory import Looking, StoredEntry, beside, entry_key, is_entry, look
from halog.core.keys.mapping import Place
from halog.errors import DeadlineError
from halog.runtime.keys.create_placement import CreatePlacement
from halog.runtime.keys.key_owners import Owner
from halog.runtime.keys.loads import PartitionLoads
from halog.schema.placed import new_object
from mappers import NewObject

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

AGAIN_S = 0.02
"""The pause before an object is looked for again that is not where its entry says: it is being moved."""


def located(connection: ClusterConnection, key: bytes, place: Place) -> tuple[str, CommittedObject | None]:
    """Return where an object is, and the object, asked as `place` says. For an object that does not exist, return where
    a new one's entry belongs, and None. DeadlineError if it is not where its entry says for too long."""
    if place.listed:
        return _by_entry(connection, key, place)
    for partition in place.owners:
        (found,) = connection.fetch(partition, [key])
        if found is not None:
            return partition, found
    return place.partition, None


def _by_entry(connection: ClusterConnection, key: bytes, place: Place) -> tuple[str, CommittedObject | None]:
    until = time.monotonic() + connection.timeout_s
    asking: Looking[CommittedObject] = look(key, place)
    partition, wanted = next(asking)
    while True:
        (found,) = connection.fetch(partition, [wanted])
        if found is None and not is_entry(wanted):
            _pause(connection, partition, place, until)
        try:
            partition, wanted = asking.send(found)
        except StopIteration as end:
            at, what = end.value
            return at, what


def _pause(connection: ClusterConnection, partition: str, place: Place, until: float) -> None:
    if time.monotonic() >= until:
        raise DeadlineError(
            f"the object is not where its entry in {' or '.join(place.owners)} says: it was not in {partition} for "
            f"{connection.timeout_s:g} s; is an active node cut off (`halog status`)?",
            partition=partition,
        )
    time.sleep(AGAIN_S)


def unique_keys(place: Place, keys: Sequence[bytes]) -> list[bytes]:
    """Return the keys to ask for where `place` says, to learn whether these objects exist."""
    return [entry_key(key) for key in keys] if place.listed else list(keys)


class ObjectSpread:
    """Spreads new objects over the partitions of their policies."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._definitions = connection.definitions
        self._choosing = CreatePlacement(connection.config, PartitionLoads(connection.router), connection.name.encode())

    def spread(self, place: Place, owner: Owner, writes: Sequence[Write]) -> dict[str, Work]:
        """Return the creates of one place as works by partition. MapperError, ConfigError of a mapper that is asked at
        create."""
        if not place.listed:
            return {place.partition: Work((), tuple(writes))}
        parts: dict[str, list[Write]] = {place.partition: []}
        for write in writes:
            parts.setdefault(self._choosing.next_of(owner, partial(self._made, write)), []).append(write)
        nothing: dict[bytes, StoredEntry] = {}
        rows = [row for at, its in parts.items() for row in beside(its, at, lambda key: place, nothing.get)]
        parts[place.partition].extend(Write(*row) for _, row in rows)
        return {partition: Work((), tuple(its)) for partition, its in parts.items()}

    def _made(self, write: Write) -> NewObject:
        assert write.value is not None, "it is created"
        return new_object(self._definitions.of(write.value), write.value)
