"""The Coordinator port: members of a collection that are watched together. Memory and ZooKeeper."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from halog.adapters.memory import MemoryChannel
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import CoordinatorError, UnreachableError, VersionError
from halog.ports import Coordinator, SessionState, UnknownResult, Versioned
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.watch import watch
from tests.contract.rigs_coordinator import CoordinatorRig, MemoryCoordinatorRig, States, wait_for

CONNECTED = SessionState.CONNECTED
MANY = 1_000
LONG_S = 60.0
"""What is allowed where nothing is to be waited for."""
SOON_S = 20.0
"""Long before that, and before an answer is waited for no longer, on a busy machine too."""
TOLD_S = 0.1
"""Of a change, on a calm machine; or twenty times what it takes to ask for it."""


class Told(dict[str, Versioned | None]):
    """The last value told of each member, and how often any was."""

    count = 0

    def __call__(self, path: str, value: Versioned | None) -> None:
        self.count += 1
        self[path] = value


def made(c: Coordinator, count: int) -> list[str]:
    paths = [f"partitions/p-{n}" for n in range(count)]
    for path in paths:
        assert c.create(path, b"0")
    return paths


def is_newest(c: Coordinator, told: Told, paths: Sequence[str]) -> bool:
    return [told.get(path) for path in paths] == list(c.get_many(paths))


def test_many_nodes_are_read_in_the_order_asked(coordinators: CoordinatorRig) -> None:
    """More than are asked for at once, and one that is not there among them."""
    c = coordinators.open()
    paths = made(c, 250)
    c.set(paths[7], b"seven", 0)
    paths[9] = "partitions/none"
    found = c.get_many(paths)
    assert len(found) == 250
    assert (found[7], found[8], found[9]) == (Versioned(b"seven", 1), Versioned(b"0", 0), None)
    assert c.get_many([]) == []
    coordinators.disconnect(c)
    with pytest.raises(UnreachableError):
        c.get_many(paths)


@pytest.mark.feature("N4")
def test_members_are_told_now_and_after_every_change(coordinators: CoordinatorRig) -> None:
    """Those there are, those that come, what becomes of each, and that one is gone; by whomever."""
    a, b, told = coordinators.open(), coordinators.open(), Told()
    a.watch_members("partitions", told)
    b.create("partitions/first", b"0")
    wait_for(lambda: told == {"partitions/first": Versioned(b"0", 0)})
    paths = made(b, 5)
    wait_for(lambda: all(told.get(path) == Versioned(b"0", 0) for path in paths))
    assert b.set(paths[2], b"1", 0) == 1
    a.set(paths[3], b"1", 0)
    wait_for(lambda: told[paths[2]] == told[paths[3]] == Versioned(b"1", 1))
    assert b.delete(paths[4])
    wait_for(lambda: told[paths[4]] is None)
    b.create(paths[4], b"again")
    wait_for(lambda: told[paths[4]] == Versioned(b"again", 0))
    late = Told()
    b.watch_members("partitions", late)
    wait_for(lambda: late == told)


def test_members_are_written_by_the_rules_of_all_nodes(coordinators: CoordinatorRig) -> None:
    """A mark beside them changes none of the answers."""
    c, other = coordinators.open(), coordinators.open()
    assert c.create("partitions/p", b"0")
    assert not c.create("partitions/p", b"1")
    with pytest.raises(VersionError):
        c.set("partitions/p", b"1", 5)
    with pytest.raises(CoordinatorError):
        c.set("partitions/absent", b"", 0)
    assert c.set("partitions/p", b"1", 0) == 1
    assert c.set("partitions/p", b"2", -1) == 2
    with pytest.raises(VersionError):
        c.delete("partitions/p", 0)
    assert c.get("partitions/p") == Versioned(b"2", 2)
    with pytest.raises(UnknownResult):
        coordinators.losing_reply(c, lambda: c.set("partitions/p", b"3", 2))
    other.sync("partitions/p")
    assert other.get("partitions/p") == Versioned(b"3", 3)
    assert other.delete("partitions/p", 3)
    assert not other.delete("partitions/p")


def test_a_set_whatever_the_version_is_told_too(coordinators: CoordinatorRig) -> None:
    """Who sets it does not know which version it comes to."""
    a, b, told = coordinators.open(), coordinators.open(), Told()
    (path,) = made(b, 1)
    a.watch_members("partitions", told)
    wait_for(lambda: path in told)
    for n in range(1, 4):
        b.set(path, b"%d" % n, -1)
        wait_for(lambda n=n: told[path] == Versioned(b"%d" % n, n))  # type: ignore[misc]


@pytest.mark.feature("N4")
def test_of_many_quick_changes_the_last_of_each_is_told(coordinators: CoordinatorRig) -> None:
    """Four write at once, members that share a mark too; nobody is in another one's way, and no change is missed."""
    watching, told = coordinators.open(), Told()
    writers = [coordinators.open() for _ in range(4)]
    paths = made(writers[0], 200)
    watching.watch_members("partitions", told)
    wait_for(lambda: len(told) == len(paths))

    def write(c: Coordinator, own: list[str]) -> None:
        for n in range(10):
            for path in own:
                c.set(path, b"%d" % n, n)

    threads = [threading.Thread(target=write, args=(c, paths[i::4])) for i, c in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: all(told[path] == Versioned(b"9", 10) for path in paths))


