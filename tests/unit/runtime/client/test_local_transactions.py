"""With `read="local"` a transaction sees one moment of each partition, whatever is changed meanwhile (R5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import halog
from halog.errors import ConflictError
from halog.runtime.client import partition_views as viewing
from halog.runtime.replica import named_moments as named
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc.pages import PAGE_OBJECTS
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.token import Token

pytestmark = pytest.mark.feature("R5")
REGISTRY = Registry()

MANY = PAGE_OBJECTS + 100
"""Objects of an extent that takes two pages."""


@halog.managed(key=("pair", "side"), partition_by="pair", registry=REGISTRY)
class Twin:
    pair: str
    side: int
    value: int = 0

    def sum(self) -> int:
        return self.value + halog.current().get(Twin, self.pair, 1 - self.side).value


@pytest.fixture
def local_sync() -> str:
    return "WRITE_NO_SYNC"


@pytest.fixture
def cluster(local_sync: str) -> Iterator[Cluster]:
    made = Cluster(2, partitions=1, registry=REGISTRY)
    policy = replace(made.config.policies["test"], local_sync=local_sync)
    made.config = replace(made.config, policies={"test": policy}).validate()
    with made as cluster:
        with cluster.client().transaction() as tx:
            for side in (0, 1):
                tx.create(Twin("a", side))
        cluster.settle()
        wait_until(lambda: has_all(cluster.node(passive(cluster))), "the replica has it")
        yield cluster


def copy_on(cluster: Cluster, name: str) -> Copy:
    return cluster.node(name).runtime.copies["test-0"]


def active(cluster: Cluster) -> str:
    return cluster.active_for(Twin, "a", 0)


def passive(cluster: Cluster) -> str:
    return next(name for name in cluster.names if name != active(cluster))


READERS: dict[str, Callable[[Cluster], Any]] = {
    "replica": lambda cluster: cluster.node(passive(cluster)),
    "active": lambda cluster: cluster.node(active(cluster)),
    "client": lambda cluster: cluster.client(),
}


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest, cluster: Cluster) -> Any:
    return READERS[request.param](cluster)


def has_all(reader: Any) -> bool:
    with reader.transaction(read="local") as tx:
        return tx.find(Twin, "a", 0) is not None and tx.find(Twin, "a", 1) is not None


@contextmanager
def writing(change: Callable[[int], object]) -> Iterator[None]:
    """Somebody changes objects all the time."""
    stop, failed = threading.Event(), []

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            try:
                change(n)
            except Exception as error:
                failed.append(error)
                raise

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed


def both(node: Any, value: int) -> Token:
    with node.transaction() as tx:
        for side in (0, 1):
            tx.get(Twin, "a", side).value = value
    token: Token = tx.token
    return token


def reads(reader: Any, look: Callable[[Any], bool], seconds: float = 1.0) -> tuple[int, int]:
    """How many transactions saw a whole moment, and how many were told that they could not."""
    whole = told = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or whole < 20:
        try:
            with reader.transaction(read="local") as tx:
                assert look(tx)
        except ConflictError:
            told += 1
        else:
            whole += 1
    return whole, told


# --- all the time ---


@pytest.mark.parametrize(
    "look",
    [
        lambda tx: tx.get(Twin, "a", 0).value == tx.get(Twin, "a", 1).value,
        lambda tx: len({twin.value for twin in tx.extent(Twin)}) == 1,
        lambda tx: tx.get(Twin, "a", 0).value == max(twin.value for twin in tx.extent(Twin)),
        lambda tx: tx.get(Twin, "a", 0).sum() == 2 * tx.get(Twin, "a", 1).value,
    ],
    ids=["get", "extent", "get and extent", "method"],
)
def test_objects_that_change_together_are_never_seen_apart(cluster: Cluster, reader: Any, look: Any) -> None:
    writer = cluster.client()
    with writing(lambda n: both(writer, n)):
        whole, told = reads(reader, look)
    assert told <= whole / 100


@pytest.mark.feature("R5", "R6")
@pytest.mark.parametrize("local_sync", ["NO_SYNC"])
def test_nor_where_they_are_shown_before_the_log_has_them(cluster: Cluster, reader: Any) -> None:
    writer = cluster.client()
    with writing(lambda n: both(writer, n)):
        whole, told = reads(reader, lambda tx: tx.get(Twin, "a", 0).value == tx.get(Twin, "a", 1).value)
    assert told <= whole / 100


def test_objects_that_come_and_go_together_are_never_seen_apart(cluster: Cluster, reader: Any) -> None:
    writer = cluster.client()

    def swap(n: int) -> None:
        with writer.transaction() as tx:
            there = tx.find(Twin, "b", 0)
            if there is None:
                tx.create(Twin("b", 0))
                tx.create(Twin("a", 2))
            else:
                tx.delete(there)
                tx.delete(tx.get(Twin, "a", 2))

    def look(tx: Any) -> bool:
        one = tx.find(Twin, "b", 0) is None
        listed = {(twin.pair, twin.side) for twin in tx.extent(Twin)}
        return one == (tx.find(Twin, "a", 2) is None) == (("b", 0) not in listed) == (("a", 2) not in listed)

    with writing(swap):
        whole, told = reads(reader, look)
    assert told <= whole / 100


def test_an_extent_of_several_pages_is_of_one_moment(cluster: Cluster, reader: Any) -> None:
    """Each change moves an object from the first page to the last, or back."""
    writer = cluster.client()
    writer.load(Twin("m", side) for side in range(MANY))
    with writer.transaction() as tx:
        tx.create(Twin("l", 0))
    with reader.transaction(read="local", after=tx.token) as tx:
        assert len(list(tx.extent(Twin))) == MANY + 3

    def move(n: int) -> None:
        here, there = ("l", "z") if n % 2 else ("z", "l")
        with writer.transaction() as tx:
            tx.delete(tx.get(Twin, here, 0))
            tx.create(Twin(there, 0))

    def look(tx: Any) -> bool:
        seen = [(twin.pair, twin.side) for twin in tx.extent(Twin)]
        return len(seen) == len(set(seen)) == MANY + 3

    with writing(move):
        whole, told = reads(reader, look, 2.0)
    assert told <= whole / 100


@pytest.mark.parametrize("read", ["active", "barrier"])
def test_an_extent_at_the_active_node_misses_nothing_that_goes_to_a_page_it_has_passed(
    cluster: Cluster, read: Any
) -> None:
    """What it has met is checked at the end, so it may be told; but it never counts one object less."""
    client, writer = cluster.client(), cluster.client()
    writer.load(Twin("m", side) for side in range(MANY))
    with writer.transaction() as tx:
        tx.create(Twin("z", 0))

    def move() -> None:
        with writer.transaction() as tx:
            tx.delete(tx.get(Twin, "z", 0))
            tx.create(Twin("b", 0))

    with pytest.raises(ConflictError, match="Twin 'z', 0"), client.transaction(read=read) as tx:
        listed = tx.extent(Twin)
        assert [next(listed).pair for _ in range(5)][:3] == ["a", "a", "m"]
        in_a_thread(move)
        assert [twin.pair for twin in listed][-1] == "z"


def test_an_extent_at_the_active_node_outlives_it(cluster: Cluster) -> None:
    client = cluster.client()
    client.load(Twin("m", side) for side in range(MANY))
    with client.transaction() as tx:
        listed = tx.extent(Twin)
        next(listed)
        cluster.kill(active(cluster))
        assert len(list(listed)) == MANY + 1


# --- one after the other ---


def test_a_transaction_stays_at_the_moment_of_its_first_read(cluster: Cluster, reader: Any) -> None:
    writer = cluster.client()
    with reader.transaction(read="local") as tx:
        assert tx.get(Twin, "a", 0).value == 0
        token = in_a_thread(lambda: both(writer, 7))
        assert tx.get(Twin, "a", 1).value == 0
        assert {twin.value for twin in tx.extent(Twin)} == {0}
    with reader.transaction(read="local", after=token) as tx:
        assert [tx.get(Twin, "a", side).value for side in (0, 1)] == [7, 7]


def in_a_thread(work: Callable[[], Any]) -> Any:
    """Where no transaction is open."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_copy_that_is_given_up_is_told(cluster: Cluster) -> None:
    """Its objects are deleted under the transaction; nothing that is left of them is shown."""
    name = passive(cluster)
    reader, copy = cluster.node(name), copy_on(cluster, name)
    host = reader.runtime.host
    assert host is not None
    with pytest.raises(ConflictError, match="given up or made anew"), reader.transaction(read="local") as tx:
        tx.get(Twin, "a", 0)
        with copy.lock:
            host.copies.pop(copy.name)
            copy.objects.drop()
        tx.get(Twin, "a", 1)


