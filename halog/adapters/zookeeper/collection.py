"""This module watches all members of a collection by its marks (`halog.adapters.zookeeper.version_marks`), however many
they are.

At each connection: first the marks are watched, then the names of the members, then each member is read. From then on a
mark that fires tells what one member has become, if it is the next change since the last that was seen; if not, all
members of that mark are read. What was read behind a mark is at least as new as the mark.

Nothing is missed: a mark is read by the very request that watches it, and all is read anew once the connection was
broken. Nothing older is told behind something newer: replies come in the order of the requests, and a member's change
has the same zxid in its mark as in itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from halog.adapters.zookeeper import version_marks as zk_marks
from halog.adapters.zookeeper.watch import Run, Watch
from halog.ports import Versioned

BATCH = 100
"""So many requests are under way at once where there are many: others, a registration among them, get in between."""

MISSING = 0, -1
"""Birth and version of a mark that is not there."""

PATIENCE_S = 5.0
"""How long is waited for the last answer of a batch; a connection that breaks is an answer, too."""


class MembersWatch:
    """Tells `changed(path, value)`. `later` runs what can wait on the thread of `soon`, behind everything urgent."""

    def __init__(
        self,
        client: Any,
        absolute: Callable[[str], str],
        collection: str,
        soon: Run,
        later: Run,
        deliver: Run,
        changed: Callable[[str, Versioned | None], None],
        *,
        batch: int = BATCH,
    ) -> None:
        self._client = client
        self._abs = absolute
        self._batch = batch
        self._collection = collection
        self._soon = soon
        self._later = later
        self._deliver = deliver
        self._changed = changed
        self._lock = threading.Lock()
        """Guards what more threads use than the one that runs kazoo's answers."""
        self._marks: dict[int, _MarkWatch] = {}
        self._read_all = True
        self._names: set[str] = set()
        self._told: dict[str, int] = {}
        """By name: the zxid of the change that was told last. ABSENT: it was told that the member is not there."""
        self._children = _NamesWatch(client, absolute(collection), soon, self._listed)

    def arm(self) -> Any:
        """Begin anew, on the connection there is now; return kazoo's promise of the last answer."""
        with self._lock:
            marks = list(self._marks.values())
            self._read_all = True
        for mark in marks:
            mark.seen = None
            mark.arm()
        return self._children.arm()

    def _listed(self, names: Iterable[str]) -> None:
        """Take the names that there are, all of them. Those that were told and are not among them are read, too."""
        now = set(names)
        with self._lock:
            wanted = now if self._read_all else now - self._names
            self._read_all = False
        self._names = now
        self._read(sorted(wanted | (self._present() - now)))

    def _present(self) -> set[str]:
        """Return the names that were told to be there."""
        return {name for name, zxid in self._told.items() if zxid != zk_marks.ABSENT}

    def _marked(self, mark: _MarkWatch, data: bytes, stat: Any) -> None:
        """Take a mark that was read: the first time, or because it has changed."""
        seen, mark.seen = mark.seen, (stat.czxid, stat.version)
        if seen is None or seen == mark.seen:
            return  # its members are read behind this
        said = zk_marks.read(data) if mark.seen == (seen[0], seen[1] + 1) else None
        if said is not None:
            self._tell(said.name, stat.mzxid if said.version != zk_marks.ABSENT else zk_marks.ABSENT, said.value)
        else:
            self._reread(mark)

    def _unmarked(self, mark: _MarkWatch) -> None:
        """Note that a mark is not there (any more)."""
        seen, mark.seen = mark.seen, MISSING
        if seen not in (None, MISSING):
            self._reread(mark)

    def _reread(self, mark: _MarkWatch) -> None:
        self._read([name for name in self._names if zk_marks.slot_of(name) == mark.slot], urgent=True)

    # --- reading ---

    def _read(self, names: Collection[str], *, urgent: bool = False) -> None:
        """Read members on the thread that calls kazoo, some at a time."""
        listed, run = list(names), self._soon if urgent else self._later
        for first in range(0, len(listed), self._batch):
            run(partial(self._ask, listed[first : first + self._batch]))

    def _ask(self, names: list[str]) -> None:
        for slot in {zk_marks.slot_of(name) for name in names} - self._marks.keys():
            mark = _MarkWatch(self._client, self._abs(zk_marks.path_of(self._collection, slot)), self._soon, self, slot)
            with self._lock:
                self._marks[slot] = mark
            mark.arm()
        asked = None
        for name in names:
            asked = self._client.get_async(self._abs(f"{self._collection}/{name}"))
            asked.rawlink(partial(self._answered, name))
        if asked is not None:
            asked.wait(PATIENCE_S)

    def _answered(self, name: str, found: Any) -> None:
        if isinstance(found.exception, NoNodeError):
            self._tell(name, zk_marks.ABSENT, None)
        elif found.successful():
            data, stat = found.value
            self._tell(name, stat.mzxid, Versioned(data, stat.version))

    def _tell(self, name: str, zxid: int, value: Versioned | None) -> None:
        if self._told.get(name, zk_marks.ABSENT) != zxid:
            self._told[name] = zxid
            self._deliver(partial(self._changed, f"{self._collection}/{name}", value))


class _NamesWatch(Watch):
    """A `_NamesWatch` watches the names alone: a member's mark says what becomes of it."""

    def __init__(self, client: Any, path: str, soon: Run, listed: Callable[[Iterable[str]], None]) -> None:
        super().__init__(client, path, soon, _at_once)
        self._listed = listed

    def arm(self) -> Any:
        asked = self._client.get_children_async(self._path, watch=self._watcher)
        asked.rawlink(self._answered)
        return asked

    def _answered(self, found: Any) -> None:
        if isinstance(found.exception, NoNodeError):
            self._soon(self._look_for)
        elif found.successful():
            self._listed(found.value)

    def _told_absent(self) -> None:
        self._listed([])


class _MarkWatch(Watch):
    """A `_MarkWatch` watches one mark. `seen` is its birth and version when it was read last on this connection; None:
    not yet."""

    def __init__(self, client: Any, path: str, soon: Run, of: MembersWatch, slot: int) -> None:
        super().__init__(client, path, soon, _at_once)
        self._of = of
        self.slot = slot
        self.seen: tuple[int, int] | None = None

    def arm(self) -> Any:
        asked = self._client.get_async(self._path, watch=self._watcher)
        asked.rawlink(self._answered)
        return asked

    def _answered(self, found: Any) -> None:
        if isinstance(found.exception, NoNodeError):
            if self.seen is None:  # it may be there by the time that is watched for, with a change that was not read
                self.seen = MISSING
            self._soon(self._look_for)
        elif found.successful():
            self._of._marked(self, *found.value)

    def _told_absent(self) -> None:
        self._of._unmarked(self)


def _at_once(job: Callable[[], object]) -> None:
    job()
