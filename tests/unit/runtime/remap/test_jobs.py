"""A job says that it moves the objects of a change, and nodes leave them to it as long as they may believe it (S1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.core.keys.mapping import Layout, PolicyMapping, begun, opened, turned_back
from halog.errors import RefusedError, RemappedError
from halog.metadata import mapped_policies, move_jobs as jobs
from halog.metadata.move_jobs import JobAnnouncement, MoveJobs
from halog.runtime.remap import remap_request as wishes
from halog.runtime.remap.announcement import Announcement
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.keys.remapped import POLICY, Counter, Traffic, check, cluster_of, configured, mapping, wait_done

pytestmark = pytest.mark.feature("S1", "P13")


@pytest.fixture
def coordinator() -> MemoryCoordinator:
    made = MemoryCoordinator()
    made.connect(lambda state: None)
    return made


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def put(coordinator: MemoryCoordinator, data: bytes) -> None:
    found = coordinator.get(jobs.path_of("p"))
    if found is None:
        coordinator.create(jobs.path_of("p"), data)
    else:
        coordinator.set(jobs.path_of("p"), data, found.version)


def said(by: str = "job", version: int = 3, for_ms: int = 10_000) -> bytes:
    return msgspec.json.encode(JobAnnouncement(by, version, for_ms))


def test_a_node_believes_an_announcement_for_its_time_behind_each_renewal(coordinator: MemoryCoordinator) -> None:
    clock = Clock()
    believed = MoveJobs(coordinator, clock)
    assert believed.at_work("p", 3) is None
    put(coordinator, said())
    assert believed.at_work("p", 3) == "job"
    clock.now += 9.9
    assert believed.at_work("p", 3) == "job"
    put(coordinator, said())
    clock.now += 9.9
    assert believed.at_work("p", 3) == "job", "it was seen anew when it was looked at, not when it was set"
    clock.now += 10.0
    assert believed.at_work("p", 3) is None
    assert believed.at_work("p", 3) is None
    coordinator.delete(jobs.path_of("p"))
    put(coordinator, said("next"))
    assert believed.at_work("p", 3) == "next"


def test_it_is_believed_of_one_version_and_of_no_other(coordinator: MemoryCoordinator) -> None:
    put(coordinator, said(version=3))
    believed = MoveJobs(coordinator)
    assert [believed.at_work("p", version) for version in (2, 3, 4)] == [None, "job", None]
    assert believed.at_work("q", 3) is None


def test_whatever_it_says_it_is_not_believed_for_ever(coordinator: MemoryCoordinator) -> None:
    clock = Clock()
    believed = MoveJobs(coordinator, clock)
    put(coordinator, said(for_ms=1 << 50))
    assert believed.at_work("p", 3) == "job"
    clock.now += jobs.LONGEST_MS / 1_000
    assert believed.at_work("p", 3) is None


@pytest.mark.parametrize("data", [b"", b"{}", b'{"by":"j","version":"3"}', b'["j",3,1000]'])
def test_what_is_no_announcement_is_left_nothing(coordinator: MemoryCoordinator, data: bytes) -> None:
    put(coordinator, data)
    assert MoveJobs(coordinator).at_work("p", 3) is None


@pytest.mark.feature("U1")
def test_what_a_later_version_announces_is_believed(coordinator: MemoryCoordinator) -> None:
    put(coordinator, b'{"by":"j","version":3,"for_ms":1000,"more":1}')
    assert MoveJobs(coordinator).at_work("p", 3) == "j"


def test_while_nobody_answers_what_was_seen_is_believed_for_its_time(coordinator: MemoryCoordinator) -> None:
    clock = Clock()
    believed = MoveJobs(coordinator, clock)
    put(coordinator, said())
    assert believed.at_work("p", 3) == "job"
    coordinator.suspend()
    assert believed.at_work("p", 3) == "job"
    clock.now += 10.0
    assert believed.at_work("p", 3) is None


# --- the job's side ---


def test_a_job_that_works_is_renewed_and_one_that_hangs_is_not(coordinator: MemoryCoordinator) -> None:
    def version() -> int:
        found = coordinator.get(jobs.path_of("p"))
        assert found is not None
        return found.version

    with Announcement(coordinator, "p", JobAnnouncement("job", 3, 30)) as announcement:
        wait_until(lambda: version() > 3, "it is not renewed")
        announcement.beat()
    assert coordinator.get(jobs.path_of("p")) is None, "taken back at the end"
    with Announcement(coordinator, "p", JobAnnouncement("job", 3, 30), silent_s=0.0) as hanging:
        assert not hanging._ended.wait(0.2)
        assert version() == 0
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(hanging, "_silent_s", 60.0)
            wait_until(lambda: version() > 0, "it goes on being renewed once it does something")


@pytest.mark.parametrize("lost", [1, 3])
def test_a_lost_answer_is_looked_up(coordinator: MemoryCoordinator, lost: int) -> None:
    coordinator.lose_reply(lost)
    with Announcement(coordinator, "p", JobAnnouncement("job", 3)):
        assert MoveJobs(coordinator).at_work("p", 3) == "job"


def test_whoever_comes_later_is_the_one_and_the_earlier_one_hears_of_it(coordinator: MemoryCoordinator) -> None:
    with Announcement(coordinator, "p", JobAnnouncement("later", 3)) as later:
        with Announcement(coordinator, "p", JobAnnouncement("first", 3, 30)) as first:
            put(coordinator, said("later", for_ms=30_000))
            wait_until(lambda: first._lost, "it does not hear of it")
            with pytest.raises(RefusedError, match="another job was started later"):
                first.beat()
        assert MoveJobs(coordinator).at_work("p", 3) == "later", "the earlier one took nothing back"
        later.beat()


# --- wishes ---

OLD, NEW, OTHER = (Layout("consistent_hash", 2, ring) for ring in (1_000, 2_000, 3_000))
NOW = PolicyMapping(OLD)
OPEN = opened(begun(NOW, NEW))


@pytest.mark.parametrize(
    ("mapping_", "version"),
    [(begun(NOW, NEW), 1), (OPEN, 1), (PolicyMapping(NEW, 1), 1), (PolicyMapping(NEW), 0)],
    ids=["begun", "open", "done", "never changed"],
)
def test_a_change_that_is_there_is_joined(
    coordinator: MemoryCoordinator, mapping_: PolicyMapping, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wishes, "wished", lambda config, policy: config)
    coordinator.create(mapped_policies.path_of("p"), mapped_policies.packed({}, mapping_))
    config: Any = NEW
    router: Any = None
    assert wishes.join(coordinator, router, config, "p") == version
    assert mapped_policies.read(coordinator, "p").mapping == mapping_


@pytest.mark.parametrize("mapping_", [opened(begun(NOW, OTHER)), turned_back(opened(begun(PolicyMapping(NEW), OTHER)))])
def test_another_change_or_one_that_is_turned_back_is_not_joined(
    coordinator: MemoryCoordinator, mapping_: PolicyMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wishes, "wished", lambda config, policy: config)
    coordinator.create(mapped_policies.path_of("p"), mapped_policies.packed({}, mapping_))
    config: Any = NEW
    router: Any = None
    with pytest.raises(RefusedError, match="another change is under way"):
        wishes.join(coordinator, router, config, "p")
    assert mapped_policies.read(coordinator, "p").mapping == mapping_


# --- nodes ---


def coordinator_of(cluster: Cluster) -> Any:
    return cluster.node("A").runtime.adapters.coordinator


def remapping_of(cluster: Cluster, name: str) -> Any:
    return cluster.node(name).runtime.remapping


def left(cluster: Cluster) -> list[object]:
    return [remapping_of(cluster, name).view().get("left_to") for name in cluster.names]


def test_nodes_leave_the_objects_to_a_job_and_go_on_when_it_ends() -> None:
    with cluster_of(2) as cluster:
        traffic = Traffic(cluster.client(), 100)
        traffic.fill()
        with Announcement(coordinator_of(cluster), POLICY, JobAnnouncement("job", 1)), traffic.running():
            configured(cluster, ring_size=999)
            cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
            wait_until(lambda: left(cluster) == [{POLICY: "job"}] * 2, "a node does not leave them to the job")
            served = {n: c for name in cluster.names for n, c in cluster.node(name).runtime.copies.items() if c.serving}
            wait_until(
                lambda: all(c.core.state.ledger.mapping == 1 for c in served.values()), "a partition does not change"
            )
            traffic.goes_on()
            assert mapping(cluster).updating(POLICY) == mapping(cluster).partition_names(POLICY)
            moved = [remapping_of(cluster, name).view()["moved"] for name in cluster.names]
            assert moved == [{}, {}], "out of turn only"
        wait_done(cluster, 1)
        traffic.finished()
        check(cluster, cluster.config)
        wait_until(lambda: left(cluster) == [None, None], "what is over is still said")


def test_nodes_go_on_by_themselves_when_an_announcement_is_over() -> None:
    """Nobody takes it back: its driver was killed."""
    with cluster_of(2) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(100)])
        clock = Clock()
        for name in cluster.names:
            remapping_of(cluster, name)._jobs._clock = clock
        coordinator_of(cluster).create(jobs.path_of(POLICY), msgspec.json.encode(JobAnnouncement("dead", 1)))
        configured(cluster, ring_size=999)
        cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
        wait_until(lambda: left(cluster) == [{POLICY: "dead"}] * 2, "a node does not leave them to the job")
        clock.now += jobs.FOR_MS / 1_000
        wait_done(cluster, 1)
        check(cluster, cluster.config)


def test_a_change_that_is_turned_back_is_left_to_nobody() -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(40)])
        old = cluster.config
        with Announcement(coordinator_of(cluster), POLICY, JobAnnouncement("job", 1)):
            configured(cluster, ring_size=999)
            operators = cluster.node("A").runtime.operators
            operators.rebalance(POLICY, cluster.config)
            wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
            operators.turn_back(POLICY)
            wait_done(cluster, 2)
        check(cluster, old)


def test_objects_changed_since_they_were_found_are_told() -> None:
    """The node is asked by an older version of what it holds, and by one of a mapping that is served no more."""
    with cluster_of(1, sync_replicas=0) as cluster:
        client: Any = cluster.client()
        client.load([Counter(f"c{i}") for i in range(60)])
        with Announcement(coordinator_of(cluster), POLICY, JobAnnouncement("job", 1)):
            configured(cluster, ring_size=999)
            cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
            wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
            runtime = cluster.node("A").runtime
            copy = max(runtime.copies.values(), key=lambda c: len(list(c.objects.scan(b""))))
            found = list(copy.objects.scan(b""))
            away = [f for f in found if runtime.mover.misplaced(f, copy, mapping(cluster)) is not None]
            versions = [f.version - (i < 3) for i, f in enumerate(away)]
            router = client.runtime.router
            frame = frames.Move(copy.name, [f.key for f in away], 1, versions)
            reply = router.ask(copy.name, frame, 10.0, lambda: False)
            assert reply == frames.MoveReply(len(away), 0, 3)
            assert router.ask(copy.name, frame, 10.0, lambda: False) == frames.MoveReply(0, 0, 0), "asked twice"
            cluster.node("A").runtime.operators.turn_back(POLICY)
            wait_done(cluster, 2)
            with pytest.raises(RemappedError):
                router.ask(copy.name, frame, 10.0, lambda: False)
