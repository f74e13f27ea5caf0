"""Managed objects from a client of a real cluster: what is committed is there for everybody, and nothing else is."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time

import pytest

import halog
from halog.errors import (
    DuplicateKeyError,
    FieldTypeError,
    ForkedError,
    NotFoundError,
    RecordTooLargeError,
    RemoteCallError,
    TransactionError,
)
from halog.runtime.node.open import RunningNode
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait
from tests.integration.objects.shop import Order, Shelf, SoldOut

pytestmark = pytest.mark.timeout(600)


def state_hash(cluster: Cluster) -> str:
    """Of every object in every active copy, read from the nodes' own stores."""
    h = hashlib.sha256()
    for table in cluster.tables():
        assert table.active is not None
        for f in cluster.stored(table.active.node, table.name):
            h.update(repr((f.key, f.ref, f.version, f.value)).encode())
    return h.hexdigest()


@pytest.mark.feature("D1", "R5")
def test_what_one_client_commits_another_sees(cluster: Cluster, node: RunningNode, name: str) -> None:
    with node.transaction() as tx:
        ref = tx.ref(tx.create(Shelf(name, 5, ["new"])))
        tx.create(Order(name, 1, 2))
    other = cluster.client("other")
    with other.transaction() as tx:
        found = tx.resolve(ref)
        assert found == Shelf(name, 5, ["new"])
        found.notes.append("seen")
        tx.delete(tx.get(Order, name, 1))
    with node.transaction() as tx:
        assert tx.get(Shelf, name).notes == ["new", "seen"]
        assert tx.find(Order, name, 1) is None


@pytest.mark.feature("R5", "D1")
def test_a_method_runs_on_the_active_node_inside_the_callers_transaction(
    cluster: Cluster, node: RunningNode, name: str
) -> None:
    with node.transaction() as tx:
        shelf = tx.create(Shelf(name, 10))
        active = cluster.table(tx.space.route(Shelf, (name,)).partition).active
        assert active is not None
        assert shelf.where() == cluster.processes[active.node].pid
        shelf.stock += 5
        ref = shelf.sell(1, 4)
        assert shelf.stock == 11
        assert tx.resolve(ref) == Order(name, 1, 4)
        tx.get(Order, name, 1).count += 1
    with node.transaction() as tx:
        assert (tx.get(Shelf, name).stock, tx.get(Order, name, 1).count) == (11, 5)


@pytest.mark.feature("R5")
def test_a_methods_exception_reaches_the_caller_and_changes_nothing(node: RunningNode, name: str) -> None:
    with node.transaction() as tx:
        shelf = tx.create(Shelf(name, 1))
        with pytest.raises(SoldOut) as caught:
            shelf.sell(1, 5)
        assert caught.value.args == (name, 5)
        with pytest.raises(RemoteCallError, match=r"outside:Unlisted: who am I") as unknown:
            shelf.fail()
        assert "in fail" in unknown.value.evidence["traceback"]
        assert shelf.stock == 1
        shelf.take(1)
    with node.transaction() as tx:
        assert tx.get(Shelf, name).stock == 0
        assert tx.find(Order, name, 1) is None


@pytest.mark.feature("D1", "R5")
def test_many_clients_of_one_object_lose_no_update(cluster: Cluster, node: RunningNode, name: str) -> None:
    """Assigning and calling, from two nodes in eight threads; conflicts are run again."""
    with node.transaction() as tx:
        tx.create(Shelf(name))
    nodes, rounds, errors = [node, cluster.client("other")], 15, []

    def work(at: int) -> None:
        mine = nodes[at % 2]

        @mine.transactional(retries=200)
        def add() -> None:
            shelf = mine.get(Shelf, name)
            if at % 3:
                shelf.stock += 1
            else:
                shelf.take(-1)

        try:
            for _ in range(rounds):
                add()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with node.transaction() as tx:
        assert tx.get(Shelf, name).stock == 8 * rounds


@pytest.mark.feature("D1", "R8")
def test_every_error_leaves_everything_as_it_was(cluster: Cluster, node: RunningNode, name: str) -> None:
    with node.transaction() as tx:
        tx.create(Shelf(name, 3))
        home = tx.space.route(Shelf, (name,)).partition
        far = next(f"{name}-{i}" for i in range(99) if tx.space.route(Shelf, (f"{name}-{i}",)).partition != home)
    before = state_hash(cluster)
    with pytest.raises(ZeroDivisionError), node.transaction() as tx:
        tx.get(Shelf, name).take(1)
        tx.create(Order(name, 1))
        raise ZeroDivisionError
    with pytest.raises(DuplicateKeyError, match=f"Shelf '{name}' exists"), node.transaction() as tx:
        tx.create(Order(name, 1))
        tx.create(Shelf(name))
    with pytest.raises(FieldTypeError, match="stock"), node.transaction() as tx:
        tx.get(Shelf, name).stock = "many"  # type: ignore[assignment]
    with pytest.raises(DuplicateKeyError, match=f"Shelf '{name}' exists"), node.transaction() as tx:
        tx.create(Shelf(far))
        tx.create(Shelf(name))
    with pytest.raises(NotFoundError), node.transaction() as tx:
        tx.get(Shelf, name).stock = 9
        tx.get(Shelf, far)
    with pytest.raises(TransactionError), node.transaction(), node.transaction():
        pass
    assert state_hash(cluster) == before


