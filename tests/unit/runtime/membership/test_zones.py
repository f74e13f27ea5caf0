"""Whole nodes and their zones, in memory: a node without a quorum serves nothing (Q1)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from halog.config import ZoneConfig, ZoneQuorumConfig
from halog.core.roles import Role
from halog.errors import OutcomeUnknownError, PartitionUnavailableError, ZoneQuorumError
from halog.metadata.zone_switches import ZoneSwitch, set_switch
from halog.testing.cluster import wait_until
from halog.transactions.node import Node
from tests.unit.counting import Counter
from tests.unit.runtime.membership import zoned
from tests.unit.runtime.membership.zoned import Make, add, goes_offline, is_online, runtime, state, told

make = pytest.fixture(zoned.make)


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
    assert {c.core.state.role for c in runtime(cluster, name).copies.values()} == {Role.OFFLINE}
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
    wait_until(
        lambda: copies and {c.core.state.role for c in copies.values()} == {Role.OFFLINE}, "a copy is not offline"
    )
    with pytest.raises(ZoneQuorumError, match="node C is offline"):
        add(cluster.node("C"))
    cluster.restart("A")
    cluster.settle()
    assert is_online(cluster, "C")
    assert add(cluster.client()) == 1


@pytest.mark.feature("Q1", "R7")
def test_commits_wait_for_the_quorum_where_the_policy_says_so(make: Make) -> None:
    """On the offline node itself; and they go on with it."""
    cluster = make(minimum_votes=2, below_quorum="wait")
    cluster.kill("A")
    cluster.kill("B")
    goes_offline(cluster, "C")
    result: list[int] = []
    node: Any = cluster.node("C")
    node.backend.asker.call_s = 60.0
    with pytest.raises(ZoneQuorumError):
        add(node)  # its read does not wait
    thread = threading.Thread(target=lambda: result.append(_create(node)))
    thread.start()
    thread.join(0.5)
    assert not result
    set_switch(runtime(cluster, "C").adapters.coordinator, "test", ZoneSwitch(off=True))
    thread.join(60)
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
    leads = dict.fromkeys(cluster.tables(), "B")
    wait_until(lambda: {n: t.active and t.active.node for n, t in cluster.tables().items()} == leads, "B leads all")
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
    thread.join(60)
    assert isinstance(result[0], OutcomeUnknownError), result
    assert "offline" in str(result[0])


def test_a_client_hears_unavailable_as_ever_where_no_node_says_that_it_is_offline(make: Make) -> None:
    cluster = make(minimum_votes=2)
    client: Any = cluster.client()
    for name in "ABC":
        cluster.kill(name)
    client.backend.asker.call_s = 3.0  # it is waited for
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
