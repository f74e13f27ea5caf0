"""A log that is not as halog wrote it: the partition it belongs to stops and says why, the others serve on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from halog.backend import Work
from halog.errors import HalogError
from halog.runtime.rpc import frames
from tests import forked
from tests.integration.cluster.checker import check, entries
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import tails
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def two(make: Make) -> Cluster:
    """Nodes A and B with two partitions, p-0 active on A, p-1 on B, and an object in each."""
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    cluster.whole()
    create(cluster, "first-")
    check(cluster)
    return cluster


def create(cluster: Cluster, prefix: str, partitions: str = "01") -> None:
    node = cluster.client()
    for index in partitions:
        with node.transaction():
            node.create(Aircraft(tail=tails(node, prefix)[f"p-{index}"][0]))


def write(cluster: Cluster, index: int, data: bytes) -> None:
    """As a foreign producer would."""
    producer = Producer({"bootstrap.servers": cluster.site.info.bootstrap, "enable.idempotence": True})
    producer.produce(f"{cluster.name}.p.log", data, partition=index)
    assert producer.flush(20) == 0


def poke(cluster: Cluster) -> None:
    """Makes the active nodes write: they notice then what stands in the log, and refuse."""
    node = cluster.client()
    epoch = node.runtime.router.epoch("p-0")  # in another one nothing is done
    for name in cluster.running():
        tx = node.backend.new_transaction_id()
        with suppress(HalogError):
            node.runtime.router.request(name, frames.Submit("p-0", tx, Work((), ()), epoch), 2.0)


def stopped(cluster: Cluster, says: str) -> Callable[[], bool]:
    """Do both copies of p-0 say this in their status, and does nobody serve it?"""

    def look() -> bool:
        poke(cluster)
        copies = [cluster.copies(n).get("p-0", {}) for n in cluster.running()]
        return all(says in str(c.get("error")) and c["role"] == "failed" for c in copies)

    return look


@pytest.mark.feature("U1", "P1")
def test_a_record_of_an_unknown_version_stops_its_partition(two: Cluster) -> None:
    """Skipping it would make objects differ from those of a reader that knows it. Other partitions serve on."""
    write(two, 0, b"\x02\x03from a later halog")
    says = "a record of version 2 and kind 3, which a later version of halog wrote"
    wait(stopped(two, says), "both copies of p-0 say so")
    create(two, "second-", "1")
    wait(lambda: two.copies("A").get("p-1", {}).get("error", "?") is None, "p-1 is well")


@pytest.mark.feature("P1", "R1")
def test_a_record_of_another_history_stops_its_partition(two: Cluster) -> None:
    """A well-formed record of another partition: it is not taken, and rebuilding does not help."""
    _, foreign = list(entries(two.site.info.bootstrap, f"{two.name}.p.log", 1))[-1]
    write(two, 0, foreign)
    wait(stopped(two, "another history"), "both copies of p-0 say so")
    create(two, "second-", "1")


@pytest.mark.feature("P8", "O1")
def test_a_node_that_starts_says_which_of_its_partitions_have_failed(two: Cluster) -> None:
    """With its first word, and stays up; status names them and why."""
    _, foreign = list(entries(two.site.info.bootstrap, f"{two.name}.p.log", 1))[-1]
    write(two, 0, foreign)
    wait(stopped(two, "another history"), "both copies of p-0 say so")
    assert two.processes["A"].terminate() == 0
    two.start(["A"])
    said = two.processes["A"].lines()[0]
    assert "degraded: 1 of its 2 partitions have failed here: p-0: " in said
    assert "another history" in said
    argv = ["halog.cli.main", "status", "--config", str(two.toml), "--format", "json"]

    def told() -> bool:
        """A node that takes longer than a second to answer says nothing."""
        ran = forked.run(argv, timeout=60)
        assert ran.returncode == 4, ran.stderr
        seen = json.loads(ran.stdout)
        failed = {(f["partition"], f["node"]) for f in seen["failed"]}
        return failed == {("p-0", "A"), ("p-0", "B")} and {seen["nodes"][name] for name in "AB"} == {"up"}

    wait(told, "an operator is told of both copies, and that both nodes are up")
    create(two, "second-", "1")


@pytest.mark.feature("R1", "P1")
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_topic_that_was_created_again_is_noticed_and_nothing_is_deleted(two: Cluster, when: str) -> None:
    """The copies are ahead of the log then: they keep what they hold and say so, rather than follow an empty log."""
    held = {n: list(two.stored(n, "p-0")) for n in "AB"}
    assert held["A"]
    if when == "stopped":
        assert [two.processes[n].terminate() for n in "AB"] == [0, 0]
    recreate(two)
    if when == "stopped":
        two.start()
        wait(lambda: set(two.client().runtime.router.nodes) >= set("AB"), "the client knows both")
    wait(stopped(two, "nothing was deleted here"), "both copies of p-0 say so")
    assert {n: list(two.stored(n, "p-0")) for n in "AB"} == held


def recreate(cluster: Cluster) -> None:
    """The log topic, deleted and created again by somebody, with the settings halog asks for."""
    admin = AdminClient({"bootstrap.servers": cluster.site.info.bootstrap})
    topic = f"{cluster.name}.p.log"
    admin.delete_topics([topic])[topic].result(20)

    def created() -> bool:
        config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "flush.messages": "1"}
        with suppress(KafkaException):  # the old one is still being deleted
            admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(20)
            return True
        return False

    wait(created, "the topic is there again")
