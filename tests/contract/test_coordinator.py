"""The Coordinator port: compare-and-set, sessions, watches that end at the newest value. Memory and ZooKeeper."""

from __future__ import annotations

import threading
import time

import pytest

from halog.errors import CoordinatorError, UnreachableError, VersionError
from halog.ports import MAX_ZNODE_BYTES, SessionState, UnknownResult, Versioned
from tests.contract.rigs_coordinator import CoordinatorRig, States, wait_for

LONG_S = 60.0
"""What is allowed where nothing is to be waited for."""
SOON_S = 20.0
"""Long before that, and before an answer is waited for no longer, on a busy machine too."""

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


def test_nodes_are_made_with_parents_read_and_deleted(coordinators: CoordinatorRig) -> None:
    """A path is created with its parents once, read with its version, listed sorted, and deleted once."""
    c = coordinators.open()
    assert c.create("/p/x/b", b"1")
    assert c.create("/p/x/a", b"2")
    assert not c.create("/p/x/a", b"3")
    assert c.get("/p/x/a") == Versioned(b"2", 0)
    assert c.get("/p/x") == Versioned(b"", 0)
    assert c.children("/p/x") == ["a", "b"]
    assert c.get("/none") is None
    assert c.children("/none") == []
    with pytest.raises(CoordinatorError):
        c.delete("/p/x")
    assert c.delete("/p/x/a")
    assert not c.delete("/p/x/a")


def test_compare_and_set_lets_one_of_two_through(coordinators: CoordinatorRig) -> None:
    """Two nodes set the same version: one wins, the other is told and changes nothing."""
    a, b = coordinators.open(), coordinators.open()
    a.create("/n", b"0")
    assert a.set("/n", b"a", 0) == 1
    with pytest.raises(VersionError):
        b.set("/n", b"b", 0)
    with pytest.raises(VersionError):
        b.delete("/n", 0)
    b.sync("/n")
    assert b.get("/n") == Versioned(b"a", 1)
    with pytest.raises(CoordinatorError):
        a.set("/absent", b"", 0)


@pytest.mark.parametrize("path", ["/n", "/partitions/p-0"])
def test_what_is_too_large_is_refused_and_the_session_lives_on(coordinators: CoordinatorRig, path: str) -> None:
    """By name and before it is sent: ZooKeeper cuts the connection of whoever sends more, and who repeats it then has
    none for good. What is as large as may be is kept, and told to whoever watches it."""
    c, told = coordinators.open(), list[Versioned | None]()
    most, more = b"x" * MAX_ZNODE_BYTES, b"x" * (MAX_ZNODE_BYTES + 1)
    with pytest.raises(CoordinatorError, match=f"{path[1:]} would have 1,000,001 bytes"):
        c.create(path, more)
    assert c.get(path) is None
    assert c.create(path, b"0")
    c.watch_members("/partitions", lambda _path, value: told.append(value))
    assert c.set(path, most, 0) == 1
    with pytest.raises(CoordinatorError, match=r"more than the 1,000,000 that ZooKeeper keeps; nothing was changed"):
        c.set(path, more, 1)
    assert c.get(path) == Versioned(most, 1)
    assert c.delete(path, 1)
    assert c.create(path, most)
    assert c.set(path, most[1:], 0) == 1
    if path != "/n":
        wait_for(lambda: told[-1:] == [Versioned(most[1:], 1)])


@pytest.mark.feature("R5")
def test_a_version_is_confirmed_until_somebody_has_set_another(coordinators: CoordinatorRig) -> None:
    """Ordered with sets: who has set a version knows that no older one is confirmed from then on, to anybody."""
    a, b = coordinators.open(), coordinators.open()
    a.create("/n", b"0")
    a.confirm("/n", 0)
    for n in range(20):
        b.set("/n", b"b", n)
        with pytest.raises(VersionError):
            a.confirm("/n", n)
        a.confirm("/n", n + 1)
    with pytest.raises(CoordinatorError):
        a.confirm("/absent", 0)


