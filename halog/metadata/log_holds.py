"""This module keeps a partition's log from being trimmed: by holds in the coordinator, and the floor they are checked
against.

Another site, a running job, an undo or a restore registers the first offset it still needs, under a name of its own and
with an expiry, or as long as its session. The node that trims looks at the holds, announces the new beginning, the
floor, and looks at the holds *again*. Whoever registers looks at the floor *after* its hold is there. So at least one
of the two sees the other: either the hold stops the trim, or it is refused. The floor never goes down: a trim that was
announced may happen at any time, even by a node that was replaced long ago. No node trims over a hold that was
acknowledged before it expires, by the clock of the partition's active node, or of the one that mirrors it.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import msgspec

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import ConfigError, NotFoundError, RefusedError, UnreachableError, VersionError
from halog.metadata.cas import ATTEMPTS, attempts, put
from halog.ports import Coordinator, UnknownResult, Versioned

logger = logging.getLogger("halog.retention")

FOREVER_MS = 253_402_300_799_000
"""The last second of the year 9999."""


class Hold(TolerantStruct, frozen=True):
    """Holds what stands under `holders/<partition>/<name>`."""

    offset: int
    """The first offset that is still needed."""
    until_ms: int = 0
    """When it ends by itself, in ms since 1970; 0: with the session that made it."""
    why: str = ""


_HOLD = TolerantDecoder(Hold)


def now_ms() -> int:
    """Return the time, in ms since 1970, by the clock that expiries are told in."""
    return time.time_ns() // 1_000_000


def _path(partition: str, name: str = "") -> str:
    return f"holders/{partition}/{name}" if name else f"holders/{partition}"


def hold(coordinator: Coordinator, partition: str, name: str, wanted: Hold, begins: int = 0) -> None:
    """Register or replace a hold; `until_ms` 0 ends it with this session; `begins` is the log's first offset. Raises
    RefusedError, and leaves everything as it was, if the log is trimmed beyond the hold's offset, or about to be;
    ConfigError if the hold has expired."""
    if wanted.until_ms and wanted.until_ms <= now_ms():
        raise ConfigError(f"the hold {name} of {partition} would end before it begins: give it a time to come")
    _check(partition, wanted, max(begins, floor(coordinator, partition)))
    before, version = _put(coordinator, partition, name, wanted)
    try:
        _check(partition, wanted, floor(coordinator, partition))
    except RefusedError:
        _put_back(coordinator, _path(partition, name), before, version)
        raise


def _check(partition: str, wanted: Hold, first: int) -> None:
    if first > wanted.offset:
        raise RefusedError(
            f"offset {wanted.offset} of {partition} cannot be held: its log is trimmed up to {first}",
            partition=partition,
            first=first,
        )


def _put(coordinator: Coordinator, partition: str, name: str, wanted: Hold) -> tuple[Versioned | None, int]:
    """Write a hold. Returns what was there before, and the version of what is there now."""
    path, fresh = _path(partition, name), tolerant.encode(wanted)
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        try:
            now = None if found is None else _read(partition, name, found.data)
            if found is not None and now is not None and wanted.until_ms and now.until_ms:
                return found, coordinator.set(path, tolerant.encode(tolerant.carrying(wanted, now)), found.version)
            if found is not None:  # a session's own: not that of an earlier one, which ends with that
                coordinator.delete(path, found.version)
            if coordinator.create(path, fresh, ephemeral=not wanted.until_ms):
                return found, 0
        except (VersionError, UnknownResult):  # looked at again
            continue
    raise RefusedError(f"the hold {name} of {partition} is being changed by others", partition=partition)


def _put_back(coordinator: Coordinator, path: str, before: Versioned | None, version: int) -> None:
    with suppress(VersionError, UnknownResult):  # another's by now; or a hold too many, that ends by itself
        if before is None or not version:
            coordinator.delete(path, version)
        else:
            coordinator.set(path, before.data, version)


def hold_the_rest(coordinator: Coordinator, partition: str, name: str, first: int, why: str, until_ms: int = 0) -> int:
    """Hold what is there, for as long as this session or until then: from `first`, where the log begins, or from where
    it may be trimmed up to. Returns the offset."""
    refused = RefusedError(f"the log of {partition} is trimmed faster than it can be held")
    for _ in range(ATTEMPTS):
        offset = max(first, floor(coordinator, partition))
        try:
            hold(coordinator, partition, name, Hold(offset, until_ms, why))
        except RefusedError as error:
            refused = error
        else:
            return offset
    raise refused


def prolong(coordinator: Coordinator, partition: str, name: str, until_ms: int, why: str = "") -> None:
    """Let a hold that is there end later, and say `why` by now; one that ends with a session stays as it is. Where its
    time was over, and the log was trimmed meanwhile, it holds what is left. Raises RefusedError if others change it all
    the time."""
    for attempt in attempts(coordinator, _path(partition, name), synced=False):
        now = None if attempt.found is None else _read(partition, name, attempt.found.data)
        if now is None or not now.until_ms:
            return
        first = max(now.offset, floor(coordinator, partition))
        if first == now.offset and now.until_ms >= until_ms:
            return
        longer = msgspec.structs.replace(now, offset=first, until_ms=max(until_ms, now.until_ms), why=why or now.why)
        attempt.write(tolerant.encode(longer))  # looked at again in any case: the floor, too
    raise RefusedError(f"the hold {name} of {partition} is being changed by others", partition=partition)


def release(coordinator: Coordinator, partition: str, name: str) -> None:
    """End a hold. Raises NotFoundError if there is none of this name."""
    try:
        there = coordinator.delete(_path(partition, name))
    except UnknownResult as e:
        raise UnreachableError(f"it is not known whether the hold {name} of {partition} has ended: {e}") from None
    if not there:
        raise NotFoundError(f"nothing of the log of {partition} is held as {name}")


def holds(coordinator: Coordinator, partition: str) -> dict[str, Hold]:
    """Return all holds that are registered, by name; also those that have expired and were not looked at since."""
    return {name: _read(partition, name, found.data) for name, found in _registered(coordinator, partition)}


def _registered(coordinator: Coordinator, partition: str) -> list[tuple[str, Versioned]]:
    names = sorted(coordinator.children(_path(partition)))
    found = ((name, coordinator.get(_path(partition, name))) for name in names)
    return [(name, data) for name, data in found if data is not None]


def _read(partition: str, name: str, data: bytes) -> Hold:
    """Decode a hold. One that cannot be read, of a later version perhaps, holds everything."""
    try:
        return _HOLD.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        logger.warning("the hold %s of %s cannot be read, so it holds everything: %s", name, partition, e)
        return Hold(0, FOREVER_MS, "cannot be read")


def floor(coordinator: Coordinator, partition: str) -> int:
    """Return up to where the log is trimmed, or may be soon. It never goes down."""
    path = f"trimmed/{partition}"
    coordinator.sync(path)
    found = coordinator.get(path)
    return 0 if found is None else int(found.data)


def allowed(coordinator: Coordinator, partition: str, wanted: int) -> int:
    """Return up to where the log may be trimmed now, if it were up to `wanted` without any holds. Ends holds that have
    expired. To be called by the node that takes the partition's snapshots; another node that calls it respects all
    holds, too."""
    first = _lowest(coordinator, partition, wanted)
    _announce(coordinator, partition, first)
    return _lowest(coordinator, partition, first)


def _lowest(coordinator: Coordinator, partition: str, wanted: int) -> int:
    coordinator.sync(_path(partition))
    first, now = wanted, now_ms()
    for name, found in _registered(coordinator, partition):
        one = _read(partition, name, found.data)
        if not one.until_ms or one.until_ms > now:
            first = min(first, one.offset)
        elif _ended(coordinator, _path(partition, name), found.version):
            logger.warning("the log of %s is not held any more as %s: its time is over", partition, name)
        else:  # prolonged meanwhile
            first = min(first, one.offset)
    return first


def _ended(coordinator: Coordinator, path: str, version: int) -> bool:
    try:
        coordinator.delete(path, version)
    except VersionError:
        return False
    return True


def _announce(coordinator: Coordinator, partition: str, offset: int) -> None:
    def made(before: bytes | None) -> bytes | None:
        return None if before is not None and int(before) >= offset else b"%d" % offset

    if not put(coordinator, f"trimmed/{partition}", made):
        raise RefusedError(f"others trim the log of {partition}, too", partition=partition)