@pytest.mark.feature("N4")
def test_members_hold_across_disconnects_and_sessions(coordinators: CoordinatorRig) -> None:
    """What was changed, made and deleted meanwhile is told when the connection is back; and what changes later."""
    states = States()
    a, b, told = coordinators.open(states), coordinators.open(), Told()
    paths = made(b, 20)
    a.watch_members("partitions", told)
    wait_for(lambda: len(told) == len(paths))
    coordinators.disconnect(a)
    b.set(paths[0], b"1", 0)
    b.set(paths[0], b"2", 1)
    b.delete(paths[1])
    b.create("partitions/new", b"n")
    coordinators.reconnect(a)
    wait_for(lambda: told[paths[0]] == Versioned(b"2", 2) and told[paths[1]] is None and "partitions/new" in told)
    coordinators.expire(a)
    b.set(paths[2], b"1", 0)
    wait_for(lambda: told[paths[2]] == Versioned(b"1", 1))
    b.set(paths[3], b"1", 0)
    wait_for(lambda: told[paths[3]] == Versioned(b"1", 1))


@pytest.mark.feature("N4")
def test_a_thousand_members_hold_across_reconnects(coordinators: CoordinatorRig) -> None:
    """However many, a connection that is back is told of within a moment, and what changed meanwhile soon after, by
    those that only watch, too; a change later is told at once, and nothing else is read for it."""
    states, told = States(), Told()
    a, b = coordinators.open(states), coordinators.open()
    paths = made(b, MANY)
    a.watch_members("partitions", told)
    wait_for(lambda: len(told) == MANY, timeout_s=LONG_S)
    for round_ in range(3):
        coordinators.disconnect(a)
        for path in paths[::50]:
            b.set(path, b"%d" % round_, round_)
        coordinators.reconnect(a)
        back = time.monotonic()
        wait_for(lambda: states[-1] is CONNECTED)
        assert a.get(paths[0]) == Versioned(b"%d" % round_, round_ + 1)
        assert time.monotonic() - back < SOON_S
        wait_for(lambda n=round_: all(told[path] == Versioned(b"%d" % n, n + 1) for path in paths[::50]))  # type: ignore[misc]
    wait_for(lambda: is_newest(b, told, paths))
    before, took, asked = told.count, list[float](), list[float]()
    for n in range(20):
        began = time.monotonic()
        b.set(paths[1], b"%d" % n, n)
        while told[paths[1]] != Versioned(b"%d" % n, n + 1):
            assert time.monotonic() - began < SOON_S
            time.sleep(0)
        took.append(time.monotonic() - began)
        began = time.monotonic()
        a.get(paths[1])
        asked.append(time.monotonic() - began)
    assert told.count == before + 20
    assert sorted(took)[10] < max(TOLD_S, 20 * sorted(asked)[10])
    closing = time.monotonic()
    a.close()
    assert time.monotonic() - closing < SOON_S


@pytest.mark.feature("N4")
def test_writers_go_on_while_watching_connections_break(coordinators: CoordinatorRig) -> None:
    """A connection that comes and goes at any moment of a burst misses nothing for good."""
    states = States()
    a, b, told = coordinators.open(states), coordinators.open(), Told()
    paths = made(b, 130)
    a.watch_members("partitions", told)
    done = threading.Event()

    def write() -> None:
        for n in range(6):
            for path in paths:
                b.set(path, b"%d" % n, n)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.wait(0.05):
        coordinators.disconnect(a)
        coordinators.reconnect(a)
    thread.join()
    coordinators.reconnect(a)
    wait_for(lambda: all(told.get(path) == Versioned(b"5", 6) for path in paths))


@pytest.mark.feature("N4", "O3")
def test_a_tool_knows_a_thousand_tables_across_a_reconnect(coordinators: CoordinatorRig) -> None:
    """All of them when its connection is made, and then each change, as a client's router does."""
    a, b = coordinators.open(), coordinators.open()
    tables = [PartitionTable(f"p-{n}", "0" * 32, "topic", n, "policy", ("A", "B"), 1) for n in range(MANY)]
    for table in tables:
        b.create(f"partitions/{table.name}", table.to_bytes())
    router = Router("tool", MemoryChannel(), 1.0)
    watch(a, router, a.children("partitions"))
    assert {name: t for name, (_, t) in router.tables.items()} == {t.name: t for t in tables}

    def led_by(node: str, of: Sequence[PartitionTable], version: int) -> None:
        for table in of:
            led = msgspec.structs.replace(table, active=Member(node, version))
            b.set(f"partitions/{table.name}", led.to_bytes(), version)

    led_by("A", tables[::20], 0)
    wait_for(lambda: all(router.active(t.name) == "A" for t in tables[::20]))
    coordinators.disconnect(a)
    led_by("B", tables[::20], 1)
    coordinators.reconnect(a)
    wait_for(lambda: all(router.active(t.name) == "B" for t in tables[::20]))
    led_by("A", tables[1::20], 0)
    wait_for(lambda: all(router.active(t.name) == "A" for t in tables[1::20]))


def test_a_slow_callback_holds_up_no_other_watch_of_the_server(coordinators: CoordinatorRig) -> None:
    """It may read the coordinator itself, as callbacks do."""
    a, b = coordinators.open(), coordinators.open()
    paths = made(b, 3)
    read: list[Versioned | None] = []
    a.watch_members("partitions", lambda path, value: read.append(a.get(path)))
    wait_for(lambda: len(read) == 3)
    with suppress(VersionError):
        b.set(paths[0], b"1", 0)
    wait_for(lambda: Versioned(b"1", 1) in read)


def test_the_memory_has_no_mark() -> None:
    """Only the real one needs any: what they are is not part of the port."""
    rig = MemoryCoordinatorRig()
    c = rig.open()
    c.create("partitions/p", b"")
    assert c.children("changes") == []
    rig.end()
