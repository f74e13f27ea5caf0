"""Whole nodes and their zones, in memory: a node without a quorum serves nothing, and what comes back restores (Q1)."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryLog
from halog.config import SnapshotConfig, TimingConfig, ZoneConfig, ZoneQuorumConfig
from halog.core.roles import INCOMPLETE, Role
from halog.errors import OutcomeUnknownError, PartitionUnavailableError, ZoneQuorumError
from halog.events import Event
from halog.ports import TopicPartition
from halog.runtime import frames
from halog.runtime.copy import Copy
from halog.runtime.node import Runtime
from halog.runtime.zone_switch import ZoneSwitch, set_switch
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

EVENTS = TopicPartition("test.events", 0)
Make = Callable[..., Cluster]
TIMING = TimingConfig(call_deadline_ms=3_000)  # a test waits for it


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Cluster] = []

    def start(
        zones: dict[str, ZoneConfig] | None = None,
        votes: dict[str, int] | None = None,
        snapshot: SnapshotConfig = SnapshotConfig(),  # noqa: B008 - frozen
        below_quorum: str = "refuse",
        **quorum: int,
    ) -> Cluster:
        cluster = Cluster(3, partitions=2, registry=REGISTRY)
        made.append(cluster)
        policy = dataclasses.replace(cluster.config.policies["test"], below_quorum=below_quorum)
        zones = zones or {"test": ZoneConfig(("A", "B", "C"), ZoneQuorumConfig(**quorum))}
        config = cluster.config
        nodes = {n: dataclasses.replace(c, votes=(votes or {}).get(n, 1)) for n, c in config.nodes.items()}
        cluster.config = dataclasses.replace(
            config, zones=zones, nodes=nodes, timing=TIMING, snapshot=snapshot, policies={"test": policy}
        ).validate()
        cluster.start()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        return cluster

    yield start
    for cluster in made:
        cluster.close()


def add(node: Node) -> int:
    with node.transaction() as tx:
        return tx.get(Counter, "c").add(1)


def runtime(cluster: Cluster, name: str) -> Runtime:
    return cluster.node(name).runtime


def state(cluster: Cluster, name: str, zone: str = "test") -> str:
    zones: Any = runtime(cluster, name).status()["zones"]
    return str(next(z["state"] for z in zones if z["zone"] == zone))


def goes_offline(cluster: Cluster, name: str) -> None:
    wait_until(lambda: runtime(cluster, name).members.offline, f"{name} is not offline")


def is_online(cluster: Cluster, name: str) -> bool:
    r = runtime(cluster, name)
    return not r.members.offline and all(c.core.role is not Role.OFFLINE for c in r.copies.values())


def told(cluster: Cluster) -> list[Event]:
    log = MemoryLog(cluster._broker)
    return [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]


def cut(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing that other nodes say by themselves reaches `name`, and the other way round; clients reach everybody."""
    healed = threading.Event()

    def deaf(service: Any, to: Callable[[str], bool]) -> None:
        real = service._control

        def control(member: Any, frame: frames.Control) -> None:
            if healed.is_set() or not to(member.node):
                real(member, frame)

        monkeypatch.setattr(service, "_control", control)

    for each in cluster.names:
        deaf(runtime(cluster, each).service, (lambda n: n != name) if each == name else (lambda n: n == name))
    return healed.set


@pytest.mark.feature("Q1", "P11")
def test_the_last_of_three_serves_nothing_until_another_one_is_back(make: Make) -> None:
    """The issue's own example: minimum_votes = 2."""
    cluster = make(minimum_votes=2)
    assert add(cluster.client()) == 1
    assert [state(cluster, n) for n in "ABC"] == ["active"] * 3
    name = cluster.active_for(Counter, "c")
    first, second = (n for n in "ABC" if n != name)
    cluster.kill(first)
    assert add(cluster.client()) == 2
    wait_until(lambda: state(cluster, second) == "partial", "it misses one")
    cluster.kill(second)
    goes_offline(cluster, name)
    last = cluster.node(name)
    assert state(cluster, name) == "disabled"
    with pytest.raises(
        ZoneQuorumError, match=f"node {name} is offline: zone test .* here: 1 votes, 2 needed"
    ) as caught:
        add(last)
    assert caught.value.evidence["node"] == name
    with pytest.raises(ZoneQuorumError), last.transaction(read="local") as tx:
        tx.get(Counter, "c")
    with pytest.raises(ZoneQuorumError), last.transaction(read="local") as tx:
        list(tx.extent(Counter))
    with pytest.raises(ZoneQuorumError, match=f"node {name} is offline"):
        add(cluster.client())
    assert {c.core.role for c in runtime(cluster, name).copies.values()} == {Role.OFFLINE}
    cluster.restart(first)
    cluster.settle()
    assert is_online(cluster, name)
    assert add(cluster.client()) == 3


