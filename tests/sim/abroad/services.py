"""A site's log and coordinator as code of `halog.runtime` asks them, from that site or over the line from another one.

Each question takes its time, if a task asks it: others go on meanwhile. Over a line that is cut, a question that only
reads has no answer, and what was to be written may have been. The site's own coordinator loses answers, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

import halog
from halog.core import events as ev
from halog.core.ids import location_code
from halog.core.table.table import PartitionTable
from halog.errors import DeadlineError, UnreachableError, VersionError
from halog.metadata.nodes import NodeInfo
from halog.ports import Delivery, Entry, TopicPartition, UnknownResult, Versioned
from halog.runtime.rpc.versions import SPOKEN
from tests.sim.abroad.wire import Way
from tests.sim.coordinator import LATE_MS
from tests.sim.nature import Fate

if TYPE_CHECKING:
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.node import Process

T = TypeVar("T")
TP = TopicPartition("t", 0)
ARRIVED = TopicPartition("sim.arrived", 0)
"""What other sites tell has arrived there."""
TABLE = "partitions/p"
PATIENCE_MS = 25.0
"""Until a question is given up that nobody answers."""


class Asker(NamedTuple):
    """Who asks: a process of site `site`, or an operator there."""

    site: str
    process: Process | None = None


class _Service:
    """Of site `world`, asked by `asker`."""

    def __init__(self, world: SiteWorld, asker: Asker) -> None:
        self._world = world
        self._asker = asker

    def _ask(self, what: str) -> Way:
        """Wait for an answer; what becomes of it."""
        here, there, pair = self._asker.site, self._world.site, self._world.pair
        task = pair.tasks.current
        if task is None:
            return pair.wire.way(here, there)
        pair.tasks.step(f"{what.split('/')[0]}{'' if here == there else ' there'}", pair.cover.hit)
        pair.tasks.sleep(pair.wire.delay(here, there))
        way = pair.wire.way(here, there)
        if way is not Way.FINE:
            pair.tasks.sleep(PATIENCE_MS * pair.engine.rng.random())
        return way

    def _read(self, what: str) -> None:
        if self._ask(what) is not Way.FINE:
            raise UnreachableError(f"site {self._world.site} does not answer ({what})")

    def close(self) -> None:
        """Nothing is kept."""


class Znodes:
    """What one site's coordinator holds beside the partition's table."""

    def __init__(self) -> None:
        self.at: dict[str, Versioned] = {}
        self.version = 0
        self.watched: list[tuple[str, Process, Callable[[], None]]] = []
        """A path, or one whose children are watched, ending with a slash; who watches; what is to be called."""


class SiteCoordinator(_Service):
    """As much of `halog.ports.Coordinator` as is asked."""

    def _cut_off(self) -> bool:
        p = self._asker.process
        return p is not None and p.world is self._world and not p.coordinator.up

    def get(self, path: str) -> Versioned | None:
        self._read(f"get {path}")
        if self._cut_off():
            raise UnreachableError("the coordinator's session is lost")
        return self._get(path)

    def _get(self, path: str) -> Versioned | None:
        c = self._world.coordinator
        if path == TABLE:
            return Versioned(c.table.to_bytes(), c.version)
        if path.startswith("nodes/"):
            node = self._world.nodes[path.removeprefix("nodes/")]
            return None if node.process is None else Versioned(_registered(node.process), 0)
        return self._world.znodes.at.get(path)

    def sync(self, path: str) -> None:
        """Reads are never old here."""

    def children(self, path: str) -> list[str]:
        self._read(f"children {path}")
        if self._cut_off():
            raise UnreachableError("the coordinator's session is lost")
        return self._children(path)

    def _children(self, path: str) -> list[str]:
        if path == "nodes":
            return sorted(p.name for p in self._world.processes() if p.coordinator.up)
        below = f"{path}/"
        return sorted(name.removeprefix(below) for name in self._world.znodes.at if name.startswith(below))

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        self._watch(path, lambda: changed(path, self._get(path)))

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        self._watch(f"{path}/", lambda: changed(self._children(path)))

    def _watch(self, path: str, call: Callable[[], None]) -> None:
        assert self._asker.process is not None
        self._world.znodes.watched.append((path, self._asker.process, call))
        self._call_soon(self._asker.process, call)

    def _call_soon(self, p: Process, call: Callable[[], None]) -> None:
        """Some time later, with what is there then."""
        self._world.engine.at(self._world.nature.delay(self._world.nature.watch), self._call, p, call)

    def _call(self, p: Process, call: Callable[[], None]) -> None:
        if p.alive and (p.paused or not p.coordinator.up):
            self._call_soon(p, call)
        elif p.alive:
            call()

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        def put() -> bool:
            if self._get(path) is not None:
                return False
            self._put(path, data)
            return True

        return self._write(f"create {path}", put)

    def set(self, path: str, data: bytes, version: int) -> int:
        def put() -> int | None:
            there = self._get(path)
            if there is None or there.version != version:
                return None
            return self._put(path, data)

        made = self._write(f"set {path}", put)
        if made is None:
            raise VersionError(f"{path} has another version than {version}")
        return made

    def delete(self, path: str, version: int = -1) -> bool:
        def put() -> bool | None:
            there = self._get(path)
            if there is not None and version not in (-1, there.version):
                return None
            return self._world.znodes.at.pop(path, None) is not None

        made = self._write(f"delete {path}", put)
        if made is None:
            raise VersionError(f"{path} has another version than {version}")
        return made

    def _put(self, path: str, data: bytes) -> int:
        world = self._world
        if path == TABLE:
            table, task = PartitionTable.from_bytes(data), world.pair.tasks.current
            by = f"{self._asker.site} {task.name if task else ''}"
            world.engine.say(f"{world.site}'s table by {by}: epoch {table.epoch.number}, owner {table.owner or '-'}")
            world.coordinator.put(table)
            return world.coordinator.version
        world.znodes.version += 1
        world.znodes.at[path] = Versioned(data, world.znodes.version)
        for watched, p, call in world.znodes.watched:
            if p.alive and path.startswith(watched) and (path == watched or watched.endswith("/")):
                self._call_soon(p, call)
        world.written(path, data)
        return world.znodes.version

    def _write(self, what: str, put: Callable[[], T]) -> T:
        world = self._world
        way, fate = self._ask(what), world.nature.cas_fate()
        if self._cut_off():
            way = Way.LOST
        if way is Way.LOST or fate is Fate.FAILED:
            raise UnknownResult(f"nobody answered ({what})")
        if fate is Fate.LATE:
            late: Callable[..., None] = put  # type: ignore[assignment]  # nobody hears of it
            world.engine.at(world.nature.delay(LATE_MS), late)
            raise UnknownResult(f"nobody answered ({what})")
        made = put()
        if way is Way.UNSAID or fate is Fate.UNSAID:
            raise UnknownResult(f"nobody answered ({what})")
        return made


def _registered(p: Process) -> bytes:
    info = NodeInfo(p.name, p.me.incarnation, "", location_code(p.name), True, 0, halog.__version__, protocols=SPOKEN)
    return msgspec.json.encode(info)


class SiteLog(_Service):
    """As much of `halog.ports.Log` as is asked. Its definitions of classes are the same everywhere."""

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        if tp not in (TP, ARRIVED):
            return 0, 0
        self._read("bounds")
        return 0, len(self._world.topic(tp).entries)

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        if self._ask("read") is not Way.FINE:
            raise DeadlineError(f"the log of site {self._world.site} did not come in time")
        entries = self._world.log.entries
        for offset in range(start, min(end, len(entries))):
            yield Entry(tp, offset, entries[offset].data, offset)

    def read_keyed(self, tp: TopicPartition, start: int) -> Iterator[tuple[bytes, bytes]]:
        """Nobody takes snapshots."""
        return iter(())

    def session(self) -> SiteSession:
        return SiteSession(self._world, self._asker)

    def tail(self, *, patient: bool = False, slow: bool = False) -> SiteTail:
        return SiteTail(self._world, self._asker)


class SiteTail(_Service):
    """Reads one log."""

    _tp = TP
    _at: int | None = None
    _end = -1

    def known_end(self, tp: TopicPartition) -> int:
        return self._end

    def follow(self, tp: TopicPartition, offset: int) -> None:
        self._tp = tp
        self._at = offset

    def unfollow(self, tp: TopicPartition) -> None:
        self._at = None

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry]:
        """Silent as long as nothing comes through."""
        if self._ask("poll") is not Way.FINE or self._at is None:
            return ()
        entries, rng = self._world.topic(self._tp).entries, self._world.engine.rng
        self._end = len(entries)
        first, self._at = self._at, min(self._at + rng.choice((1, 3, 20)), len(entries))
        return [Entry(self._tp, offset, entries[offset].data, offset) for offset in range(first, self._at)]


class SiteSession(_Service):
    """A producer's. What it sends over the line may land, whatever comes back."""

    def __init__(self, world: SiteWorld, asker: Asker) -> None:
        super().__init__(world, asker)
        writer = "operator" if asker.process is None else f"{asker.process.name}/{asker.process.me.incarnation} mirror"
        self._writer = f"{writer} of {asker.site}"
        self._inner = {TP: world.log.session(self._writer, self._heard)}
        self._due: deque[Callable[[], None]] = deque()
        self._waiting: dict[int, Delivery] = {}
        self._tag = 0
        self.failed: str | None = None
        world.pair.sessions.append((asker, self))

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        if self._world.pair.tasks.current is not None:
            self._world.pair.tasks.step("append", self._world.pair.cover.hit)
        way = self._world.pair.wire.way(self._asker.site, self._world.site)
        self._tag += 1
        self._waiting[self._tag] = done
        if way is not Way.LOST and self.failed is None:
            if tp not in self._inner:
                self._inner[tp] = self._world.topic(tp).session(self._writer, self._heard)
            self._inner[tp].append(self._tag, data)
        if way is not Way.FINE or self.failed is not None:
            self._fail("nobody answered")

    def _heard(self, event: ev.Event) -> None:
        if isinstance(event, ev.Appended) and self.failed is None:
            self._say(event.tag, event.offset, None)
        elif isinstance(event, ev.AppendFailed):
            self._fail(event.why)

    def _fail(self, why: str) -> None:
        """All that it still held, too."""
        self.failed = self.failed or why
        for tag in list(self._waiting):
            self._say(tag, None, why)

    def _say(self, tag: int, offset: int | None, why: str | None) -> None:
        done = self._waiting.pop(tag, None)
        if done is not None:
            self._due.append(lambda: done(offset, why))

    def poll(self, timeout_s: float) -> int:
        if timeout_s and not self._due and self._world.pair.tasks.current is not None:
            self._world.pair.tasks.sleep(2.0)
        ran = 0
        while self._due:
            self._due.popleft()()
            ran += 1
        return ran

    def abandon(self) -> None:
        """What was sent may still land."""
        for inner in self._inner.values():
            inner.abandon()
