"""This module watches one ZooKeeper node, or set of children: read, tell, set the watch with the read, read again when
it fires.

A one-shot watch misses nothing this way: it is set by the very read whose value is told. Connection losses end an
attempt silently; the coordinator arms every watch again at each CONNECTED. Replies come in order on one connection, so
the newest value is told last. Nothing here blocks: all reads are asynchronous. kazoo's own threads call `_fired` and
the answers, which ask for nothing themselves: they leave that to the thread of `soon`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType

from halog.ports import Versioned

_NEVER = object()
Run = Callable[[Callable[[], object]], None]
"""Runs something soon, on another thread."""


class Watch(ABC):
    """This is the base of watches. `arm` may be called at any time; kazoo keeps at most one watcher of ours, as
    `_fired` is one object."""

    def __init__(self, client: Any, path: str, soon: Run, deliver: Run) -> None:
        self._client = client
        self._path = path
        self._soon = soon
        self._deliver = deliver
        self._watcher = self._fired
        self._told: object = _NEVER

    @abstractmethod
    def arm(self) -> Any:
        """Read, with the watch set by the read; return kazoo's promise of the answer."""

    def _fired(self, event: Any) -> None:
        if event.type != EventType.NONE:  # NONE: the session ended; CONNECTED will arm us
            self._soon(self.arm)

    def _look_for(self) -> None:
        """Ask to be told when the node is created: it is not there."""
        self._client.exists_async(self._path, watch=self._watcher).rawlink(self._absent)

    def _absent(self, found: Any) -> None:
        """Take the answer of the `exists` that watches for the node's creation."""
        if not found.successful():
            return
        if found.value is not None:
            self._soon(self.arm)  # created between the two requests
        else:
            self._told_absent()

    def _tell(self, mark: object, job: Callable[[], None]) -> None:
        if mark != self._told:
            self._told = mark
            self._deliver(job)

    @abstractmethod
    def _told_absent(self) -> None:
        """Tell that the node is not there."""


class DataWatch(Watch):
    """A `DataWatch` watches one node's bytes. A re-created node is told even with equal bytes: nodes are compared by
    the change's zxid."""

    def __init__(
        self,
        client: Any,
        path: str,
        soon: Run,
        deliver: Run,
        changed: Callable[[Versioned | None], None],
    ) -> None:
        super().__init__(client, path, soon, deliver)
        self._changed = changed

    def arm(self) -> Any:
        asked = self._client.get_async(self._path, watch=self._watcher)
        asked.rawlink(self._answered)
        return asked

    def _answered(self, found: Any) -> None:
        if isinstance(found.exception, NoNodeError):
            self._soon(self._look_for)
        elif found.successful():
            data, stat = found.value
            self._tell(stat.mzxid, lambda: self._changed(Versioned(data, stat.version)))

    def _told_absent(self) -> None:
        self._tell(None, lambda: self._changed(None))


class ChildrenWatch(Watch):
    """A `ChildrenWatch` watches the names below a node. A child that was deleted and created again is told: sets are
    compared by the zxid of the last change among the children."""

    def __init__(
        self,
        client: Any,
        path: str,
        soon: Run,
        deliver: Run,
        changed: Callable[[list[str]], None],
    ) -> None:
        super().__init__(client, path, soon, deliver)
        self._changed = changed

    def arm(self) -> Any:
        asked = self._client.get_children_async(self._path, watch=self._watcher, include_data=True)
        asked.rawlink(self._answered)
        return asked

    def _answered(self, found: Any) -> None:
        if isinstance(found.exception, NoNodeError):
            self._soon(self._look_for)
        elif found.successful():
            children, stat = found.value
            names = sorted(children)
            self._tell(stat.pzxid if names else None, lambda: self._changed(names))

    def _told_absent(self) -> None:
        self._tell(None, lambda: self._changed([]))
