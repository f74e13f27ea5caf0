"""SIGSTOP and SIGCONT: a frozen node is replaced, and what it says when it wakes is not believed."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

from halog.backend import Work
from halog.errors import ConflictError
from halog.runtime.node.open import RunningNode
from halog.runtime.rpc import frames
from halog.transactions.work_set import work_in
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import SILENT_MS, Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_kill import whole_again

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def leader(cluster: Cluster) -> str:
    """A node that is active for something, awake again whatever happens."""
    return next(t.active.node for t in cluster.tables() if t.active is not None)


def made(node: RunningNode, partition: str, tail: str) -> Work:
    """The work of a transaction that creates an aircraft, not presented to anybody."""
    tx = node.transaction()
    with pytest.raises(KeyboardInterrupt), tx:
        node.create(Aircraft(tail=tail))
        work = work_in(tx, partition)
        raise KeyboardInterrupt  # rolls back
    return work


class Waiting:
    """Requests that lie in a frozen node's sockets: the kernel takes them, the node answers when it is awake."""

    def __init__(self, node: RunningNode, to: str) -> None:
        router = node.runtime.router
        wait(lambda: to in router.nodes, f"{to} is known")  # of three ZooKeeper servers one may be behind
        host, _, port = router.nodes[to].address.rpartition(":")
        self.address = (host, int(port))
        self.hello = frames.encode(frames.Hello(node.runtime.config.cluster.name, "waiting", 1))
        self.sockets: list[socket.socket] = []

    def send(self, request: frames.Request) -> None:
        connection = socket.create_connection(self.address, 30)
        for frame in (self.hello, frames.encode(request)):
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
        self.sockets.append(connection)

    def answers(self) -> list[frames.Reply]:
        return [self._answer(connection) for connection in self.sockets]

    def _answer(self, connection: socket.socket) -> frames.Reply:
        with connection, connection.makefile("rb") as said:
            welcome, reply = (frames.decode_reply(said.read(int.from_bytes(said.read(4), "big"))) for _ in range(2))
            assert isinstance(welcome, frames.Welcome)
            return reply


@pytest.mark.containers
@pytest.mark.feature("P10", "R1", "N4")
def test_a_zombie_steps_down_by_itself(cluster: Cluster, leader: str) -> None:
    """Frozen under load beyond its ZooKeeper session, it is replaced and callers do not notice. Awake, it finds commits
    to do: it acknowledges none of them, and becomes a replica."""
    led, node = cluster.led_by(leader), cluster.client()
    waiting = Waiting(node, leader)
    asked = {node.backend.new_transaction_id(): (p, t[0]) for p, t in tails(node, "zombie-").items() if p in led}
    with Load(node, "freeze") as load:
        cluster.freeze(leader)
        for tx, (partition, tail) in asked.items():
            epoch = node.runtime.router.epoch(partition)  # the zombie's own: in another one it would do nothing anyway
            waiting.send(frames.Submit(partition, tx, made(node, partition, tail), epoch))
        load.flows()
        wait(lambda: leader not in cluster.registered(), "its session has ended")
        assert cluster.led_by(leader) == []
        cluster.wake(leader)
        answers = waiting.answers()
        whole_again(cluster)
        load.flows()
    assert load.errors == []
    assert len(answers) == len(asked) > 0
    assert all(isinstance(a, frames.ErrorReply) for a in answers), answers
    histories = check(cluster, load)
    assert not any(tx in histories[p].ids for tx, (p, _) in asked.items()), "what it wrote counts for nobody"


@pytest.mark.feature("R5", "P10")
def test_a_transaction_begun_on_a_frozen_active_goes_on_elsewhere(cluster: Cluster, leader: str) -> None:
    """Its initiator holds it: what was read and called there is presented to the new active, and holds."""
    node = cluster.client()
    tail = next(t[0] for p, t in tails(node, "begun-").items() if p in cluster.led_by(leader))
    with node.transaction():
        node.create(Aircraft(tail=tail))
    with node.transaction() as tx:
        assert node.get(Aircraft, tail).land(7) == 1
        cluster.freeze(leader)
        node.create(Flight(tail=tail, number=1, of="begun"))
        assert node.get(Aircraft, tail).land(7) == 2, "the second call runs on the new active"
    cluster.wake(leader)
    with node.transaction():
        aircraft = node.get(Aircraft, tail)
        assert (aircraft.landings, aircraft.miles) == (2, 14)
    whole_again(cluster)
    partition = node.space.route(Aircraft, (tail,)).partition
    assert check(cluster)[partition].ids[tx.id or b""] == [tx.lsn]


@pytest.mark.feature("R5", "P10")
def test_a_transaction_whose_reads_no_longer_hold_is_a_conflict(cluster: Cluster, leader: str) -> None:
    """Somebody else changed the object on the new active meanwhile: nothing of the older transaction happens."""
    node, other = cluster.client(), cluster.client("other")
    tail = next(t[0] for p, t in tails(node, "stale-").items() if p in cluster.led_by(leader))
    with node.transaction():
        node.create(Aircraft(tail=tail))

    def elsewhere() -> None:
        with other.transaction():
            other.get(Aircraft, tail).land(1)

    with pytest.raises(ConflictError), node.transaction():
        node.get(Aircraft, tail).land(7)
        cluster.freeze(leader)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    cluster.wake(leader)
    with node.transaction():
        assert node.get(Aircraft, tail).miles == 1
    whole_again(cluster)


@pytest.mark.feature("N4", "R4")
def test_a_silent_replica_is_waited_for_and_then_left_behind(cluster: Cluster) -> None:
    """A commit that began when the sync replica froze returns when that is suspected, not before; and by then the
    replica is out of the znode's set: ZooKeeper first, only then not counted."""
    cluster.in_place()
    table = cluster.table("p-0")
    assert table.active is not None
    frozen = next(r.node for r in table.replicas if r.kind == "sync")
    node = cluster.client()
    tail = tails(node, "silent-")["p-0"][0]
    began = time.monotonic()
    cluster.freeze(frozen)
    with node.transaction():
        node.create(Aircraft(tail=tail))
    took = time.monotonic() - began
    now = cluster.table("p-0")
    assert frozen not in [r.node for r in now.replicas if r.kind == "sync"]
    assert now.active == table.active
    assert took > SILENT_MS / 1000 - 0.4, "two keep-alives less than the time-out at the earliest"
    active = table.active.node
    wait(lambda: f"node {frozen} left: silent for" in cluster.log_of(active), f"{active} says so")
    cluster.wake(frozen)
    whole_again(cluster)
    check(cluster)


@pytest.mark.feature("N4", "P10")
def test_a_refused_reconnect_is_believed_at_once(make: Make) -> None:
    """With a time-out of a minute for silence, a killed node is still replaced: its address refuses, or takes one more
    connection into a backlog that dies with it."""
    cluster = make(nodes="AB", partitions=2, async_=0, silent_ms=60_000)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "refused", threads=1) as load:
        cluster.kill("A")
        load.flows(45)
    assert load.errors == []
    wait(lambda: re.search("node A left: its address (refuses|breaks) connections", cluster.log_of("B")), "B says so")
    check(cluster, load, copies=False)
