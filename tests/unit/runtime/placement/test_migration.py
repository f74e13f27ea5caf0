"""A partition moves while a cluster in one process works: copies come and go, callers notice nothing (P12)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from halog.core import results as res
from halog.core.roles import Role
from halog.core.table.migration import left
from halog.errors import ConfigError, DeadlineError, RefusedError, UnknownNameError
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until

pytestmark = [pytest.mark.feature("P12"), pytest.mark.timeout(90)]

THINGS = Registry()
P = "test-0"


@managed(key="name", registry=THINGS)
class Thing:
    name: str
    count: int = 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """P lives on A and B; C runs, and has nothing."""
    with Cluster(3, partitions=1, registry=THINGS) as made:
        move(made, ("A", "B"), 1)
        wait_until(lambda: P not in copies(made, "C"), "C lets go of its copy")
        yield made


def move(cluster: Cluster, to: tuple[str, ...], sync: int | None = None, *, wait_s: float = 20.0, **more: Any) -> None:
    cluster.node("B").runtime.operators.migrate(P, to, sync, wait_s=wait_s, **more)


def copies(cluster: Cluster, name: str) -> Any:
    return cluster.node(name).runtime.copies


PACE_S = 0.003
"""Between two calls: one that never rests takes the CPUs from the other tests."""


class Counting:
    """A caller that counts all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = cluster.client()
        self.told = 0
        self.errors = []  # type: ignore[var-annotated]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        with self.client.transaction():
            self.client.create(Thing(name="x"))

    def __enter__(self) -> Counting:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _once(self) -> None:
        thing = self.client.get(Thing, "x")
        thing.count += 1

    def _run(self) -> None:
        while not self._stop.wait(PACE_S):
            try:
                self.client.transactional(retries=200)(self._once)()
                self.told += 1
            except BaseException as e:
                self.errors.append(e)

    def goes_on(self) -> None:
        now = self.told
        wait_until(lambda: self.told > now + 5, "callers are answered")


def test_a_partition_moves_from_a_b_to_c_b_under_traffic(cluster: Cluster) -> None:
    """C is active, B its sync replica, A has no copy and nothing of it on its disk; no caller got an error."""
    with Counting(cluster) as counting:
        counting.goes_on()
        move(cluster, ("C", "B"))
        table = cluster.tables()[P]
        assert (table.configured, table.node_list, table.target) == (("C", "B"), ("C", "B"), None)
        assert [r.kind for r in table.replicas] == ["sync"]
        wait_until(lambda: P not in copies(cluster, "A"), "A lets go of its copy")
        prefix = bytes.fromhex(table.log_id)[:8]
        assert not [k for k in cluster.disks["A"].data if k.startswith(prefix)]
        counting.goes_on()
    assert counting.errors == []
    node = cluster.node("A")
    with node.transaction():
        assert node.get(Thing, "x").count == counting.told, "also asked for where it is hosted no more"


def test_it_comes_back_to_a_node_it_left(cluster: Cluster) -> None:
    with Counting(cluster) as counting:
        for to in (("C", "B"), ("A",), ("C", "A"), ("B", "A", "C")):
            move(cluster, to)
            assert cluster.tables()[P].node_list == to
            counting.goes_on()
    assert counting.errors == []


def test_a_migration_goes_on_when_the_active_node_dies(cluster: Cluster) -> None:
    """The wish stands in the znode: whoever is active next drives it."""
    with Counting(cluster) as counting:
        cluster.pause("C")
        move(cluster, ("C", "B"), wait_s=0)
        cluster.kill("A")
        counting.goes_on()
        cluster.resume("C")
        wait_until(lambda: cluster.tables()[P].target is None, "it is over")
        assert cluster.tables()[P].node_list == ("C", "B")
        cluster.restart("A")
        counting.goes_on()
        assert P not in copies(cluster, "A"), "what A had is deleted when it starts"
        prefix = bytes.fromhex(cluster.tables()[P].log_id)[:8]
        assert not [k for k in cluster.disks["A"].data if k.startswith(prefix)]
    assert counting.errors == []


def test_a_migration_goes_on_when_the_new_node_was_killed(cluster: Cluster) -> None:
    with Counting(cluster) as counting:
        cluster.kill("C")
        move(cluster, ("C", "B"), wait_s=0)
        counting.goes_on()
        with pytest.raises(DeadlineError, match="C makes its copy"):
            move(cluster, ("C", "B"), wait_s=0.3)
        assert cluster.tables()[P].active.node == "A"  # type: ignore[union-attr]
        cluster.restart("C")
        wait_until(lambda: cluster.tables()[P].node_list == ("C", "B"), "it is over")
    assert counting.errors == []


