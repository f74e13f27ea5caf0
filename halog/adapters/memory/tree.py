"""This module is the shared half of the memory coordinator: versioned nodes, sessions and listeners. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from halog.adapters.memory.faults import Faults
from halog.errors import CoordinatorError, VersionError
from halog.ports import Versioned


@dataclass(frozen=True)
class MemoryZnode:
    """Holds one znode; `owner` is the session an ephemeral one dies with, 0 for the others. `born` tells a re-created
    one."""

    data: bytes
    version: int
    owner: int
    born: int


@dataclass(frozen=True, eq=False)
class Listener:
    """Hears of changes of one node, or of its set of children, or of any of these."""

    path: str
    of: str
    """`node`, `children` or `members`."""
    touch: Callable[[], None]
    owner: object


class MemoryTree:
    """Holds what several `MemoryCoordinator`s of one process share. It calls listeners outside its lock."""

    def __init__(self) -> None:
        self.faults = Faults()
        """Holds the faults of all sessions' operations. Whoever asks the tree itself, as tests do, meets none."""
        self._lock = threading.RLock()
        self._nodes: dict[str, MemoryZnode] = {}
        self._sessions: set[int] = set()
        self._listeners: list[Listener] = []
        self._count = 0

    # ---- nodes

    def create(self, path: str, data: bytes, owner: int) -> bool:
        with self._lock:
            if path in self._nodes:
                return False
            changed = [p for p in _ancestors(path) if p not in self._nodes] + [path]
            for p in changed:
                self._count += 1
                mine = p == path
                self._nodes[p] = MemoryZnode(data if mine else b"", 0, owner if mine else 0, self._count)
        self._tell(changed, changed)
        return True

    def get(self, path: str) -> Versioned | None:
        node = self._nodes.get(path)
        return None if node is None else Versioned(node.data, node.version)

    def owner(self, path: str) -> int:
        node = self._nodes.get(path)
        return 0 if node is None else node.owner

    def set(self, path: str, data: bytes, version: int) -> int:
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                raise CoordinatorError(f"{path} does not exist", path=path)
            _same(path, node, version)
            self._nodes[path] = replace(node, data=data, version=node.version + 1)
        self._tell([path], [])
        return node.version + 1

    def confirm(self, path: str, version: int) -> None:
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                raise CoordinatorError(f"{path} does not exist", path=path)
            _same(path, node, version)

    def delete(self, path: str, version: int) -> bool:
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                return False
            _same(path, node, version)
            if self.children(path):
                raise CoordinatorError(f"{path} has children", path=path)
            del self._nodes[path]
        self._tell([path], [path])
        return True

    def children(self, path: str) -> list[str]:
        head = path.rstrip("/") + "/"
        with self._lock:
            return sorted(p[len(head) :] for p in self._nodes if p.startswith(head) and "/" not in p[len(head) :])

    def born(self, path: str) -> tuple[tuple[str, int], ...]:
        """Return the children with the numbers of their creations: it differs once one was deleted and created
        again."""
        head = path.rstrip("/") + "/"
        with self._lock:
            return tuple((name, self._nodes[head + name].born) for name in self.children(path))

    def members(self, path: str) -> dict[str, MemoryZnode]:
        """Return the children, by their paths."""
        head = path.rstrip("/") + "/"
        with self._lock:
            return {head + name: self._nodes[head + name] for name in self.children(path)}

    # ---- sessions

    def open_session(self) -> int:
        with self._lock:
            self._count += 1
            self._sessions.add(self._count)
            return self._count

    def is_alive(self, session: int) -> bool:
        return session in self._sessions

    def end_session(self, session: int) -> None:
        with self._lock:
            self._sessions.discard(session)
            gone = [p for p, n in self._nodes.items() if session and n.owner == session]
            for path in gone:
                del self._nodes[path]
        self._tell(gone, gone)

    # ---- listeners

    def listen(self, path: str, touch: Callable[[], None], *, of: str, owner: object) -> Callable[[], None]:
        """Call `touch` after changes; the result ends that."""
        listener = Listener(path, of, touch, owner)
        with self._lock:
            self._listeners.append(listener)

        def unlisten() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return unlisten

    def touch_all(self, owner: object) -> None:
        """Let every watch of `owner` look again, after a reconnect."""
        with self._lock:
            touched = [x for x in self._listeners if x.owner is owner]
        for listener in touched:
            listener.touch()

    def _tell(self, nodes: list[str], births_and_deaths: list[str]) -> None:
        about = {
            "node": set(nodes),
            "children": {p.rpartition("/")[0] or "/" for p in births_and_deaths},
            "members": {p.rpartition("/")[0] or "/" for p in nodes},
        }
        with self._lock:
            touched = [x for x in self._listeners if x.path in about[x.of]]
        for listener in touched:
            listener.touch()


def _same(path: str, node: MemoryZnode, version: int) -> None:
    if version not in (-1, node.version):
        raise VersionError(f"{path} has version {node.version}, not {version}", path=path, version=node.version)


def _ancestors(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
