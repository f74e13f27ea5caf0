"""Members of a collection, watched by marks: any order of requests, events, lost connections and writes, by seeds.

The server answers in order, a watch fires once, and an event reaches the client before the answer that shows it.
Each of the client's threads may be late: the one that runs answers, the one that runs events, the one that calls kazoo,
and the one that tells.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import EventType

from halog.adapters.zookeeper import version_marks as zk_marks
from halog.adapters.zookeeper.collection import MembersWatch
from halog.ports import Versioned

NAMES = [f"p-{n}" for n in range(9)]
SEEDS = range(300)
Job = Callable[[], object]


class Znode:
    def __init__(self, data: bytes, version: int, czxid: int, mzxid: int) -> None:
        self.data = data
        self.stat = SimpleNamespace(version=version, czxid=czxid, mzxid=mzxid)


class Asked:
    """kazoo's promise of an answer."""

    def __init__(self, run: Callable[[Job], None]) -> None:
        self._run = run
        self._links = list[Callable[[Any], None]]()
        self.ready = False
        self.value: Any = None
        self.exception: Exception | None = None

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        self._links.append(callback)

    def successful(self) -> bool:
        return self.exception is None

    def answer(self, value: Any, exception: Exception | None) -> None:
        self.value = value
        self.exception = exception
        for link in self._links:
            self._run(partial(link, self))

    def wait(self, timeout: float) -> None:
        """Time passes by the scheduler alone."""


