"""What a policy fixes beside where its partitions are: how many replicas of which kind, for which types, how many
objects move in one transaction, with how many threads, and how long its partitions are waited for (P4)."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import halog.aio
from halog.backend import Work
from halog.core.log.records import DELETE, Commit, Prepare, Record, decode
from halog.errors import DeadlineError, HalogError, OutcomeUnknownError, PartitionUnavailableError
from halog.ports import TopicPartition
from halog.runtime.host.assignment import CopyPlacement
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    Order,
    changed,
    check,
    cluster_of,
    configured,
    wait_done,
)

pytestmark = pytest.mark.feature("P4")


@pytest.mark.parametrize(("sync", "async_"), [(0, 0), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_each_partition_has_as_many_replicas_of_each_kind_as_its_policy_says(sync: int, async_: int) -> None:
    """By the nodes' own doing."""
    made = Cluster(4, partitions=4, registry=TYPES)
    with configured(made, sync_replicas=sync, async_replicas=async_) as cluster:
        wanted = ["async"] * async_ + ["sync"] * sync

        def kinds() -> dict[str, list[str]]:
            return {name: sorted(r.kind for r in t.replicas) for name, t in cluster.tables().items()}

        wait_until(lambda: kinds() == dict.fromkeys(cluster.tables(), wanted), f"replicas are not {wanted}")


def test_policies_side_by_side_have_replicas_of_their_own() -> None:
    """Types bound to one live on that one's partitions."""
    made = Cluster(3, partitions=2, registry=TYPES)
    both = {
        POLICY: made.config.policies[POLICY],
        "few": replace(made.config.policies[POLICY], partitions=1, sync_replicas=0, async_replicas=0),
    }
    made.config = replace(made.config, policies=both, bindings={"*": POLICY, "Order": "few"}).validate()
    with made as cluster:
        assert sorted(len(t.configured) for t in cluster.tables().values()) == [1, 3, 3]
        assert cluster.tables()["few-0"].configured in {("A",), ("B",), ("C",)}
        assert cluster.partition_of(Counter, "x") in {"test-0", "test-1"}
        assert cluster.node("A").runtime.partition_of("Order", b"s") == "few-0"


@pytest.mark.parametrize("most", [1, 7])
def test_a_move_holds_no_more_objects_than_the_policy_says(most: int) -> None:
    """Each transaction that moves objects names so many on either side at most, and some name as many."""
    with cluster_of(2, partitions=2, move_objects=most) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(60)])
        cluster.config = changed(cluster.config, ring_size=999)
        cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
        wait_done(cluster, 1)
        sizes = [len(p.changes) for name in sorted(cluster.tables()) for p in prepares(cluster, name)]
        assert max(sizes) == most
        check(cluster, cluster.config)


@pytest.mark.parametrize("given", [{}, {"before_images": True}, {"before_images": False}], ids=str)
def test_a_record_holds_the_bytes_that_a_change_replaced_unless_the_policy_says_no(given: dict[str, bool]) -> None:
    """An update and a delete, by one partition's commit and by a transaction over two; a create replaces nothing."""
    made = Cluster(2, partitions=2, registry=TYPES)
    with configured(made, **given) as cluster:
        client = cluster.client()
        one, other = (
            next(f"c{i}" for i in range(99) if cluster.partition_of(Counter, f"c{i}") == p)
            for p in ("test-0", "test-1")
        )
        client.load([Counter(one, 1), Counter(other, 2)])
        with client.transaction() as tx:
            tx.get(Counter, one).value = 3
        with client.transaction() as tx:
            for key in (one, other):
                tx.delete(tx.get(Counter, key))
        found = {
            p: [(c.op, c.before, c.value) for r in written(cluster, p) for c in r.changes] for p in cluster.tables()
        }
        states = {p: [value for _, _, value in changes[:-1]] for p, changes in found.items()}
        assert [len(states[p]) for p in ("test-0", "test-1")] == [2, 1]
        replaced = {
            p: [None, *(values if given.get("before_images", True) else [None] * len(values))]
            for p, values in states.items()
        }
        assert {p: [before for _, before, _ in changes] for p, changes in found.items()} == replaced


def written(cluster: Cluster, partition: str) -> list[Commit | Prepare]:
    """What stands in its log, and changes objects."""
    return [r for r in logged(cluster, partition) if isinstance(r, Commit | Prepare)]


def logged(cluster: Cluster, partition: str) -> list[Record]:
    table = cluster.tables()[partition]
    rows = cluster.broker.shelf(TopicPartition(table.topic, table.index)).rows
    return [decode(row.value) for row in rows if row.value is not None]


def prepares(cluster: Cluster, partition: str) -> list[Prepare]:
    found = logged(cluster, partition)
    return [r for r in found if isinstance(r, Prepare)]


# --- threads ---


class Together:
    """How many of a kind were under way at the same time, at most."""

    def __init__(self) -> None:
        self.now = Count[str]()
        self.most = Count[str]()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, kind: str, seconds: float) -> Iterator[None]:
        with self._lock:
            self.now[kind] += 1
            self.most[kind] = max(self.most[kind], self.now[kind])
        time.sleep(seconds)
        try:
            yield
        finally:
            with self._lock:
                self.now[kind] -= 1


