"""A log that was trimmed: whoever comes new or empty-handed reads the state topic, then what the log still holds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, TopicPartition

from halog.backend import CommittedObject, Work
from halog.errors import NotFoundError
from tests.integration.cluster.checker import bounds, copies_equal
from tests.integration.cluster.fleet import Aircraft, Flight, Pilot
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(600)


def log_start(cluster: Cluster, index: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.site.info.bootstrap, "group.id": "judge"})
    try:
        return bounds(consumer, TopicPartition(f"{cluster.name}.p.log", index))[0]
    finally:
        consumer.close()


def wipe(cluster: Cluster, names: Sequence[str]) -> None:
    for name in names:
        shutil.rmtree(cluster.directory / name)


def everything(cluster: Cluster) -> dict[str, dict[bytes, CommittedObject]]:
    """What all copies hold, once they hold the same."""
    wait(lambda: copies_equal(cluster), "all copies hold the same")
    return {p: {f.key: f for f in cluster.stored("A", p)} for p in cluster.partitions()}


@pytest.mark.feature("R1", "P1", "D1")
def test_objects_deletes_references_and_ids_outlive_the_trimmed_log(make: Make) -> None:
    """One emptied node, then all nodes emptied at once: the same objects under the same references, what was deleted
    stays deleted, and a transaction that happened is known by its id."""
    cluster = make(partitions=2, every=150, keep=40)
    cluster.start()
    cluster.whole()
    node = cluster.client()
    tail = tails(node, "kept-")["p-0"][0]
    with node.transaction() as tx:
        aircraft = node.create(Aircraft(tail=tail, miles=5))
        node.create(Pilot(tail=tail, name="Amelia", flies=node.ref(aircraft)))
        gone = node.create(Flight(tail=tail, number=1))
        reference = node.ref(gone)
    with node.transaction():
        node.delete(node.get(Flight, tail, 1))
    known = (tx.id or b"", tx.lsn)

    with Load(node, "trim", pause_s=0) as load:
        wait(lambda: all(log_start(cluster, i) > 50 for i in range(2)), "the logs are trimmed", 90)
        cluster.kill("B")
        wipe(cluster, "B")
        cluster.start("B")
        cluster.whole()
        load.flows()
    assert load.errors == []
    load.check_objects(node)
    before = everything(cluster)
    assert all(c["began_at"] > 50 for c in cluster.copies("B").values()), "from the snapshot's place in the log"

    for name in "ABC":
        cluster.processes[name].signal(15)
    assert [cluster.processes[n].exit_code(60) for n in "ABC"] == [0, 0, 0]
    wipe(cluster, "ABC")
    cluster.start()
    cluster.whole()
    assert everything(cluster) == before
    load.check_objects(node)
    with node.transaction():
        pilot = node.get(Pilot, tail, "Amelia")
        assert node.resolve(pilot.flies).miles == 5
        assert node.find(Flight, tail, 1) is None
        with pytest.raises(NotFoundError):
            node.resolve(reference)
    newest, (partition, lsn) = max(load.acked.items())
    assert node.backend.commit(partition, newest, Work((), ())) == lsn
    assert node.backend.commit("p-0", known[0], Work((), ())) == known[1]
    assert everything(cluster) == before, "a transaction that happened does not happen again"


@pytest.mark.feature("R1", "P10")
@pytest.mark.parametrize("away", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_a_node_that_was_away_while_the_log_was_trimmed_is_rebuilt(make: Make, away: str) -> None:
    """What its store lacks is no longer in the log: it takes the snapshot, and holds what the others hold."""
    cluster = make(nodes="AB", partitions=1, async_=0, every=100, keep=20)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "away", pause_s=0) as load:
        cluster.kill("B") if away == "killed" else cluster.freeze("B")
        stood = cluster.copies("A")["p-0"]["next_offset"]
        wait(lambda: log_start(cluster, 0) > stood + 50, "the log begins behind where B stood", 90)
        cluster.start("B") if away == "killed" else cluster.wake("B")
        wait(lambda: cluster.complete(cluster.table("p-0")), "B is a replica again")
        load.flows()
    assert load.errors == []
    assert cluster.copies("B")["p-0"]["began_at"] > stood
    wait(lambda: copies_equal(cluster), "both copies hold the same")
    load.check_objects(cluster.client())