class World:
    """One client, one server, and those who write there."""

    def __init__(self, seed: int, batch: int = 100) -> None:
        self.rng = random.Random(seed)
        self.nodes: dict[str, Znode] = {}
        self.zxid = self.asked = 0
        self.watches: dict[tuple[str, str], set[Any]] = {}
        self.requests: deque[tuple[str, str, Any, Asked]] = deque()
        self.wire: deque[Job] = deque()
        """From the server to the client, in order."""
        self.answers, self.events, self.urgent, self.normal, self.told_jobs = (deque[Job]() for _ in range(5))
        self.told: dict[str, Versioned | None] = {}
        self.seen: dict[str, int] = {}
        self.watch = MembersWatch(
            self,
            lambda p: f"/{p}",
            "partitions",
            self.urgent.append,
            self.normal.append,
            self.told_jobs.append,
            self.tell,
            batch=batch,
        )
        self.urgent.append(self.watch.arm)

    def written_before(self) -> None:
        """The members, by a halog that made no marks."""
        self.put("/partitions", b"")
        for name in NAMES:
            self.zxid += 1
            self.put(f"/partitions/{name}", b"%d" % self.zxid)

    # --- what kazoo offers

    def _ask(self, kind: str, path: str, watch: Any) -> Asked:
        asked = Asked(self.answers.append)
        self.asked += 1
        self.requests.append((kind, path, watch, asked))
        return asked

    def get_async(self, path: str, watch: Any = None) -> Asked:
        return self._ask("get", path, watch)

    def exists_async(self, path: str, watch: Any = None) -> Asked:
        return self._ask("exists", path, watch)

    def get_children_async(self, path: str, watch: Any = None) -> Asked:
        return self._ask("children", path, watch)

    # --- the server

    def serve(self) -> None:
        kind, path, watch, asked = self.requests.popleft()
        node = self.nodes.get(path)
        if watch is not None and (node is not None or kind == "exists"):
            self.watches.setdefault(("children" if kind == "children" else "data", path), set()).add(watch)
        if node is None:
            error = None if kind == "exists" else NoNodeError()
            self.wire.append(lambda: asked.answer(None, error))
            return
        head = path + "/"
        below = [p.removeprefix(head) for p in self.nodes if p.startswith(head)]
        value = {"get": (node.data, node.stat), "exists": node.stat, "children": below}[kind]
        self.wire.append(lambda: asked.answer(value, None))

    def _fire(self, kind: str, path: str) -> None:
        for watch in self.watches.pop((kind, path), ()):
            self.wire.append(lambda w=watch: self.events.append(lambda: w(SimpleNamespace(type=EventType.CHANGED))))  # type: ignore[misc]

    def put(self, path: str, data: bytes) -> Znode:
        old = self.nodes.get(path)
        version, born = (0, self.zxid) if old is None else (old.stat.version + 1, old.stat.czxid)
        self.nodes[path] = made = Znode(data, version, born, self.zxid)
        self._fire("data", path)
        if old is None:
            self._fire("children", path.rpartition("/")[0])
        return made

    def write(self) -> bool:
        """One multi: a member, and its mark. Was it there, and is, and is its version known?"""
        self.zxid += 1
        if "/partitions" not in self.nodes:
            self.put("/partitions", b"")
        name = self.rng.choice(NAMES)
        path = f"/partitions/{name}"
        if path in self.nodes and self.rng.random() < 0.1:
            del self.nodes[path]
            self._fire("data", path)
            self._fire("children", "/partitions")
            plain, mark = False, zk_marks.VersionMark(name, zk_marks.ABSENT)
        else:
            node = self.put(path, b"%d" % self.zxid)
            blind = self.rng.random() < 0.1
            plain = node.stat.version > 0 and not blind
            mark = zk_marks.VersionMark(
                name, zk_marks.UNKNOWN if blind else node.stat.version, b"" if blind else node.data
            )
        said = "/" + zk_marks.path_of("partitions", zk_marks.slot_of(name))
        if said not in self.nodes:
            self.put(said, b"")
        self.put(said, zk_marks._ENCODER.encode(mark))
        return plain

    # --- what may happen

    def breaks(self) -> None:
        """The connection, and it is back at once: what was asked is not answered, what was watched not told."""
        for _, _, _, asked in self.requests:
            self.answers.append(partial(asked.answer, None, ConnectionLoss()))
        self.requests.clear()
        self.wire.clear()
        self.watches.clear()
        self.normal.append(self.watch.arm)

    def step(self) -> bool:
        """Let one of those that have something to do do it. False: nobody has."""
        stages: list[Job] = [q for q in (self.wire, self.answers, self.events, self.told_jobs) if q]  # type: ignore[misc]
        if self.urgent or self.normal:
            stages.append(self.urgent or self.normal)  # type: ignore[arg-type]
        if self.requests:
            stages.append(self.serve)
        if not stages:
            return False
        chosen: Any = self.rng.choice(stages)
        if chosen == self.serve:
            self.serve()
        else:
            chosen.popleft()()
        return True

    def tell(self, path: str, value: Versioned | None) -> None:
        if value is not None:
            assert int(value.data) > self.seen.get(path, 0), "an older value behind a newer one, or the same again"
            self.seen[path] = int(value.data)
        self.told[path] = value

    def run(self) -> None:
        hasty = self.rng.random()
        for _ in range(self.rng.randrange(40, 200)):
            if self.rng.random() < hasty:
                self.write()
            for _ in range(self.rng.randrange(6)):
                self.step()
            if self.rng.random() < 0.03:
                self.breaks()
        while self.step():
            pass
        there = {f"partitions/{n}": z for n in NAMES if (z := self.nodes.get(f"/partitions/{n}"))}
        assert {p: v for p, v in self.told.items() if v} == {
            p: Versioned(z.data, z.stat.version) for p, z in there.items()
        }


@pytest.mark.feature("N4")
@pytest.mark.parametrize("before", [False, True], ids=["anew", "written before there were marks"])
@pytest.mark.parametrize("slots", [2, 64])
def test_the_newest_is_told_last_in_any_order(slots: int, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several members to a mark, and with one; a few at a time, so that there are many requests."""
    monkeypatch.setattr(zk_marks, "SLOTS", slots)
    for seed in SEEDS:
        try:
            world = World(seed, 2)
            if before:
                world.written_before()
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.feature("N4")
def test_a_change_is_told_in_one_round_trip_and_reads_nothing_else() -> None:
    """However many members share the mark: it carries what the member has become."""
    world = World(1)
    for _ in range(60):
        world.write()
    while world.step():
        pass
    plain = 0
    for _ in range(40):
        world.asked = 0
        is_plain = world.write()
        while world.step():
            pass
        plain += is_plain
        assert world.asked == 1 or not is_plain, "more than the mark was read"
    assert plain > 20


def test_a_mark_that_somebody_else_has_written_is_none() -> None:
    """Then its members are read."""
    for data in (b"", b"\xc1", b"not one of ours"):
        assert zk_marks.read(data) is None
    assert zk_marks.member_of("partitions/p-0") == ("partitions", "p-0")
    assert [zk_marks.member_of(p) for p in ("partitions", "nodes/A", "partitions/a/b", "/partitions/")] == [None] * 4
