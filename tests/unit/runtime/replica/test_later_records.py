"""Records of a later version of halog in the log and in the stores of real nodes (U1): the partition stops by name,
nothing of it is deleted, and all else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from halog.core.log import records
from halog.core.roles import Role
from halog.errors import HalogError, LaterRecordError
from halog.ports import TopicPartition
from halog.runtime.node.status import status
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.host.test_faults import add, copy_on, host_of
from tests.unit.runtime.replica.test_pushed_store_on_nodes import POLICIES, all_end, counting, replica

pytestmark = [pytest.mark.nodes, pytest.mark.feature("U1")]

LATER = bytes((records.VERSION, records.LAST_KIND + 1)) + b"whatever it says"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """With the counter "c", and another one in another partition."""
    with Cluster(3, partitions=2, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
            for n in range(20):
                tx.create(Counter(f"other{n}"))
        cluster.settle()
        yield cluster


def place(cluster: Cluster) -> TopicPartition:
    table = cluster.tables()[cluster.partition_of(Counter, "c")]
    return TopicPartition(table.topic, table.index)


def elsewhere(cluster: Cluster) -> str:
    """A counter in the other partition."""
    mine = cluster.partition_of(Counter, "c")
    return next(f"other{n}" for n in range(20) if cluster.partition_of(Counter, f"other{n}") != mine)


def all_stop(cluster: Cluster, record: bytes = LATER) -> list[Copy]:
    """Somebody of a later version has written it. Replicas read it, and the active node does with its next commit."""
    cluster.broker.overtake(place(cluster), record)
    with suppress(HalogError):
        add(cluster)
    copies = [copy_on(cluster, name) for name in cluster.names]
    wait_until(lambda: all(c.core.state.role is Role.FAILED for c in copies), "all stop before it")
    return copies


def test_a_later_record_stops_its_partition_by_name_and_no_other(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    offset, lsn = cluster.broker.shelf(place(cluster)).end, copy_on(cluster, "A").core.state.chain.state.lsn
    copies = all_stop(cluster)
    for copy in copies:
        assert isinstance(copy.error, LaterRecordError)
        assert f"its log has at offset {offset}, behind lsn {lsn}: a record of version 1 and kind 13" in str(copy.error)
        assert (copy.core.state.next_offset, copy.core.state.chain.state.lsn) == (offset, lsn)
        assert list(copy.objects.scan(b""))
    name = cluster.partition_of(Counter, "c")
    wait_until(lambda: cluster.tables()[name].active is None, "who served it has given it up")
    for node in cluster.names:
        failed = status(cluster.node(node).runtime)["failed"]
        assert isinstance(failed, dict)
        assert list(failed) == [name]
        assert "Upgrade" in failed[name]
    with cluster.client().transaction() as tx:
        assert tx.get(Counter, elsewhere(cluster)).add(1) == 1
    assert caplog.text.count("HALOG-1127") == 3, "each node once"
    assert "HALOG-1015" not in caplog.text
    assert cluster.tables()[name].active is None


def test_a_change_of_an_unknown_op_is_applied_by_nobody(cluster: Cluster) -> None:
    """It continues the history, and stands under the key of an object that is there."""
    copy = copy_on(cluster, "A")
    before = list(copy.objects.scan(b""))
    state = copy.core.state.chain.state
    header = records.Header(state.log_id, state.epoch, state.lsn + 1, state.hash, bytes(range(16)))
    change = records.Change(records.DELETE + 1, before[0].ref, before[0].key, b"made by a later one", state.lsn)
    copies = all_stop(cluster, records.encode(records.Commit(header, (change,))))
    for stopped_copy in copies:
        assert isinstance(stopped_copy.error, LaterRecordError)
        assert "a change of op 3" in str(stopped_copy.error)
        assert list(stopped_copy.objects.scan(b"")) == before


def test_a_node_that_is_started_again_stops_there_again_and_keeps_its_store(cluster: Cluster) -> None:
    copies = all_stop(cluster)
    lsn = copies[0].core.state.chain.state.lsn
    for copy in copies:
        copy.save()
    for name in cluster.names:
        cluster.kill(name)
    for name in cluster.names:
        cluster.restart(name)
    for name in cluster.names:
        wait_until(partial(stopped, cluster, name), "it has read up to there")
        copy = copy_on(cluster, name)
        assert isinstance(copy.error, LaterRecordError)
        assert copy.began_at > 0, "it went on from its store"
        assert copy.core.state.chain.state.lsn == lsn
        assert list(copy.objects.scan(b""))


def stopped(cluster: Cluster, name: str) -> bool:
    return copy_on(cluster, name).error is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_store_has_of_a_later_version_is_kept_and_waited_for(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica was pushed it, was acknowledged for, and is started with an earlier version: nobody goes on without."""
    with counting(policy) as cluster:
        assert add(cluster) == 2
        holder = replica(cluster).core.state.me.node
        prefix = replica(cluster).objects.prefix
        all_end(cluster)
        data = cluster.disks[holder].data
        (key,) = [k for k in data if k.startswith(prefix + b"h")]
        kept = data[key]
        data[key] = bytes((records.VERSION + 1,)) + kept[1:]
        for name in cluster.names:
            cluster.restart(name)
        wait_until(lambda: "HALOG-1018" in caplog.text, "it says whom it waits for")
        copy = copy_on(cluster, holder)
        assert isinstance(copy.error, LaterRecordError)
        assert "what a replica was pushed, and has stored, includes: a record of version 2" in str(copy.error)
        assert "a later version wrote it" in caplog.text
        assert "HALOG-1019" not in caplog.text
        assert not any(copy_on(cluster, name).serving for name in cluster.names)
        assert cluster.disks[holder].data[key] == bytes((records.VERSION + 1,)) + kept[1:]
        cluster.kill(holder)
        cluster.disks[holder].data[key] = kept  # what a later version reads in it
        cluster.restart(holder)
        cluster.settle()
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


def test_a_vote_of_a_later_version_in_a_store_stops_that_copy_alone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The node is started, with all its other copies, and what it needs of the store is not dropped."""
    name = next(n for n in cluster.names if n != cluster.active_for(Counter, "c"))
    copy = copy_on(cluster, name)
    copy.save()
    key = copy.objects.prefix + b"q" + bytes(16)
    cluster.kill(name)
    cluster.disks[name].data[key] = bytes(8) + LATER
    before = dict(cluster.disks[name].data)
    cluster.restart(name)
    copy = copy_on(cluster, name)
    assert isinstance(copy.error, LaterRecordError)
    assert "a transaction in doubt includes: a record of version 1 and kind 13" in str(copy.error)
    assert {k: v for k, v in cluster.disks[name].data.items() if k.startswith(copy.objects.prefix)} == {
        k: v for k, v in before.items() if k.startswith(copy.objects.prefix)
    }
    assert [c.name for c in host_of(cluster, name).hosted() if c.error is not None] == [copy.name]
    assert caplog.text.count("HALOG-1127") == 1
    assert add(cluster) == 1