@pytest.mark.parametrize("threads", [1, 3])
def test_so_many_transactions_of_a_partition_move_objects_at_a_time(threads: int) -> None:
    """And what they move is neither lost nor doubled nor misplaced."""
    together = Together()
    with configured(cluster_of(1, partitions=2, move_objects=2), move_threads=threads, move_pause_ms=0) as cluster:
        cluster.client().load([Counter(f"c{i}", i) for i in range(80)])
        mover: Any = cluster.node("A").runtime.mover
        commit = mover.commit

        def noted(tx: bytes, works: Mapping[str, Work]) -> Any:
            away = next(p for p, work in works.items() if work.writes[0].op == DELETE)
            with together.one(away, 0.005):
                return commit(tx, works)

        mover.commit = noted
        cluster.config = changed(cluster.config, ring_size=999)
        cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
        wait_done(cluster, 1)
        check(cluster, cluster.config)
        with cluster.client().transaction() as tx:
            assert sum(c.value for c in tx.extent(Counter)) == sum(range(80))
    assert set(together.most.values()) == {threads}


def test_a_node_makes_so_many_copies_of_a_policy_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each policy; one does not wait for another's."""
    together, opened = Together(), CopyPlacement._open

    def slowly(self: CopyPlacement, version: int, table: Any, **more: Any) -> Any:
        with together.one(table.policy, 0.03):
            return opened(self, version, table, **more)

    made = Cluster(1, partitions=8, registry=TYPES)
    few = replace(made.config.policies[POLICY], copy_threads=2)
    both = {POLICY: replace(few, copy_threads=4), "few": few}
    made.config = replace(made.config, policies=both).validate()
    monkeypatch.setattr(CopyPlacement, "_open", slowly)
    with made:
        assert together.most == {POLICY: 4, "few": 2}


# --- timeouts ---


SOON_S = 12.0
"""Before the other policy's time is up, on a busy machine, too."""


@pytest.fixture
def two() -> Iterator[Cluster]:
    """Two policies: Order's partition is waited for 300 ms, Counter's for 15 s. One node, which has both."""
    made = Cluster(1, partitions=1, registry=TYPES)
    policies = {POLICY: made.config.policies[POLICY]}
    policies["short"] = replace(
        policies[POLICY], call_deadline_ms=300, append_deadline_ms=400, doubt_timeout_ms=100, min_stay_ms=7_000
    )
    made.config = replace(made.config, policies=policies, bindings={"*": POLICY, "Order": "short"}).validate()
    with made as cluster:
        yield cluster


def test_an_answer_is_waited_for_as_long_as_the_policy_says(two: Cluster) -> None:
    """Commits and reads of one policy give up early, while those of the other go on waiting."""
    client = two.client()
    with client.transaction() as tx:
        tx.create(Order("s", 1))
        tx.create(Counter("c"))
    two.kill("A")
    waited: list[BaseException] = []
    patient = threading.Thread(target=lambda: waited.append(met(lambda: got(client, Counter, "c"))), daemon=True)
    patient.start()
    began = time.monotonic()
    error = met(lambda: got(client, Order, "s", 1))
    again = met(lambda: client.load([Order("s", 2)]))
    took = time.monotonic() - began
    assert isinstance(error, PartitionUnavailableError | OutcomeUnknownError)
    assert "short-0" in str(error)
    assert "within 0.3 s" in str(error)
    assert re.search(r"partition short-0 within 0\.[0-3]", str(again)), "what its own beginning took is not waited for"
    assert 0.55 < took < SOON_S
    assert patient.is_alive(), waited
    two.restart("A")
    patient.join(60)
    assert not isinstance(waited[0], HalogError)


def got(client: Any, *what: Any) -> None:
    with client.transaction() as tx:
        tx.get(*what)


def met(work: Callable[[], object]) -> BaseException:
    """The error, or one that is no HalogError: none came."""
    try:
        work()
    except HalogError as error:
        return error
    return AssertionError("no error came")


def test_a_barrier_and_what_is_in_doubt_are_waited_for_as_long_as_the_policy_says(two: Cluster) -> None:
    backend: Any = two.client().backend
    assert (backend.deadline_of("short-0"), backend.deadline_of("test-0")) == (0.3, 15.0)
    assert backend.deadline_of("unheard of") == 15.0
    assert (backend.asker.locked_of("short-0"), backend.asker.locked_of("test-0")) == (0.2, 4.0)
    two.kill("A")
    began = time.monotonic()
    with pytest.raises(DeadlineError, match=r"within 0\.3 s|no node") as caught:
        try:
            backend.barrier("short-0")
        except PartitionUnavailableError as error:  # where nobody could be asked
            raise DeadlineError(error.message) from None
    assert time.monotonic() - began < SOON_S, caught


def test_a_copy_has_the_times_of_its_policy(two: Cluster) -> None:
    copies = two.node("A").runtime.copies
    own, usual = copies["short-0"].core.state.settings, copies["test-0"].core.state.settings
    assert (own.commit_deadline_ms, own.doubt_ms, own.min_stay_ms) == (400, 100, 7_000)
    assert (usual.commit_deadline_ms, usual.doubt_ms, usual.min_stay_ms) == (5_000, 2_000, 30_000)


def test_on_a_loop_a_commit_nobody_answers_is_unknown_when_its_policys_time_is_up(two: Cluster) -> None:
    async def main() -> None:
        node = halog.aio.Node(two.node("A"))
        backend: Any = node.sync.backend
        real = backend.begin_commit
        backend.begin_commit = lambda *given: True
        began = time.monotonic()
        with pytest.raises(OutcomeUnknownError):
            async with node.transaction() as tx:
                await tx.create(Order("s", 1))
        assert 0.25 < time.monotonic() - began < SOON_S
        backend.begin_commit = real
        node.pool.shutdown()

    asyncio.run(main())