def test_racing_sets_count_exactly(coordinators: CoordinatorRig) -> None:
    """Four nodes increment a counter by compare-and-set: none is lost, none doubled."""
    nodes = [coordinators.open() for _ in range(4)]
    nodes[0].create("/count", b"0")

    def count(c: object) -> None:
        for _ in range(25):
            while True:
                found = c.get("/count")  # type: ignore[attr-defined]
                try:
                    c.set("/count", b"%d" % (int(found.data) + 1), found.version)  # type: ignore[attr-defined]
                    break
                except VersionError:
                    pass

    threads = [threading.Thread(target=count, args=(c,)) for c in nodes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    nodes[0].sync("/count")
    assert nodes[0].get("/count") == Versioned(b"100", 100)


def test_a_lost_reply_of_set_is_unknown_and_may_have_happened(coordinators: CoordinatorRig) -> None:
    """No answer is not 'no': UnknownResult, and here the write is found to have happened."""
    a, b = coordinators.open(), coordinators.open()
    a.create("/n", b"0")
    with pytest.raises(UnknownResult):
        coordinators.losing_reply(a, lambda: a.set("/n", b"1", 0))
    b.sync("/n")
    assert b.get("/n") == Versioned(b"1", 1)


def test_a_lost_reply_of_an_ephemeral_create_is_recognised(coordinators: CoordinatorRig) -> None:
    """The node's own ephemeral node, made by a create whose reply was lost, counts as made."""
    a = coordinators.open()
    assert a.create("/live/other", b"")
    assert coordinators.losing_reply(a, lambda: a.create("/live/a", b"me", ephemeral=True)) is True


def test_a_foreign_ephemeral_node_is_not_ours(coordinators: CoordinatorRig) -> None:
    """An ephemeral node of another session stands until that ends, however alike it looks; then it can be taken."""
    a, b = coordinators.open(), coordinators.open()
    assert a.create("/live/a", b"me", ephemeral=True)
    assert not b.create("/live/a", b"me", ephemeral=True)
    a.close()
    wait_for(lambda: b.get("/live/a") is None)
    assert b.create("/live/a", b"me", ephemeral=True)


def test_a_watch_tells_now_and_ends_at_the_newest(coordinators: CoordinatorRig) -> None:
    """The present value is told at once, then every kind of change; after a burst the last told is the newest."""
    a, b = coordinators.open(), coordinators.open()
    told: list[Versioned | None] = []
    paths: set[str] = set()

    def changed(path: str, value: Versioned | None) -> None:
        paths.add(path)
        told.append(value)

    a.watch("/n", changed)
    wait_for(lambda: told == [None])
    b.create("/n", b"0")
    wait_for(lambda: told[-1] == Versioned(b"0", 0))
    for n in range(100):
        b.set("/n", b"%d" % n, n)
    wait_for(lambda: told[-1] == Versioned(b"99", 100))
    b.delete("/n")
    wait_for(lambda: told[-1] is None)
    time.sleep(0.1)
    assert told[-1] is None
    assert paths == {"/n"}
    seen = [v.version for v in told if v is not None]
    assert seen == sorted(seen)


def test_a_recreated_node_is_told_although_it_looks_alike(coordinators: CoordinatorRig) -> None:
    """Delete and create between two looks still ends with the newest value being told."""
    a, b = coordinators.open(), coordinators.open()
    b.create("/n", b"old")
    told: list[Versioned | None] = []
    a.watch("/n", lambda path, value: told.append(value))
    wait_for(lambda: bool(told))
    for n in range(20):
        b.delete("/n")
        b.create("/n", b"%d" % n)
    wait_for(lambda: told[-1] == Versioned(b"19", 0))


def test_a_children_watch_tells_the_names(coordinators: CoordinatorRig) -> None:
    """Names come sorted, now and after every change; a parent that does not exist yet has none."""
    a, b = coordinators.open(), coordinators.open()
    told: list[list[str]] = []
    a.watch_children("/live", told.append)
    wait_for(lambda: told == [[]])
    b.create("/live/y", b"")
    b.create("/live/x", b"", ephemeral=True)
    wait_for(lambda: told[-1] == ["x", "y"])
    b.close()
    wait_for(lambda: told[-1] == ["y"])


def test_a_child_that_was_replaced_is_told(coordinators: CoordinatorRig) -> None:
    """Deleted and created again while this client looked away: the same names, but not the same child. A restarted node
    must not be taken for its former run."""
    a, b = coordinators.open(), coordinators.open()
    b.create("/live/x", b"1")
    told: list[list[str]] = []
    a.watch_children("/live", told.append)
    wait_for(lambda: told == [["x"]])
    coordinators.disconnect(a)
    b.delete("/live/x")
    b.create("/live/x", b"2")
    coordinators.reconnect(a)
    wait_for(lambda: told == [["x"], ["x"]])


@pytest.mark.feature("N4")
def test_a_broken_connection_is_told_at_once(coordinators: CoordinatorRig) -> None:
    """SUSPENDED comes when the connection breaks; until it is back, nothing is sent and nobody is answered."""
    states = States()
    c = coordinators.open(states)
    c.create("/n", b"0")
    wait_for(lambda: states == [CONNECTED])
    coordinators.disconnect(c)
    wait_for(lambda: states[-1] is SUSPENDED)
    with pytest.raises(UnreachableError):
        c.get("/n")
    with pytest.raises(UnreachableError):
        c.set("/n", b"1", 0)
    coordinators.reconnect(c)
    wait_for(lambda: states[-1] is CONNECTED)
    assert states == [CONNECTED, SUSPENDED, CONNECTED]
    assert c.get("/n") == Versioned(b"0", 0)


def test_a_replaced_session_is_lost_then_connected(coordinators: CoordinatorRig) -> None:
    """A session that ended under a living connection is told as LOST before the new one is told as CONNECTED."""
    states = States()
    c = coordinators.open(states)
    other = coordinators.open()
    c.create("/live/c", b"", ephemeral=True)
    wait_for(lambda: states == [CONNECTED])
    coordinators.expire(c)
    wait_for(lambda: len(states) > 2 and states[-1] is CONNECTED)
    assert states[-2:] == [LOST, CONNECTED]
    assert other.get("/live/c") is None
    assert c.create("/live/c", b"", ephemeral=True)


def test_watches_live_on_across_sessions(coordinators: CoordinatorRig) -> None:
    """After the session was replaced, both kinds of watch tell what changed meanwhile and what changes later."""
    states = States()
    a, b = coordinators.open(states), coordinators.open()
    b.create("/live/x", b"1")
    data: list[Versioned | None] = []
    names: list[list[str]] = []
    a.watch("/live/x", lambda path, value: data.append(value))
    a.watch_children("/live", names.append)
    wait_for(lambda: bool(data and names))
    coordinators.expire(a)
    b.set("/live/x", b"2", 0)
    b.create("/live/y", b"")
    wait_for(lambda: data[-1] == Versioned(b"2", 1) and names[-1] == ["x", "y"])
    b.delete("/live/x")
    wait_for(lambda: data[-1] is None and names[-1] == ["y"])


def test_a_change_while_disconnected_is_told_after(coordinators: CoordinatorRig) -> None:
    """A watch misses nothing for good: what changed while the connection was down is told when it is back."""
    a, b = coordinators.open(), coordinators.open()
    b.create("/n", b"0")
    told: list[Versioned | None] = []
    a.watch("/n", lambda path, value: told.append(value))
    wait_for(lambda: bool(told))
    coordinators.disconnect(a)
    b.set("/n", b"1", 0)
    coordinators.reconnect(a)
    wait_for(lambda: told[-1] == Versioned(b"1", 1))


def test_a_slow_callback_holds_up_no_request(coordinators: CoordinatorRig) -> None:
    """A callback may take its time or use the coordinator itself: requests of other threads go on meanwhile."""
    c = coordinators.open()
    c.create("/n", b"0")
    release, inside = threading.Event(), threading.Event()
    read: list[Versioned | None] = []

    def slow(path: str, value: Versioned | None) -> None:
        read.append(c.get("/n"))
        inside.set()
        release.wait(LONG_S)

    c.watch("/n", slow)
    assert inside.wait(LONG_S)
    assert c.set("/n", b"1", 0) == 1
    assert c.get("/n") == Versioned(b"1", 1)
    release.set()
    assert read[0] == Versioned(b"0", 0)


@pytest.mark.feature("N4")
def test_a_thousand_watches_hold_across_a_reconnect(coordinators: CoordinatorRig) -> None:
    """However many there are, a connection that is back is told of at once, and so is what changed meanwhile; requests
    are answered, and closing ends. kazoo's own threads wait for nothing: they would wait for themselves."""
    states = States()
    a, b = coordinators.open(states), coordinators.open()
    paths = [f"/many/{n}" for n in range(1_000)]
    for path in paths:
        b.create(path, b"0")
    told: dict[str, Versioned | None] = {}
    for path in paths:
        a.watch(path, told.__setitem__)
    wait_for(lambda: len(told) == len(paths), timeout_s=LONG_S)
    for round_ in (1, 2):
        coordinators.disconnect(a)
        for path in paths[::100]:
            b.set(path, b"%d" % round_, round_ - 1)
        coordinators.reconnect(a)
        back = time.monotonic()
        wait_for(lambda: states[-1] is CONNECTED)
        assert a.get(paths[0]) == Versioned(b"%d" % round_, round_)
        assert time.monotonic() - back < SOON_S
        wait_for(lambda r=round_: all(told[path] == Versioned(b"%d" % r, r) for path in paths[::100]))  # type: ignore[misc]
    b.set(paths[1], b"1", 0)
    wait_for(lambda: told[paths[1]] == Versioned(b"1", 1))
    closing = time.monotonic()
    a.close()
    assert time.monotonic() - closing < SOON_S
