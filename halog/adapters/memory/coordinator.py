"""This module implements the Coordinator port on a shared `MemoryTree`, with sessions that tests can suspend, expire
and make forgetful.

Read this to know what the ZooKeeper adapter owes. Callbacks run on the coordinator's own thread, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from halog.adapters.memory.faults import Faults
from halog.adapters.memory.tree import MemoryTree, MemoryZnode
from halog.adapters.znode_size import check_size
from halog.adapters.zookeeper.callback_thread import Dispatcher
from halog.errors import UnreachableError
from halog.ports import SessionState, UnknownResult, Versioned

__all__ = ["MemoryCoordinator", "MemoryTree"]
T = TypeVar("T")


class MemoryCoordinator:
    """Has one node's session on a tree; `MemoryCoordinator()` alone has a tree of its own."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self.tree = tree or MemoryTree()
        self.faults = Faults()
        """Holds the faults of this session alone."""
        self.session = 0
        self._state = SessionState.LOST
        self._on_state: Callable[[SessionState], None] = lambda state: None
        self._dispatch: Dispatcher | None = None
        self._watches: list[Callable[[], None]] = []
        self._lose_reply = 0

    # ---- the port

    def connect(self, on_state: Callable[[SessionState], None], wait_s: float | None = None) -> None:
        self._on_state = on_state
        self._dispatch = Dispatcher("coordinator")
        self.session = self.tree.open_session()
        self._enter(SessionState.CONNECTED)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        return self._perform("create", path, lambda: self._create(path, data, ephemeral))

    def _create(self, path: str, data: bytes, ephemeral: bool) -> bool:
        self._check()
        check_size(path, data)
        made = self.tree.create(path, data, self.session if ephemeral else 0)
        if not self._reply_lost():
            return made
        # As the real one: it asks again, and recognises its own ephemeral node by owner and content.
        return ephemeral and self.tree.owner(path) == self.session and self.tree.get(path) == Versioned(data, 0)

    def get(self, path: str) -> Versioned | None:
        self._check()
        return self._perform("get", path, lambda: self.tree.get(path))

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        return [self.get(path) for path in paths]

    def set(self, path: str, data: bytes, version: int) -> int:
        return self._perform("set", path, lambda: self._set(path, data, version))

    def _set(self, path: str, data: bytes, version: int) -> int:
        self._check()
        check_size(path, data)
        result = self.tree.set(path, data, version)
        if self._reply_lost():
            raise UnknownResult(f"set {path}: the reply was lost")
        return result

    def confirm(self, path: str, version: int) -> None:
        self._perform("confirm", path, lambda: self._confirm(path, version))

    def _confirm(self, path: str, version: int) -> None:
        self._check()
        self.tree.confirm(path, version)
        if self._reply_lost():
            raise UnknownResult(f"confirm {path}: the reply was lost")

    def delete(self, path: str, version: int = -1) -> bool:
        return self._perform("delete", path, lambda: self._delete(path, version))

    def _delete(self, path: str, version: int) -> bool:
        self._check()
        done = self.tree.delete(path, version)
        if self._reply_lost():
            raise UnknownResult(f"delete {path}: the reply was lost")
        return done

    def children(self, path: str) -> list[str]:
        self._check()
        return self._perform("children", path, lambda: self.tree.children(path))

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        _Watch(self, path, lambda: self.tree.get(path), lambda value: changed(path, value))

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        _Watch(self, path, lambda: self.tree.born(path), lambda born: changed([n for n, _ in born]), of="children")

    def watch_members(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        told: dict[str, MemoryZnode] = {}

        def differing(now: dict[str, MemoryZnode]) -> None:
            for gone in told.keys() - now.keys():
                del told[gone]
                changed(gone, None)
            for name, node in now.items():
                if told.get(name) != node:
                    told[name] = node
                    changed(name, Versioned(node.data, node.version))

        _Watch(self, path, lambda: self.tree.members(path), differing, of="members")

    def joined(self) -> None:
        """Do nothing: nothing here is waited for."""

    def sync(self, path: str) -> None:
        self._perform("sync", path, self._check)

    def close(self) -> None:
        if self._dispatch is not None:
            self.tree.end_session(self.session)
            self._state = SessionState.LOST
            while self._watches:
                self._watches.pop()()
            self._dispatch.close()

    # ---- faults

    def suspend(self) -> None:
        """Break the connection; the session lives on."""
        self._enter(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Bring the connection back: with the old session if it still lives, else LOST and a new one."""
        if not self.tree.is_alive(self.session):
            self._enter(SessionState.LOST)
            self.session = self.tree.open_session()
        self._enter(SessionState.CONNECTED)
        self.tree.touch_all(self)

    def expire(self, *, reconnect: bool = True) -> None:
        """End the session as if the node had been silent; its ephemeral nodes go."""
        self._enter(SessionState.SUSPENDED)
        self.tree.end_session(self.session)
        if reconnect:
            self.resume()

    def lose_reply(self, count: int = 1) -> None:
        """Let the next `count` writes happen, unanswered."""
        self._lose_reply += count

    # ---- inside

    def _perform(self, operation: str, path: str, land: Callable[[], T]) -> T:
        """Carry out an operation, or let it meet the faults of the tree and, before those, of this session."""
        if self.faults or self.tree.faults:
            return self.faults.perform(operation, path, lambda: self.tree.faults.perform(operation, path, land))
        return land()

    def _reply_lost(self) -> bool:
        lost = self._lose_reply > 0
        self._lose_reply -= lost
        return lost

    def _check(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise UnreachableError("the coordinator does not answer", state=self._state.value, coordinator=True)

    @property
    def is_connected(self) -> bool:
        return self._state is SessionState.CONNECTED

    def _enter(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            self.run(lambda: self._on_state(state), urgent=True)

    def run(self, job: Callable[[], None], *, urgent: bool = False) -> bool:
        """Run a job soon; return whether it will be run."""
        if self._dispatch is not None:
            self._dispatch.put(job, urgent=urgent)
        return self._dispatch is not None

    def kept(self, unlisten: Callable[[], None]) -> None:
        self._watches.append(unlisten)


class _Watch(Generic[T]):
    """Reads and tells on the coordinator's thread; it tells only what differs from what it told last."""

    _NEVER = object()

    def __init__(
        self,
        owner: MemoryCoordinator,
        path: str,
        read: Callable[[], T],
        changed: Callable[[T], None],
        *,
        of: str = "node",
    ) -> None:
        self._owner = owner
        self._read = read
        self._changed = changed
        self._told: object = self._NEVER
        self._touched = False
        owner.kept(owner.tree.listen(path, self.touch, of=of, owner=owner))
        self.touch()

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            if not self._owner.run(self._tell):
                self._touched = False

    def _tell(self) -> None:
        self._touched = False
        if not self._owner.is_connected:
            return  # `resume` touches every watch again
        with suppress(UnreachableError):
            value = self._read()
            if value != self._told:
                self._told = value
                self._changed(value)