def test_a_copy_that_is_given_up_while_a_reader_takes_up_its_moment_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all objects would seem to be gone."""
    name = passive(cluster)
    copy = copy_on(cluster, name)
    copies: Any = cluster.node(name).runtime.copies

    def given_up(asker: Any, partition: str, *args: Any) -> viewing.OwnView:
        copies.pop(partition)
        copy.objects.drop()
        return viewing.OwnView(asker, copy, 0, 0)

    monkeypatch.setattr("halog.runtime.client.reads.own_view", given_up)
    with (
        pytest.raises(ConflictError, match="given up or made anew"),
        cluster.node(name).transaction(read="local") as tx,
    ):
        tx.find(Twin, "a", 0)


def test_a_client_whose_active_node_dies_is_told_or_sees_the_same_moment(cluster: Cluster) -> None:
    client, writer = cluster.client(), cluster.client()
    with pytest.raises(ConflictError, match="another node is active"), client.transaction(read="local") as tx:
        tx.get(Twin, "a", 0)
        cluster.kill(active(cluster))
        in_a_thread(lambda: both(writer, 7))
        tx.get(Twin, "a", 1)
    with client.transaction(read="local") as tx:
        assert [tx.get(Twin, "a", side).value for side in (0, 1)] == [7, 7]


def test_a_client_that_does_not_ask_for_long_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "KEPT_MS", 50)
    monkeypatch.setattr(named, "SWEPT_MS", 0)
    kept = copy_on(cluster, active(cluster)).named
    with pytest.raises(ConflictError, match="for too long"), cluster.client().transaction(read="local") as tx:
        tx.get(Twin, "a", 0)
        wait_until(lambda: not len(kept), "it is let go of")
        tx.get(Twin, "a", 1)


def test_what_one_transaction_has_the_active_node_keep_is_let_go_of(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "KEPT_MS", 50)
    monkeypatch.setattr(named, "SWEPT_MS", 0)
    copy = copy_on(cluster, active(cluster))
    with cluster.client().transaction(read="local") as tx:
        tx.get(Twin, "a", 0)
    wait_until(lambda: not len(copy.named), "nothing is kept")
    both(cluster.client(), 1)
    both(cluster.client(), 2)
    assert not copy.objects.moments._over


@pytest.mark.parametrize(
    ("goes_on", "kept"),
    [
        (lambda listed: list(listed), 0),
        (lambda listed: listed.close(), 0),
        (lambda listed: next(listed), 1),
    ],
    ids=["to its end", "given up", "open"],
)
def test_the_active_node_keeps_nothing_for_an_extent_that_is_over(
    cluster: Cluster, goes_on: Callable[[Any], object], kept: int
) -> None:
    """Else each change would write down what was, for a minute, for nobody."""
    client = cluster.client()
    client.load(Twin("m", side) for side in range(MANY))
    names = copy_on(cluster, active(cluster)).named
    assert not names
    with client.transaction() as tx:
        listed: Any = tx.extent(Twin)
        assert next(listed).pair == "a"
        assert len(names) == 1
        goes_on(listed)
        wait_until(lambda: len(names) == kept, f"{kept} are kept")
        copy = copy_on(cluster, active(cluster))
        in_a_thread(lambda: both(cluster.client(), 1))
        assert len(copy.objects.moments._over) == kept
        listed.close()
        tx.rollback()


def test_nor_does_it_for_one_of_a_page(cluster: Cluster) -> None:
    client = cluster.client()
    names = copy_on(cluster, active(cluster)).named
    with client.transaction() as tx:
        assert len(list(tx.extent(Twin))) == 2
    assert not len(names)
    assert next(names._counts) == 1, "nothing ever was"


def test_a_scan_that_is_let_go_of_leaves_others_their_moment(cluster: Cluster) -> None:
    """Both begin at the same one."""
    client = cluster.client()
    client.load(Twin("m", side) for side in range(MANY))

    def listed() -> int:
        with cluster.client().transaction() as tx:
            return len(list(tx.extent(Twin)))

    with client.transaction(read="local") as tx:
        assert tx.get(Twin, "a", 0).value == 0
        assert in_a_thread(listed) == MANY + 2
        in_a_thread(lambda: both(client, 7))
        assert tx.get(Twin, "a", 1).value == 0


def test_too_much_was_changed_since(cluster: Cluster, reader: Any) -> None:
    for name in cluster.names:
        copy_on(cluster, name).objects.moments.limit = 1_000
    writer = cluster.client()
    with pytest.raises(ConflictError, match="MB of objects of test-0"), reader.transaction(read="local") as tx:
        tx.get(Twin, "a", 0)
        for n in range(10):
            token = in_a_thread(lambda n=n: both(writer, n))  # type: ignore[misc]
        with _other(reader, token):
            pass
        tx.get(Twin, "a", 1)


@contextmanager
def _other(reader: Any, token: Token) -> Iterator[None]:
    """Its copy has that by now."""

    def read() -> None:
        with reader.transaction(read="local", after=token) as tx:
            tx.get(Twin, "a", 0)

    in_a_thread(read)
    yield
