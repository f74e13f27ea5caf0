"""What keeps a partition's log from being trimmed: holds in the coordinator, and the floor they are checked against.

Another site, a running job, an undo or a restore registers the first offset it still needs, under a name of its own and
with an expiry, or as long as its session. Who trims announces the new beginning, the floor, *before* it looks at the
holds; who registers looks at the floor *after* its hold is there. So of the two at least one sees the other: either the
hold stops the trim, or it is refused by name. A hold that was acknowledged is never trimmed over before it expires.
"""

from __future__ import annotations

import logging
import time

import msgspec

from halog.errors import ConfigError, NotFoundError, RefusedError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned

logger = logging.getLogger("halog.retention")

ATTEMPTS = 10
"""At changing a znode somebody else changes, too: each loss means that the other one succeeded."""


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands under `holders/<partition>/<name>`."""

    offset: int
    """The first one still needed."""
    until_ms: int = 0
    """When it ends by itself, in ms since 1970; 0: with the session that made it."""
    why: str = ""


_HOLD = msgspec.json.Decoder(Hold)


def now_ms() -> int:
    """Of the clock that expiries are told in."""
    return time.time_ns() // 1_000_000


def _path(partition: str, name: str = "") -> str:
    return f"holders/{partition}/{name}" if name else f"holders/{partition}"


def hold(coordinator: Coordinator, partition: str, name: str, wanted: Hold) -> None:
    """Register or replace a hold; `until_ms` 0 ends it with this session. RefusedError, and nothing is held under this
    name, if the log is trimmed beyond its offset, or about to be; ConfigError if it has expired."""
    if wanted.until_ms and wanted.until_ms <= now_ms():
        raise ConfigError(f"the hold {name} of {partition} would end before it begins: give it a time to come")
    path, data = _path(partition, name), msgspec.json.encode(wanted)
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        if found is None:
            if coordinator.create(path, data, ephemeral=not wanted.until_ms):
                break
        elif not (wanted.until_ms and _HOLD.decode(found.data).until_ms):
            coordinator.delete(path)  # a session's own: not that of an earlier one, which ends with that
        else:
            try:
                coordinator.set(path, data, found.version)
                break
            except (VersionError, UnknownResult):  # looked at again
                continue
    else:
        raise RefusedError(f"the hold {name} of {partition} is being changed by others", partition=partition)
    first = floor(coordinator, partition)
    if first > wanted.offset:
        coordinator.delete(path)
        raise RefusedError(
            f"offset {wanted.offset} of {partition} cannot be held: its log is trimmed up to {first}",
            partition=partition,
            first=first,
        )


def hold_the_rest(coordinator: Coordinator, partition: str, name: str, first: int, why: str) -> int:
    """Hold what is there for as long as this session: from `first`, or from where it may be trimmed up to. Returns the
    offset."""
    refused = RefusedError(f"the log of {partition} is trimmed faster than it can be held")
    for _ in range(ATTEMPTS):
        offset = max(first, floor(coordinator, partition))
        try:
            hold(coordinator, partition, name, Hold(offset, why=why))
        except RefusedError as error:
            refused = error
        else:
            return offset
    raise refused


def release(coordinator: Coordinator, partition: str, name: str) -> None:
    """End a hold; NotFoundError if there is none of this name."""
    if not coordinator.delete(_path(partition, name)):
        raise NotFoundError(f"nothing of the log of {partition} is held as {name}")


def holds(coordinator: Coordinator, partition: str) -> dict[str, Hold]:
    """All that are registered, by name; those that have expired and were not looked at since, too."""
    return {name: _HOLD.decode(found.data) for name, found in _registered(coordinator, partition)}


def _registered(coordinator: Coordinator, partition: str) -> list[tuple[str, Versioned]]:
    names = sorted(coordinator.children(_path(partition)))
    found = ((name, coordinator.get(_path(partition, name))) for name in names)
    return [(name, data) for name, data in found if data is not None]


def floor(coordinator: Coordinator, partition: str) -> int:
    """Up to where the log is trimmed, or may be soon."""
    path = f"trimmed/{partition}"
    coordinator.sync(path)
    found = coordinator.get(path)
    return 0 if found is None else int(found.data)


def allowed(coordinator: Coordinator, partition: str, wanted: int) -> int:
    """Up to where the log may be trimmed now, if it were up to `wanted` without any holds. Ends holds that have
    expired. To be called by the partition's active node only: others lose the compare-and-set, or win it in vain."""
    _announce(coordinator, partition, wanted)
    coordinator.sync(_path(partition))
    first, now = wanted, now_ms()
    for name, found in _registered(coordinator, partition):
        one = _HOLD.decode(found.data)
        if not one.until_ms or one.until_ms > now:
            first = min(first, one.offset)
        elif _ended(coordinator, _path(partition, name), found.version):
            logger.warning("the log of %s is not held any more as %s: its time is over", partition, name)
        else:  # prolonged meanwhile
            first = min(first, one.offset)
    if first < wanted:
        _announce(coordinator, partition, first)
    return first


def _ended(coordinator: Coordinator, path: str, version: int) -> bool:
    try:
        coordinator.delete(path, version)
    except VersionError:
        return False
    return True


def _announce(coordinator: Coordinator, partition: str, offset: int) -> None:
    path, data = f"trimmed/{partition}", b"%d" % offset
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        if found is None:
            if coordinator.create(path, data):
                return
            continue
        if found.data == data:
            return
        try:
            coordinator.set(path, data, found.version)
            return
        except (VersionError, UnknownResult):
            continue
    raise RefusedError(f"others trim the log of {partition}, too", partition=partition)