@pytest.mark.feature("R8")
def test_4_9_mb_pass_and_5_1_mb_are_refused(cluster: Cluster, node: RunningNode, name: str) -> None:
    """Of one record; an object alone may have half, since the record of a change has what it replaces, too."""
    with node.transaction() as tx:
        home = tx.space.route(Shelf, (name,)).partition
        near = next(f"{name}-{i}" for i in range(99) if tx.space.route(Shelf, (f"{name}-{i}",)).partition == home)
        tx.create(Shelf(name, blob=b"x" * 2_450_000))
        tx.create(Shelf(near, blob=b"x" * 2_450_000))
    before = state_hash(cluster)
    with pytest.raises(RecordTooLargeError, match=r"the limit is 5,000,000.*Shelf 'big'"), node.transaction() as tx:
        tx.create(Shelf("big", blob=b"x" * 17_000_000))
    for size in (2_499_500, 2_600_000, 4_999_990, 5_100_000):
        said = r"Shelf 'big' would have [245],.*, the limit is 2,49"
        with pytest.raises(RecordTooLargeError, match=said), node.transaction() as tx:
            tx.create(Shelf("big", blob=b"x" * size))
    with pytest.raises(RecordTooLargeError, match=f"Shelf '{name}' would have"), node.transaction() as tx:
        tx.get(Shelf, name).blob = b"y" * 2_600_000
    assert state_hash(cluster) == before
    with node.transaction() as tx:
        tx.get(Shelf, name).blob = b"y" * 2_450_000
    for one in (name, near):
        with node.transaction() as tx:
            assert len(tx.get(Shelf, one).blob) == 2_450_000
            tx.delete(tx.get(Shelf, one))


@pytest.mark.feature("D1")
def test_delete_and_create_is_a_new_instance_on_every_copy(cluster: Cluster, node: RunningNode, name: str) -> None:
    with node.transaction() as tx:
        old = tx.ref(tx.create(Shelf(name, 1)))
    with node.transaction() as tx:
        tx.delete(tx.resolve(old))
        new = tx.ref(tx.create(Shelf(name, 2)))
    with node.transaction() as tx:
        assert tx.resolve(new).stock == 2
        with pytest.raises(NotFoundError, match="gone"):
            tx.resolve(old)
    partition = node.space.route(Shelf, (name,)).partition
    for at in "AB":  # a sync replica holds what it acknowledged, and applies it a moment later
        wait(
            lambda at=at: {old.raw, new.raw} & {f.ref for f in cluster.stored(at, partition)} == {new.raw},  # type: ignore[misc]
            f"{at} has the new instance only",
        )


@pytest.mark.feature("D1", "D2")
def test_a_load_is_fast_and_an_extent_shows_it_all(node: RunningNode, name: str) -> None:
    count, singly = 20_000, 100
    begin = time.perf_counter()
    for i in range(singly):
        with node.transaction() as tx:
            tx.create(Shelf(f"{name}-{i}"))
    each = (time.perf_counter() - begin) / singly
    done = node.load(Order(f"{name}-{i % 50}", i, count=i) for i in range(count))
    assert done.objects == count
    assert done.seconds / count < each / 4, "the bench demands 30,000/s of a quiet machine"
    begin = time.perf_counter()
    with node.transaction() as tx:
        found = sorted(o.count for o in tx.extent(Order) if o.shelf.startswith(f"{name}-"))
    assert found == list(range(count))
    assert time.perf_counter() - begin < 60
    with pytest.raises(DuplicateKeyError, match=r"1 objects were not loaded"):
        node.load([Order(f"{name}-0", 0), Order(f"{name}-0", count)])


@pytest.mark.feature("D1")
def test_the_awaitable_verbs_work_in_many_tasks(cluster: Cluster, node: RunningNode, name: str) -> None:
    with node.transaction() as tx:
        tx.create(Shelf(name))

    async def main() -> int:
        awaitable = halog.aio.Node(node, threads=8)

        @awaitable.transactional(retries=200)
        async def add(tx: halog.aio.Transaction, count: int) -> int:
            shelf = await tx.get(Shelf, name)
            return await tx.call(shelf.take, -count)

        await asyncio.gather(*(add(1) for _ in range(20)))
        total = await add(0)
        awaitable.pool.shutdown()
        return total

    assert asyncio.run(main()) == 20


@pytest.mark.feature("D1")
def test_a_forked_child_is_refused(node: RunningNode) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with node.transaction():
                pass
        except ForkedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
