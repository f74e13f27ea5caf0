"""Local NO_SYNC with real processes: what the replicas acknowledged outlives the active, log or no log (R6)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.cluster.checker import check, check_copy, history
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_durability import APPENDS_MS, Landings
from tests.integration.cluster.test_quorum import halog

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(600)]


@pytest.fixture
def unlogged(make: Make) -> Cluster:
    cluster = make(nodes="ABC", partitions=3, sync=1, async_=1, local_sync="NO_SYNC")
    cluster.timed(append_deadline_ms=APPENDS_MS)
    cluster.start()
    cluster.whole()
    return cluster


@pytest.mark.feature("R1", "P10")
def test_active_nodes_are_killed_in_turn_and_nothing_acknowledged_is_missing(unlogged: Cluster) -> None:
    with Load(unlogged.client(), "turn", pause_s=0.0) as load:
        for node in "ABC":
            load.flows(40)
            unlogged.kill(node)
            load.flows(40)
            unlogged.start([node])
            unlogged.whole()
    assert load.errors == []
    check(unlogged, load)


def in_memory_of(cluster: Cluster) -> list[str]:
    """The active node of p-0 and its sync replica."""
    table = cluster.table("p-0")
    assert table.active is not None
    return [table.active.node, *(r.node for r in table.replicas if r.kind == "sync")]


def kill_both(cluster: Cluster) -> tuple[list[str], str]:
    """Whoever has p-0's last commits in memory, at once; and the third, which waits for them."""
    node, both = cluster.client(), in_memory_of(cluster)
    (third,) = set("ABC") - set(both)
    with Load(node, "both", threads=1) as load:
        load.flows(20)
    claims = cluster.log_of(third).count("partition p-0: claiming")  # at the start several may try
    for do in (cluster.freeze, cluster.kill):  # none of them is to see the other one die
        for name in both:
            do(name)
    wait(lambda: "HALOG-1018 partition p-0" in cluster.log_of(third), "the third one says what it waits for")
    assert cluster.log_of(third).count("partition p-0: claiming") == claims
    return both, third


def goes_on(cluster: Cluster, tail: str) -> None:
    with cluster.client().transaction() as tx:
        tx.create(Aircraft(tail=tail))


@pytest.mark.long
def test_with_all_that_had_it_in_memory_gone_nobody_goes_on_until_an_operator_says_so(unlogged: Cluster) -> None:
    node = unlogged.client()
    both, third = kill_both(unlogged)
    wait(lambda: not set(both) & set(unlogged.registered()), "ZooKeeper knows that they are gone")
    halog(unlogged, "partition", "accept-loss", "p-0", "--cluster", unlogged.name, "--reason", "both burnt down")
    goes_on(unlogged, tails(node, "accepted-")["p-0"][0])
    assert unlogged.table("p-0").node_list == (third,)

    def lost() -> list[Any]:
        return [e for e in halog(unlogged, "events", "--partition", "p-0") if e["code"] == "HALOG-1019"]

    wait(lost, "the history has it")
    (told,) = lost()
    assert (told["more"]["given_up"], told["more"]["reason"]) == (sorted(both), "both burnt down")
    assert (told["node"], told["text"].endswith(": both burnt down")) == (told["more"]["by"], True), told
    why = f"an operator gave up what {', '.join(sorted(both))} may have in memory"
    wait(lambda: why in _last_because(unlogged), "the history says why the third one leads")
    assert _last_because(unlogged) == f"{why}; by {told['node']}: both burnt down"


def _last_because(cluster: Cluster) -> str:
    return str(halog(cluster, "history", "p-0", "--why")[-1]["because"])


def test_those_that_had_it_in_memory_are_started_again_and_it_goes_on_and_says_what_may_be_lost(
    unlogged: Cluster,
) -> None:
    node = unlogged.client()
    both, _ = kill_both(unlogged)
    unlogged.start(both)
    goes_on(unlogged, tails(node, "again-")["p-0"][0])
    wait(lambda: any("HALOG-1019 partition p-0" in unlogged.log_of(n) for n in "ABC"), "a node says so")
    unlogged.whole()