@pytest.mark.feature("Q1", "P11")
def test_one_that_never_reached_anybody_serves_nothing_either(make: Make) -> None:
    """It was offline before it had told its copies who is up: they are to hear that it is not."""
    cluster = make(minimum_votes=2)
    for name in "ABC":
        cluster.kill(name)
    cluster.restart("C")
    goes_offline(cluster, "C")
    copies = runtime(cluster, "C").copies
    wait_until(lambda: copies and {c.core.role for c in copies.values()} == {Role.OFFLINE}, "a copy is not offline")
    with pytest.raises(ZoneQuorumError, match="node C is offline"):
        add(cluster.node("C"))
    cluster.restart("A")
    cluster.settle()
    assert is_online(cluster, "C")
    assert add(cluster.client()) == 1


@pytest.mark.feature("Q1", "P11", "P10")
def test_a_node_that_is_cut_off_gives_up_its_roles_and_restores_what_it_missed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is active, and can reach ZooKeeper and the log all the time: only its peers are gone."""
    cluster = make(minimum_votes=2)
    first = cluster.active_for(Counter, "c")
    others = [n for n in "ABC" if n != first]
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    with pytest.raises(ZoneQuorumError):
        add(cluster.node(first))
    wait_until(lambda: cluster.active_for(Counter, "c") in others, "nobody took over")
    assert add(cluster.client()) == 1
    copy = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]
    stood, lsn = copy.core.chain.state.lsn, runtime(cluster, first).copies[copy.name].core.visible
    assert stood == lsn
    assert copy.core.role is Role.OFFLINE
    heal()
    cluster.settle()
    wait_until(lambda: is_online(cluster, first), "it is not restored")
    assert copy.core.chain.state.lsn > lsn
    assert add(cluster.node(first)) == 2


@pytest.mark.feature("Q1", "P11")
def test_one_that_was_offline_for_longer_than_the_log_is_kept_is_rebuilt(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(minimum_votes=2, snapshot=SnapshotConfig(every_records=5, every_ms=100, keep_records=1))
    first = cluster.active_for(Counter, "c")
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    old = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]

    def trimmed() -> bool:
        add(cluster.client())
        return MemoryLog(cluster._broker).bounds(old.tp)[0] > old.core.next_offset

    wait_until(trimmed, "the log is not trimmed")
    heal()
    wait_until(lambda: runtime(cluster, first).copies.get(old.name) not in (None, old), "it is not rebuilt")
    cluster.settle()
    with cluster.node(first).transaction(read="local") as tx:
        here = tx.get(Counter, "c").value
    assert add(cluster.client()) == here + 1
    assert runtime(cluster, first).copies[old.name].error is None
    assert not [e for e in told(cluster) if e.code == "HALOG-1015"], "its history was never in doubt"


@pytest.mark.feature("P11", "R5")
def test_a_copy_that_came_back_shows_nothing_before_it_has_read_what_it_missed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(minimum_votes=2)
    first = cluster.active_for(Counter, "c")
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    copy = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]
    add(cluster.client())
    read, may_read = Copy.read, threading.Event()

    def held(self: Copy, entries: Any) -> None:
        if self is copy:
            may_read.wait(10)
        read(self, entries)

    monkeypatch.setattr(Copy, "read", held)
    heal()
    wait_until(lambda: not runtime(cluster, first).members.offline, "it is not back")
    wait_until(lambda: copy.core.role is Role.LOADING, "it does not load")
    newest = add(cluster.client())
    with cluster.node(first).transaction(read="local") as tx:
        assert tx.get(Counter, "c").value == newest, "the active was asked"
        assert [c.value for c in tx.extent(Counter)] == [newest]
    may_read.set()
    wait_until(lambda: copy.core.role not in INCOMPLETE, "it does not come back")


@pytest.mark.feature("Q1", "R7")
def test_commits_wait_for_the_quorum_where_the_policy_says_so(make: Make) -> None:
    """On the offline node itself; and they go on with it."""
    cluster = make(minimum_votes=2, below_quorum="wait")
    cluster.kill("A")
    cluster.kill("B")
    goes_offline(cluster, "C")
    result: list[int] = []
    node = cluster.node("C")
    with pytest.raises(ZoneQuorumError):
        add(node)  # its read does not wait
    thread = threading.Thread(target=lambda: result.append(_create(node)))
    thread.start()
    thread.join(0.5)
    assert not result
    set_switch(runtime(cluster, "C").adapters.coordinator, "test", ZoneSwitch(off=True))
    thread.join(10)
    assert result == [1]


def _create(node: Node) -> int:
    with node.transaction() as tx:
        tx.create(Counter("new"))
    return 1


@pytest.mark.feature("Q1", "N4")
def test_others_take_an_offline_node_for_down_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in two zones; losing the quorum of one takes it out of the other. Nobody waits for its silence."""
    pair = ZoneConfig(("A", "C"), ZoneQuorumConfig(minimum_active_remote_nodes=1))
    cluster = make(zones={"test": ZoneConfig(("A", "B", "C")), "pair": pair})
    cluster.kill("C")
    goes_offline(cluster, "A")
    assert state(cluster, "A", "pair") == "disabled"
    assert state(cluster, "A") == "partial", "a zone without a quorum is never disabled"
    b = runtime(cluster, "B").members
    wait_until(lambda: [m.node for m in b.alive] == ["B"], "B takes A for up")
    assert b.links["A"].up
    assert add(cluster.client()) == 1
    assert all(t.active is not None and t.active.node == "B" for t in cluster.tables().values())
    assert {m.node for m in runtime(cluster, "A").members.alive} == {"B"}
    why = "it is offline: zone pair has no quorum here: 0 remote nodes, 1 needed"
    wait_until(
        lambda: [e.cause for e in told(cluster) if e.code == "HALOG-1004" and e.node == "A"] == [why],
        "B does not tell why, once",
    )


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("quorum", "votes", "kill", "offline"),
    [
        ({"percentage": 60}, {}, "A", False),
        ({"percentage": 70}, {}, "A", True),
        ({"percentage": 60}, {"A": 3}, "A", True),
        ({"minimum_active_remote_nodes": 1}, {}, "A", False),
        ({"minimum_active_remote_nodes": 2}, {}, "A", True),
        ({"minimum_votes": 3}, {"B": 2}, "A", False),
    ],
)
def test_the_kinds_of_quorum(
    make: Make, quorum: dict[str, int], votes: dict[str, int], kill: str, offline: bool
) -> None:
    """Two of three nodes are left."""
    cluster = make(votes=votes, **quorum)
    cluster.kill(kill)
    if offline:
        goes_offline(cluster, "B")
        goes_offline(cluster, "C")
        with pytest.raises(ZoneQuorumError):
            add(cluster.node("B"))
    else:
        assert add(cluster.client()) == 1
        wait_until(lambda: state(cluster, "B") == state(cluster, "C") == "partial", "they miss A")
        assert is_online(cluster, "B")


