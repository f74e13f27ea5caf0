"""Work that begins on a replica node (R3), and a replica that contradicts the log (R2). This process is the replica."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import halog
from halog.adapters.rocksdb.store import RocksStore
from halog.core.ids import Member
from halog.core.table.table import ASYNC, SYNC
from halog.errors import ConflictError
from halog.runtime.node.open import RunningNode
from halog.runtime.store.object_table import PREFIX_BYTES, pack_object, unpack_object
from tests.integration.cluster.conftest import Make
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(600)

P = "p-0"


@contextmanager
def joined(cluster: Cluster, me: str, kind: str) -> Iterator[RunningNode]:
    """This process as node `me`; A is active, and the whole node list stands."""
    with halog.node(cluster.toml, name=me) as node:
        wait(lambda: cluster.complete(cluster.table(P)), "all three have a copy")
        cluster.lead(P, "A")
        member = Member(me, node.runtime.incarnation)
        wait(lambda: cluster.table(P).kind_of(member) == kind, f"{me} is {kind}")
        yield node


def land(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.get(Aircraft, "N1").landings += 1


def equal(cluster: Cluster) -> bool:
    copies = [[(f.key, f.version, f.value) for f in cluster.stored(n, P)] for n in "ABC"]
    return copies[0] == copies[1] == copies[2]


@pytest.mark.feature("R3", "R5", "R1")
@pytest.mark.parametrize(("me", "kind"), [("B", SYNC), ("C", ASYNC)])
def test_a_modification_begun_on_a_replica_happens_on_the_active(make: Make, me: str, kind: str) -> None:
    """It commits there and on the sync replica; what it rests on is checked there; async ones are fed from there."""
    cluster = make(partitions=1)
    for other in "ABC".replace(me, ""):
        cluster.launch(other)
    with joined(cluster, me, kind) as node:
        with node.transaction() as tx:
            tx.create(Aircraft("N1"))
        for _ in range(10):
            land(node)
        assert tx.lsn is not None
        with cluster.client().transaction() as seen:
            assert seen.get(Aircraft, "N1").landings == 10, "acknowledged there is visible everywhere"
        with pytest.raises(ConflictError, match="N1"):  # noqa: SIM117 - the commit raises
            with node.transaction() as stale:
                mine = stale.get(Aircraft, "N1")
                with ThreadPoolExecutor(1) as elsewhere:  # a thread has one transaction at a time
                    elsewhere.submit(land, cluster.client()).result(60)
                mine.landings += 1
        assert stale.outcome == "rolled back"
        with cluster.client().transaction() as seen:
            assert seen.get(Aircraft, "N1").landings == 11
        wait(lambda: equal(cluster), "every copy has the same")


@pytest.mark.feature("R2", "R1")
def test_objects_that_contradict_the_log_are_discarded_on_the_async_replica(make: Make) -> None:
    """Its store was damaged while it was away: the next record says so, and puts it right; the rest applies."""
    cluster = make(partitions=1)
    for other in "AB":
        cluster.launch(other)
    with joined(cluster, "C", ASYNC) as node:
        with node.transaction() as tx:
            for n in range(1, 5):
                tx.create(Aircraft(f"N{n}"))
        lsn = tx.lsn
        assert lsn is not None
        wait(lambda: node.runtime.copies[P].has(lsn), "the async replica has them")
    _damage(cluster)
    with joined(cluster, "C", ASYNC):
        client = cluster.client()
        with client.transaction() as tx:
            for n in (1, 2, 4):
                tx.get(Aircraft, f"N{n}").landings += 1
            tx.delete(tx.get(Aircraft, "N3"))
        wait(lambda: discarded(cluster, "C") == 3, "they are counted")
        wait(lambda: equal(cluster), "every copy has the same")
        land(client)
        wait(lambda: equal(cluster), "every copy has the same")
        assert discarded(cluster, "C") == 3
        assert discarded(cluster, "A") == 0


def discarded(cluster: Cluster, node: str) -> int | None:
    """As the node says; None: it does not answer, or has no copy yet."""
    return cluster.copies(node).get(P, {}).get("discarded_objects")


def _damage(cluster: Cluster) -> None:
    """In the store of node C: another version of N1, no N3, and N4 under the key of N9, as if it had come so."""
    prefix = bytes.fromhex(cluster.table(P).log_id)[:PREFIX_BYTES]
    one, three, four, nine = (
        prefix + b"k" + Aircraft.__halog__.index_key((tail,))  # type: ignore[attr-defined]
        for tail in ("N1", "N3", "N4", "N9")
    )
    store = RocksStore(cluster.directory / "C")
    data, moved = store.get_many([one, four])
    assert data is not None
    assert moved is not None
    found = unpack_object(one, data)
    aged = pack_object(found.version - 1, found.ref, found.value)
    store.write([(one, aged), (three, None), (four, None), (nine, moved), (prefix + b"r", None)])
    store.close()