def test_commits_go_on_while_the_log_stands_still_and_are_in_it_afterwards(unlogged: Cluster) -> None:
    """The broker is stopped for less than a commit may wait for it. A partition whose replica told its position in this
    very epoch waits for the log all the same (E1), so not each of them must go on."""
    with Landings(unlogged.client(), None) as landings:
        unlogged.site.pause("kafka")
        try:
            landings.go_on()
        finally:
            unlogged.site.resume("kafka")
    unlogged.whole()
    for tail in (tail for (tail,) in tails(unlogged.client(), "last-").values()):  # behind all of them
        goes_on(unlogged, tail)
    for partition, read in check(unlogged).items():
        told = landings.told[partition]
        assert [read.ids[tx] for tx, _ in told] == [[lsn] for _, lsn in told]
    assert landings.landed() == {p: len(told) for p, told in landings.told.items()}


def versions(cluster: Cluster, at: str, partition: str, tail: str) -> list[int]:
    """Of an aircraft, as a node's own copy shows it."""
    key = cluster.client().space.route(Aircraft, (tail,)).key
    return [found.version for found in cluster.stored(at, partition) if found.key == key]


@pytest.mark.feature("R1", "R5")
def test_a_replica_shows_an_acknowledged_commit_while_the_log_stands_still(unlogged: Cluster) -> None:
    """One commit in each partition, and none behind it. As above, not each of them must be answered."""
    node = unlogged.client()
    mine = {p: tail for p, (tail,) in tails(node, "shown-").items()}
    replicas = {p: next(r.node for r in unlogged.table(p).replicas if r.kind == "sync") for p in mine}
    told: dict[str, int] = {}

    def create(partition: str) -> None:
        with node.transaction() as tx:
            tx.create(Aircraft(tail=mine[partition]))
        assert tx.lsn is not None
        told[partition] = tx.lsn

    threads = [threading.Thread(target=create, args=(p,), daemon=True) for p in mine]
    unlogged.site.pause("kafka")
    try:
        for thread in threads:
            thread.start()
        wait(lambda: bool(told), "one of them is answered", 10.0)
        partition, lsn = next(iter(told.items()))
        replica, tail = replicas[partition], mine[partition]
        wait(lambda: versions(unlogged, replica, partition, tail) == [lsn], f"{replica} shows it", 10.0)
        assert unlogged.copies(replica)[partition]["lsn"] < lsn, "its log has it not"
    finally:
        unlogged.site.resume("kafka")
    for thread in threads:
        thread.join(60)
    unlogged.whole()
    histories = check(unlogged)
    for partition, tail in mine.items():
        key = node.space.route(Aircraft, (tail,)).key
        assert histories[partition].objects[key][1] == told[partition]


@pytest.mark.feature("R1")
def test_a_copy_that_shows_what_the_log_lacks_is_compared_when_the_log_has_it(unlogged: Cluster) -> None:
    """Of the judge: it looked at the log, then at what a copy shows, which may be ahead of the log by then."""
    node = unlogged.client()
    mine = {p: tail for p, (tail,) in tails(node, "ahead-").items()}
    before = {p: history(unlogged, p) for p in mine}
    told, wrong = set[str](), list[BaseException]()

    def create(partition: str) -> None:
        goes_on(unlogged, mine[partition])
        told.add(partition)

    def judge(partition: str, at: str) -> None:
        try:
            check_copy(unlogged, at, partition, before[partition])
        except BaseException as error:
            wrong.append(error)

    makers = [threading.Thread(target=create, args=(p,), daemon=True) for p in mine]
    unlogged.site.pause("kafka")
    try:
        for thread in makers:
            thread.start()
        wait(lambda: bool(told), "one of them is answered", 10.0)
        partition = next(iter(told))
        active = unlogged.table(partition).active
        assert active is not None
        assert versions(unlogged, active.node, partition, mine[partition]), f"{active.node} shows it"
        judges = [threading.Thread(target=judge, args=(partition, n), daemon=True) for n in "ABC"]
        for thread in judges:
            thread.start()
        passes(0.5)
    finally:
        unlogged.site.resume("kafka")
    for thread in (*makers, *judges):
        thread.join(60)
    assert not wrong
    key = node.space.route(Aircraft, (mine[partition],)).key
    assert key in before[partition].objects, "the log has it"
