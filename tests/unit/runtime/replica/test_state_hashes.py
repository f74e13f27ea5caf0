"""Copies say which objects they have: at the same lsn all say the same, however they came there (U1)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from halog.core.roles import Role
from halog.errors import RefusedError
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.store.state_hash import EVERY
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("U1")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, sync_replicas=1, registry=REGISTRY) as made:
        yield made


def copies(cluster: Cluster) -> dict[str, Copy]:
    return {name: copy for name in cluster.running for copy in cluster.node(name).runtime.copies.values()}


def ask(cluster: Cluster, name: str, partition: str, *, scan: bool = False) -> frames.StateHashesReply:
    asking = cluster.node(next(iter(cluster.running))).runtime.router
    reply = asking.request(name, frames.StateHashes(partition, scan), 5.0)
    assert isinstance(reply, frames.StateHashesReply)
    return reply


def told(cluster: Cluster) -> dict[str, frames.StateHashesReply]:
    """What all copies say once they are at one lsn; each says also what it has stored."""
    (partition,) = {copy.name for copy in copies(cluster).values()}
    found: dict[str, frames.StateHashesReply] = {}

    def level() -> bool:
        found.update((name, ask(cluster, name, partition, scan=True)) for name in copies(cluster))
        return len({reply.lsn for reply in found.values()}) == 1

    wait_until(level, "the copies are not level")
    return found


def work(cluster: Cluster, rounds: int, prefix: str = "c") -> None:
    node = cluster.client()
    for i in range(rounds):
        with node.transaction():
            node.create(Counter(f"{prefix}{i}"))
        with node.transaction():
            node.get(Counter, f"{prefix}{i - i % 3}").add(1)
        if i % 3 == 2:
            with node.transaction():
                node.delete(node.get(Counter, f"{prefix}{i}"))


def agreed(cluster: Cluster) -> bytes:
    said = told(cluster)
    assert len(said) == len(cluster.running)
    assert {reply.scanned for reply in said.values()} == {reply.hash for reply in said.values()}
    (hash_,) = {reply.hash for reply in said.values()}
    for one in said.values():
        for other in said.values():
            mine, its = dict(one.marks), dict(other.marks)
            assert {lsn: mine[lsn] for lsn in mine.keys() & its.keys()} == {
                lsn: its[lsn] for lsn in mine.keys() & its.keys()
            }
    return hash_


def test_all_copies_of_a_lsn_have_one_hash_and_it_is_that_of_what_they_store(cluster: Cluster) -> None:
    empty = agreed(cluster)
    assert empty == bytes(16)
    work(cluster, 40)
    full = agreed(cluster)
    assert full != empty
    for reply in told(cluster).values():
        assert [lsn for lsn, _ in reply.marks] == [lsn for lsn in range(1, reply.lsn + 1) if lsn % EVERY == 0]


def test_a_copy_says_the_same_after_a_restart_and_after_another_has_taken_over(cluster: Cluster) -> None:
    work(cluster, 10)
    active = cluster.active_for(Counter, "c0")
    cluster.kill(active)
    cluster.settle()
    work(cluster, 10, "d")
    cluster.restart(active)
    cluster.settle()
    agreed(cluster)
    for name in list(cluster.running):
        cluster.kill(name)
    for name in cluster.names:
        cluster.restart(name)
    cluster.settle()
    work(cluster, 4, "e")
    agreed(cluster)


def test_a_store_without_a_hash_gets_one_when_the_copy_is_opened(cluster: Cluster) -> None:
    """Halog 0.1 stored none."""
    work(cluster, 10)
    before = agreed(cluster)
    name = next(n for n in cluster.names if n != cluster.active_for(Counter, "c0"))
    at = copies(cluster)[name].objects.prefix + b"p"
    cluster.kill(name)
    fields = msgspec.msgpack.decode(cluster.disks[name].data[at])
    assert len(fields.pop("state_hash")) == 16
    cluster.disks[name].data[at] = msgspec.msgpack.encode(fields)
    cluster.restart(name)
    cluster.settle()
    assert agreed(cluster) == before


def test_who_has_no_copy_or_an_unread_one_says_so(cluster: Cluster) -> None:
    work(cluster, 2)
    name, copy = next(iter(copies(cluster).items()))
    with pytest.raises(RefusedError, match=f"{name} has no copy of nowhere"):
        ask(cluster, name, "nowhere")
    with copy.lock:
        assert copy.core.state.role is not Role.LOADING
        kept = copy.objects.state_hash
        kept.begin(kept.now, kept.lsn)
    with pytest.raises(RefusedError, match=f"the copy of {copy.name} still reads what it missed of its log"):
        ask(cluster, name, copy.name)


def test_a_value_altered_in_a_store_is_found_by_a_look_at_what_is_stored(cluster: Cluster) -> None:
    work(cluster, 4)
    before = agreed(cluster)
    name = next(n for n in cluster.names if n != cluster.active_for(Counter, "c0"))
    objects = copies(cluster)[name].objects
    cluster.kill(name)
    data = cluster.disks[name].data
    key = next(k for k in sorted(data) if k.startswith(objects.prefix + b"k"))
    data[key] = data[key][:-1] + bytes((data[key][-1] ^ 1,))
    cluster.restart(name)
    cluster.settle()
    reply = told(cluster)[name]
    assert reply.hash == before, "nobody has looked"
    assert reply.scanned != before
