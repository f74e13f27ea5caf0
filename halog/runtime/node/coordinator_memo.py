"""A node's store keeps this of the coordinator, in case that loses its data: see `halog.runtime.node.cluster_recovery`.

Key, behind `halog:znode:`, the path; its value is MessagePack [when it was noted, in ms since 1970, the content]. Kept
are partition tables, policies with their mappings, bindings, activated configurations, the cluster's level, an upgrade
under way, zones that were switched, and drained nodes: what the logs do not tell, and what operators have decided. It
may be a few seconds old, and nothing but a recovery reads it; where the logs know better they count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.metadata.cluster_level import LEVEL_PATH
from halog.metadata.config_versions import ACTIVE, OLD
from halog.metadata.upgrades import PATH as UPGRADE_PATH
from halog.ports import Coordinator, Store
from halog.runtime.node.cluster_identity import identity
from halog.runtime.support.clock import wall_ms

logger = logging.getLogger("halog.host")

LOOK_S: Final = 2.0
"""Between two looks; a mapping that changes is noted in the next turn."""

TURN_S: Final = 0.2

FILES: Final = ("bindings", ACTIVE, LEVEL_PATH, UPGRADE_PATH)
MARKS: Final = ("zones", "drained")
FOLDERS: Final = ("policies", OLD, *MARKS)

_PREFIX: Final = b"halog:znode:"
_NOTED = msgspec.msgpack.Decoder(tuple[int, bytes])


class NotedZnode(NamedTuple):
    """This is the content of a znode, and when it was noted, by the clock of the node that did."""

    at_ms: int
    data: bytes


def noted(store: Store) -> dict[str, NotedZnode]:
    """Return what was noted, by path. What cannot be read is passed over: it is a help, not a promise."""
    found = {}
    for key, value in store.scan(_PREFIX):
        try:
            found[key[len(_PREFIX) :].decode()] = NotedZnode(*_NOTED.decode(value))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            logger.warning("what is noted in the store under %r cannot be read", key)
    return found


class CoordinatorMemo:
    """Keeps in a node's store what the coordinator has."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Store,
        tables: Callable[[], Iterable[tuple[int, PartitionTable]]],
        stirred: threading.Event | None = None,
    ) -> None:
        """Note `tables` as the node knows them from its watches. `stirred` is set when it is to look now, as a mapping
        has changed."""
        self._coordinator = coordinator
        self._store = store
        self._tables = tables
        self._known: dict[str, bytes] = {}
        """As stored by this run."""
        self._seen: dict[str, int] = {}
        """By partition, the version of the table that is stored."""
        self._stirred = stirred or threading.Event()
        self._due = 0.0

    def turn(self, pause: Callable[[float], bool]) -> None:
        """Wait, and note what is new; `pause` says whether the node closes."""
        if pause(TURN_S) or not (self._stirred.is_set() or time.monotonic() >= self._due):
            return
        self._stirred.clear()
        self._due = time.monotonic() + LOOK_S
        try:
            self.look()
        except HalogError as e:
            logger.debug("what the coordinator has is not noted this time: %s", e)

    def look(self) -> None:
        """Note what is new. A coordinator without the cluster's id has lost all: what is kept is kept for then."""
        before = identity(self._coordinator)
        now = dict(self._read())
        if before is None or identity(self._coordinator) != before:
            return
        now_ms = wall_ms()
        changes: list[tuple[bytes, bytes | None]] = [
            (_key(path), msgspec.msgpack.encode((now_ms, data)))
            for path, data in now.items()
            if self._known.get(path) != data
        ]
        changes += [(_key(path), None) for path in self._known if path not in now and _is_mark(path)]
        self._known = now
        for version, table in list(self._tables()):
            if self._seen.get(table.name) != version:
                noted_ = msgspec.msgpack.encode((now_ms, table.to_bytes()))
                changes.append((_key(f"partitions/{table.name}"), noted_))
                self._seen[table.name] = version
        if changes:
            self._store.write(changes)

    def _read(self) -> Iterator[tuple[str, bytes]]:
        for path in FILES:
            found = self._coordinator.get(path)
            if found is not None:
                yield path, found.data
        for folder in FOLDERS:
            for path in (f"{folder}/{name}" for name in self._coordinator.children(folder)):
                if folder == OLD and path in self._known:  # it never changes
                    yield path, self._known[path]
                elif (found := self._coordinator.get(path)) is not None:
                    yield path, found.data


def newest(stores: Iterable[Mapping[str, NotedZnode]]) -> dict[str, bytes]:
    """Return the newest of what several nodes have noted: each path as it was noted last. A mark counts only if the
    node has it that looked last."""
    kept = [found for found in stores if found]
    latest = max(kept, key=lambda found: max(n.at_ms for n in found.values()), default={})
    merged: dict[str, NotedZnode] = {}
    for found in kept:
        for path, one in found.items():
            if (not _is_mark(path) or path in latest) and (path not in merged or merged[path].at_ms < one.at_ms):
                merged[path] = one
    return {path: one.data for path, one in merged.items()}


def _is_mark(path: str) -> bool:
    """Is it one that goes again?"""
    return path.rpartition("/")[0] in MARKS


def _key(path: str) -> bytes:
    return _PREFIX + path.encode()