@pytest.mark.feature("Q1")
def test_without_a_quorum_nothing_changes(make: Make) -> None:
    """The last one goes on alone, no event tells of zones, and no thread looks after them."""
    cluster = make()
    cluster.kill("A")
    cluster.kill("B")
    assert add(cluster.client()) == 1
    wait_until(lambda: state(cluster, "C") == "partial", "it misses two")
    assert runtime(cluster, "C").status()["offline"] is None
    assert not [e for e in told(cluster) if "zone" in e.name]
    assert "halog-zones" not in [t.name for t in threading.enumerate()]


@pytest.mark.feature("Q1", "Q4")
def test_changes_are_told(make: Make) -> None:
    cluster = make(minimum_votes=2)
    cluster.kill("A")
    wait_until(lambda: state(cluster, "C") == "partial", "C misses A")
    cluster.kill("B")
    goes_offline(cluster, "C")
    cluster.restart("B")
    wait_until(lambda: is_online(cluster, "C"), "C is not back")

    def codes() -> list[str]:
        return [e.code for e in told(cluster) if e.by == "C" and e.more.get("zone") == "test"]

    wait_until(lambda: codes()[-3:] == ["HALOG-1023", "HALOG-1021", "HALOG-1022"], "C does not tell so")
    assert codes()[0] == "HALOG-1022", "it starts without anybody"


