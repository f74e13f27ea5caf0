"""What a job has found is handed to nodes, which move it; a cluster in memory, and no Spark (S1, P13)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from halog.backend import Work
from halog.errors import PartitionUnavailableError, RecordTooLargeError, RefusedError
from halog.metadata.move_jobs import JobAnnouncement
from halog.runtime.remap.announcement import Announcement
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router
from halog.testing.cluster import Cluster, wait_until
from spark_jobs import node_mover
from spark_jobs.mover import Misplaced
from spark_jobs.node_mover import NodeMover
from tests.unit.runtime.keys.remapped import POLICY, Counter, Traffic, check, cluster_of, configured, mapping, wait_done

pytestmark = pytest.mark.feature("S1", "P13")


@contextmanager
def opened(cluster: Cluster, by: str = "A") -> Iterator[None]:
    """A change is open, and nodes leave its objects to a job as long as this lasts; then they find nothing."""
    coordinator = cluster.node(by).runtime.adapters.coordinator
    with Announcement(coordinator, POLICY, JobAnnouncement("job", 1)):
        configured(cluster, ring_size=999)
        cluster.node(by).runtime.operators.rebalance(POLICY, cluster.config)
        wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
        yield


def found(cluster: Cluster) -> dict[str, Misplaced]:
    """By partition, what belongs elsewhere: as the finder tells it, from the active copies."""
    by_partition = {}
    for name, table in cluster.tables().items():
        assert table.active is not None
        runtime = cluster.node(table.active.node).runtime
        copy, here = runtime.copies[name], []
        for one in copy.objects.scan(b""):
            at = runtime.mover.misplaced(one, copy, mapping(cluster))
            if at is not None:
                here.append((one.key, at[1], one.version))
        columns = [list(column) for column in zip(*here, strict=True)] or [[], [], []]
        by_partition[name] = Misplaced("Counter", *columns)
    return by_partition


def handed(mover: NodeMover, objects: dict[str, Misplaced]) -> dict[str, int]:
    for partition, some in objects.items():
        assert mover.move(partition, some) == {}
    return dict(mover.settle())


def router_of(cluster: Cluster) -> Router:
    client: Any = cluster.client()
    router: Router = client.runtime.router
    return router


def test_what_was_found_moves_and_what_is_handed_over_twice_stays() -> None:
    with cluster_of(2) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(200)])
        beats: list[float] = []
        with opened(cluster), NodeMover(router_of(cluster), 1, lambda: beats.append(0.0), request=7) as mover:
            objects = found(cluster)
            count = sum(map(len, objects.values()))
            assert count > 60
            assert handed(mover, objects) == {"moved": count}
            assert handed(mover, objects) == {"stayed": count}
            assert (mover.gone("test-0", [b"k"]), mover.settle()) == ({}, {})
            assert not any(found(cluster).values())
            assert len(beats) > count / 7, "whoever hands over lives"
        wait_done(cluster, 1)
        check(cluster, cluster.config)


def test_objects_that_change_meanwhile_are_mapped_again_and_nothing_is_lost() -> None:
    """Traffic runs, a node dies in the middle, and what the job knows of objects is old."""
    with cluster_of(3, move_objects=5) as cluster:
        traffic = Traffic(cluster.client(), 150)
        traffic.fill()
        with traffic.running(4), opened(cluster, "B"):
            objects = found(cluster)
            old = {name: replace(some, lsns=[lsn - 1 for lsn in some.lsns]) for name, some in objects.items()}
            halves = {name: list(some.slices((len(some) + 1) // 2)) for name, some in old.items() if len(some)}
            with NodeMover(router_of(cluster), 1) as mover:
                for partition, (first, *_) in halves.items():
                    mover.move(partition, first)
                cluster.kill("A")
                counts = handed(mover, {name: some for name, (_, *rest) in halves.items() for some in rest})
            total = sum(map(len, objects.values()))
            assert counts["moved"] + counts.get("stayed", 0) == total
            assert counts["moved"] > 0
            assert counts["remapped_again"] > 0
        wait_done(cluster, 1, 30)
        traffic.finished()
        cluster.settle()
        check(cluster, cluster.config)


def test_an_object_that_can_never_move_is_counted_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(80)])
        with opened(cluster):
            objects = found(cluster)
            stuck = next(key for some in objects.values() for key in some.keys)
            mover_of_node: Any = cluster.node("A").runtime.mover
            commit: Callable[..., Any] = mover_of_node.commit

            def refuses(tx: bytes, works: dict[str, Work]) -> Any:
                if any(w.key == stuck for work in works.values() for w in work.writes):
                    raise RecordTooLargeError("one object is too large")
                return commit(tx, works)

            with monkeypatch.context() as patched, NodeMover(router_of(cluster), 1) as mover:
                patched.setattr(mover_of_node, "commit", refuses)
                counts = handed(mover, objects)
            assert counts == {"moved": sum(map(len, objects.values())) - 1, "refused": 1}

            def is_left_alone() -> bool:
                return [key for some in found(cluster).values() for key in some.keys] == [stuck]

            wait_until(is_left_alone, "what has gone is told where it was")
        wait_done(cluster, 1)
        check(cluster, cluster.config)


def test_a_change_that_is_turned_back_ends_the_job() -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(60)])
        old = cluster.config
        with opened(cluster):
            objects = found(cluster)
            cluster.node("A").runtime.operators.turn_back(POLICY)
            wait_done(cluster, 2)
            with (
                NodeMover(router_of(cluster), 1) as mover,
                pytest.raises(RefusedError, match=r"serves another mapping than version 1 .* turned back"),
            ):
                handed(mover, objects)
        check(cluster, old)


def test_a_partition_nobody_serves_ends_the_job_behind_its_deadline() -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        router = router_of(cluster)
        some = Misplaced("Counter", [b"k"], ["test-1"], [1])
        with NodeMover(router, 1, deadline_s=0.1) as mover, pytest.raises(PartitionUnavailableError, match="no node"):
            handed(mover, {"nowhere-0": some})
        with NodeMover(router, 1, deadline_s=60.0) as waiting:
            waiting.move("nowhere-0", some)
        # left at once, with a request that had a minute to go
        assert waiting._closed.is_set()


class Counting(Router):
    """Answers nothing before it is let go, and knows how many ask."""

    asking = most = 0

    def ask(self, partition: str, *args: Any) -> frames.Reply:
        with self.changed:
            self.asking += 1
            self.most = max(self.most, self.asking)
            self.changed.notify_all()
            self.changed.wait_for(lambda: go.is_set(), 20)
            self.asking -= 1
        return frames.MoveReply(1, 0)


go = threading.Event()


def test_no_more_is_under_way_than_a_bound() -> None:
    """Whoever hands over waits; the others of what he has are not in memory yet."""
    go.clear()
    router: Any = Counting("tool", object(), 1.0)  # type: ignore[arg-type]
    done: list[int] = []
    with NodeMover(router, 1) as mover:

        def feed() -> None:
            for i in range(3 * node_mover.WAITING):
                mover.move(f"p-{i}", Misplaced("Counter", [b"k%d" % i], ["q"], [1]))
                done.append(i)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        wait_until(lambda: len(done) == node_mover.WAITING, "it does not take what it has room for")
        wait_until(lambda: router.asking == node_mover.AT_ONCE, "they are not asked side by side")
        assert len(done) == node_mover.WAITING
        go.set()
        router.nudge()
        thread.join(60)
        assert mover.settle() == {"moved": 3 * node_mover.WAITING}
        assert router.most == node_mover.AT_ONCE