@pytest.mark.parametrize(
    ("to", "sync", "said"),
    [
        ((), None, "at least one node"),
        (("C", "C"), None, "C is named twice"),
        (("C", "B"), 2, "1 sync replicas at most, not 2"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    cluster: Cluster, to: tuple[str, ...], sync: int | None, said: str
) -> None:
    before = cluster.tables()[P]
    with pytest.raises(RefusedError, match=said):
        move(cluster, to, sync)
    assert cluster.tables()[P] == before


def test_a_node_that_does_not_exist_is_named_and_nothing_changes(cluster: Cluster) -> None:
    before = cluster.tables()[P]
    with pytest.raises(UnknownNameError, match="there is no node X; known are A, B, C"):
        move(cluster, ("X", "B"))
    assert cluster.tables()[P] == before


def test_a_partition_or_nodes_that_are_not_there_are_named(cluster: Cluster) -> None:
    operators = cluster.node("B").runtime.operators
    with pytest.raises(ConfigError, match="there is no partition test-9"):
        operators.migrate("test-9", ("A",))
    cluster.kill("C")
    wait_until(lambda: "C" not in cluster.node("B").runtime.router.nodes, "C is gone")
    with pytest.raises(RefusedError, match="none of C is running"):
        operators.migrate(P, ("C",))


def test_another_wish_replaces_the_first_on_demand_only(cluster: Cluster) -> None:
    cluster.pause("C")
    move(cluster, ("C", "B"), wait_s=0)
    with pytest.raises(RefusedError, match=r"moving to C, B already; `halog partition migrate --replace`"):
        move(cluster, ("B",))
    move(cluster, ("A", "B"), replace=True)
    table = cluster.tables()[P]
    assert (table.configured, table.target) == (("A", "B"), None)
    cluster.resume("C")


def test_a_partition_none_of_whose_nodes_is_there_is_placed_anew(cluster: Cluster) -> None:
    """P1: its objects come back from the log once a node is assigned."""
    with Counting(cluster) as counting:
        counting.goes_on()
    move(cluster, ("A",))
    cluster.kill("A")
    operators = cluster.node("B").runtime.operators
    wait_until(lambda: "A" not in cluster.node("B").runtime.router.nodes, "A is gone")
    operators.migrate(P, ("C", "B"), wait_s=20.0)
    node = cluster.node("B")
    with node.transaction():
        assert node.get(Thing, "x").count == counting.told
    assert cluster.tables()[P].active.node in ("B", "C")  # type: ignore[union-attr]


def test_a_node_starts_though_its_file_places_the_partition_elsewhere(cluster: Cluster) -> None:
    """The table wins for placement; the file says A, B, C."""
    move(cluster, ("C", "B"))
    cluster.kill("A")
    assert P not in cluster.restart("A").runtime.copies


def test_who_asks_a_copy_that_is_gone_is_told_at_once(cluster: Cluster) -> None:
    """Not after its deadline: the partition is served elsewhere."""
    name = next(n for n in "ABC" if n != cluster.tables()[P].active.node)  # type: ignore[union-attr]
    copy = cluster.node(name).runtime.copies[P]
    move(cluster, tuple(n for n in "ABC" if n != name))
    wait_until(lambda: copy.ended, "the copy is not dropped")
    told: list[res.Result] = []
    copy.barrier(told.append)
    assert told == [res.InactiveCopy(None)]


# --- copies that may take their time ---


def held(cluster: Cluster) -> bool:
    """Is the log held for the copy that C makes?"""
    return "copy-C" in cluster.node("A").runtime.adapters.coordinator.children(f"holders/{P}")


def loaded(cluster: Cluster) -> bool:
    """Does C have all that was in the log when it began to copy?"""
    copy = copies(cluster, "C").get(P)
    return copy is not None and copy.core.state.role is not Role.LOADING


@pytest.fixture(params=["its log", "its snapshot"])
def filled(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A thousand objects in 200 records, or in a snapshot: at a byte a second nobody sees the end of it."""
    cluster.client().load([Thing(name=f"t{i}") for i in range(1_000)], batch=5)
    if request.param == "its snapshot":
        copy = copies(cluster, "A")[P]
        cluster.node("A").runtime.host.snapshots.take(copy)  # type: ignore[union-attr]
    return cluster


def begin(cluster: Cluster, to: tuple[str, ...]) -> None:
    """At a byte a second, until C has begun."""
    move(cluster, to, wait_s=0, copy_rate=1)
    wait_until(lambda: held(cluster), "C has begun to copy")
    host: Any = cluster.node("C").runtime.host
    ticks = host._ticks
    wait_until(lambda: host._ticks > ticks + 25, "C goes on")
    assert not loaded(cluster), "half a second is enough where nothing is in the way"
    assert left(cluster.tables()[P])[0] == "C makes its copy at 1 bytes a second at most"


def test_a_copy_for_a_migration_is_made_no_faster_than_asked_for_until_another_rate_is(filled: Cluster) -> None:
    begin(filled, ("C", "B"))
    move(filled, ("C", "B"), copy_rate=0)
    table = filled.tables()[P]
    assert (table.node_list, table.copy_rate) == (("C", "B"), 0)
    assert loaded(filled)
    wait_until(lambda: not held(filled), "the log is not held any more")


def test_a_copy_that_redundancy_waits_for_is_made_as_fast_as_it_can_be(filled: Cluster) -> None:
    begin(filled, ("A", "C"))
    filled.kill("B")
    wait_until(lambda: filled.tables()[P].node_list == ("A", "C"), "C takes the place of B", 30)
    wait_until(lambda: filled.tables()[P].target is None, "it is there", 30)


def test_a_copy_that_is_wished_for_no_more_is_given_up(filled: Cluster) -> None:
    begin(filled, ("C", "B"))
    move(filled, ("A", "B"), replace=True)
    wait_until(lambda: P not in copies(filled, "C") and not held(filled), "C does not copy on")