@pytest.mark.feature("Q1")
def test_a_quorum_is_switched_off_and_on_while_nobody_reaches_anybody(make: Make) -> None:
    """At once, for the last node of three; and it holds for nodes that start later."""
    cluster = make(minimum_votes=2)
    cluster.kill("A")
    cluster.kill("B")
    goes_offline(cluster, "C")
    tree = runtime(cluster, "C").adapters.coordinator
    set_switch(tree, "test", ZoneSwitch(off=True, reason="two machines burnt down", since_ms=5))
    wait_until(lambda: is_online(cluster, "C"), "it is still offline")
    assert add(cluster.client()) == 1
    assert state(cluster, "C") == "partial"
    set_switch(tree, "test", ZoneSwitch(off=False, reason="new machines"))
    goes_offline(cluster, "C")
    with pytest.raises(ZoneQuorumError):
        add(cluster.node("C"))
    wait_until(
        lambda: (
            [(e.more["now"], e.cause) for e in told(cluster) if e.code == "HALOG-1025"]
            == [("off", "two machines burnt down"), ("on", "new machines")]
        ),
        "the events do not say so, once each",
    )
    set_switch(tree, "test", ZoneSwitch(off=True))
    cluster.kill("C")
    cluster.restart("A")
    wait_until(lambda: is_online(cluster, "A"), "the switch does not hold for a node that starts")


@pytest.mark.feature("Q1", "R5")
def test_a_commit_under_way_when_the_quorum_goes_is_unknown_never_denied(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record may be in the log: the next attempt meets a node that does nothing, and cannot know."""
    cluster = make(minimum_votes=2)
    name = cluster.active_for(Counter, "c")
    node = cluster.node(name)
    copy = node.runtime.copies[cluster.partition_of(Counter, "c")]
    monkeypatch.setattr(copy, "take_reports", lambda: None)  # the log's answer is not heard
    result: list[BaseException | int] = []

    def commit() -> None:
        try:
            result.append(add(node))
        except BaseException as e:
            result.append(e)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_until(lambda: copy.answers, "nothing is under way")
    for other in "ABC":
        if other != name:
            cluster.kill(other)
    thread.join(10)
    assert isinstance(result[0], OutcomeUnknownError), result
    assert "offline" in str(result[0])


def test_a_client_hears_unavailable_as_ever_where_no_node_says_that_it_is_offline(make: Make) -> None:
    cluster = make(minimum_votes=2)
    client = cluster.client()
    for name in "ABC":
        cluster.kill(name)
    with pytest.raises((PartitionUnavailableError, OutcomeUnknownError)):
        add(client)


@pytest.mark.feature("Q1")
def test_a_switch_that_vanishes_is_on_again_and_one_that_cannot_be_read_changes_nothing(make: Make) -> None:
    """A ZooKeeper that was put back to another day may know less."""
    cluster = make(minimum_votes=2)
    cluster.kill("A")
    cluster.kill("B")
    tree = runtime(cluster, "C").adapters.coordinator
    set_switch(tree, "test", ZoneSwitch(off=True))
    wait_until(lambda: is_online(cluster, "C") and state(cluster, "C") == "partial", "C does not go on")
    tree.set("zones/test", b"no switch", 0)
    assert add(cluster.client()) == 1
    assert not runtime(cluster, "C").members.offline
    assert tree.delete("zones/test")
    goes_offline(cluster, "C")
