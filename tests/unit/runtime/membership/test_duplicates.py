"""Two processes say that they are the same node: the first one goes on, the other one is refused by name (N1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryChannel, MemoryCoordinator, MemoryDisk, MemoryLog, MemoryStore
from halog.core.ids import Member
from halog.errors import DuplicateLocationError, DuplicateTimestampError, RefusedError
from halog.events import Event
from halog.metadata.nodes import NodeInfo, register
from halog.ports import TopicPartition
from halog.runtime.membership.addresses import machine
from halog.runtime.membership.duplicates import check_alone, lives, same_name
from halog.runtime.membership.members import Membership
from halog.runtime.node import cluster_identity
from halog.runtime.node.open import node
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.versions import SPOKEN, greeting
from halog.runtime.support.adapters import Adapters
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until

WAIT_S = 0.3
RUN = NodeInfo("A", 7, "127.0.0.1:1", 99, True, 4711, "0.2.0", protocols=SPOKEN)
NEXT = msgspec.structs.replace(RUN, incarnation=8, address="127.0.0.1:2", pid=4712)
HELLO = greeting("c", NEXT.member, "node")


# --- does an earlier run live? ---


@pytest.fixture
def channel() -> Iterator[MemoryChannel]:
    made = MemoryChannel()
    yield made
    made.close()


def listening(channel: MemoryChannel, reply: frames.Reply | None) -> NodeInfo:
    """The registration of a run whose address answers every frame so; None: not at all."""

    def answer(peer: Any, frame: bytes) -> None:
        if reply is not None:
            peer.send(frames.encode(reply))

    return msgspec.structs.replace(RUN, address=channel.listen("127.0.0.1:0", answer, lambda peer: None))


@pytest.mark.feature("N1")
@pytest.mark.parametrize(
    ("reply", "alive"),
    [
        (frames.Welcome("A", 3, "0.2.0", 7), True),
        (frames.Welcome("A", 3, "0.2.0", 8), False),
        (frames.Welcome("B", 3, "0.2.0", 7), False),
        (to_frame(same_name(RUN, "there", HELLO)), True),
        (to_frame(same_name(msgspec.structs.replace(RUN, incarnation=6), "there", HELLO)), False),
        (frames.ErrorReply("FrameError", "it belongs to another cluster", {}), False),
        (frames.Confirmation(), False),
        (None, None),
    ],
)
def test_a_run_lives_where_its_address_answers_as_that_run(
    channel: MemoryChannel, reply: frames.Reply | None, alive: bool | None
) -> None:
    assert lives(channel, HELLO, listening(channel, reply)) is alive


@pytest.mark.feature("N1")
def test_a_run_whose_address_refuses_connections_has_ended(channel: MemoryChannel) -> None:
    other = MemoryChannel()
    gone = listening(other, None)
    other.close()
    assert lives(channel, HELLO, gone) is False


@pytest.mark.feature("N1")
def test_what_a_loopback_address_leads_to_here_says_nothing_of_a_run_on_another_machine(channel: MemoryChannel) -> None:
    """Its address refuses connections here, or somebody else listens there; it may be well."""
    other = MemoryChannel()
    gone = listening(other, None)
    other.close()
    for run in (gone, listening(channel, frames.Welcome("B", 3, "0.2.0", 1))):
        assert lives(channel, HELLO, run) is False
        assert lives(channel, HELLO, msgspec.structs.replace(run, machine=machine())) is False
        assert lives(channel, HELLO, msgspec.structs.replace(run, machine="another")) is None


@pytest.mark.feature("N1")
def test_of_a_run_whose_address_closes_the_connection_nobody_can_tell(channel: MemoryChannel) -> None:
    address = channel.listen("127.0.0.1:0", lambda peer, frame: peer.close(), lambda peer: None)
    assert lives(channel, HELLO, msgspec.structs.replace(RUN, address=address)) is None


@pytest.mark.feature("N1", "N2")
def test_of_several_addresses_one_that_answers_shows_a_run_alive_and_all_must_show_that_it_has_ended(
    channel: MemoryChannel,
) -> None:
    other = MemoryChannel()
    gone = listening(other, None).address
    other.close()
    alive = listening(channel, frames.Welcome("A", 3, "0.2.0", 7)).address
    silent = channel.listen("127.0.0.1:0", lambda peer, frame: peer.close(), lambda peer: None)
    for addresses, expected in (((gone, alive), True), ((gone, gone), False), ((gone, silent), None)):
        run = msgspec.structs.replace(RUN, address=addresses[0], addresses=addresses)
        assert lives(channel, HELLO, run) is expected


# --- registering ---


@pytest.fixture
def coordinator() -> MemoryCoordinator:
    made = MemoryCoordinator()
    made.connect(lambda state: None)
    register(made, RUN, WAIT_S, told(True))
    return made


def told(alive: bool | None) -> Callable[[NodeInfo], bool | None]:
    return lambda info: alive


def registered(coordinator: MemoryCoordinator) -> NodeInfo:
    found = coordinator.get("nodes/A")
    assert found is not None
    return msgspec.json.decode(found.data, type=NodeInfo)


@pytest.mark.feature("N1")
def test_the_registration_of_a_run_that_has_ended_is_taken_over(coordinator: MemoryCoordinator) -> None:
    register(coordinator, NEXT, WAIT_S, told(False))
    assert registered(coordinator) == NEXT


@pytest.mark.feature("N1")
@pytest.mark.parametrize("alive", [True, None])
def test_that_of_a_run_that_lives_or_may_live_stays(coordinator: MemoryCoordinator, alive: bool | None) -> None:
    said = r"pid 4711 at 127\.0\.0\.1:1.*its data directory was copied"
    with pytest.raises(DuplicateLocationError, match=said) as caught:
        register(coordinator, NEXT, WAIT_S, told(alive))
    assert caught.value.evidence == {"node": "A", "incarnation": 7, "pid": 4711, "address": "127.0.0.1:1"}
    assert registered(coordinator) == RUN


@pytest.mark.feature("N1")
def test_ones_own_registration_of_a_session_that_was_lost_is_taken_over(coordinator: MemoryCoordinator) -> None:
    moved = msgspec.structs.replace(RUN, address="127.0.0.1:3")
    register(coordinator, moved, WAIT_S, told(True))
    assert registered(coordinator) == moved


@pytest.mark.feature("N1")
def test_another_installation_of_the_name_is_refused_whether_it_answers_or_not(coordinator: MemoryCoordinator) -> None:
    other = msgspec.structs.replace(NEXT, installation=100)
    with pytest.raises(DuplicateLocationError, match=r"stop it or choose another name$"):
        register(coordinator, other, WAIT_S, told(False))
    assert registered(coordinator) == RUN


@pytest.mark.feature("N1")
def test_of_two_nodes_with_one_installation_the_later_one_is_refused() -> None:
    copied = msgspec.structs.replace(NEXT, name="B")
    with pytest.raises(DuplicateTimestampError) as caught:
        check_alone(copied, [RUN])
    assert caught.value.evidence == {"node": "A", "pid": 4711, "address": "127.0.0.1:1", "installation": 99}
    assert str(caught.value) == (
        "node B (pid 4712 at 127.0.0.1:2) has the installation timestamp of node A (pid 4711 at 127.0.0.1:1): the data "
        "directory of one is a copy of the other's; the two do not talk to each other. Give the copy an identity of "
        "its own with `halog node new-identity --name NAME`, or an empty data directory: its objects come from the log"
    )
    check_alone(RUN, [copied])
    check_alone(copied, [msgspec.structs.replace(RUN, installation=1), msgspec.structs.replace(RUN, hosts=False)])


@pytest.mark.feature("N1", "N3")
def test_a_node_does_not_talk_to_one_with_its_own_installation(channel: MemoryChannel) -> None:
    members = Membership(
        RUN.member, greeting("c", RUN.member, "node"), channel, 150, 600, lambda *_: None, lambda work: work()
    )
    members.registrations({"A": RUN, "B": msgspec.structs.replace(NEXT, name="B")})
    assert "has the installation timestamp of node B" in members.links["B"].refused
    members.heard("B", 8)
    assert members.alive == {Member("A", 7)}


# --- a data directory that was copied ---


def copied(disk: MemoryDisk) -> MemoryDisk:
    made = MemoryDisk("copy")
    made.data = dict(disk.data)
    return made


def told_events(cluster: Cluster, code: str) -> list[Event]:
    log, tp = MemoryLog(cluster.broker), TopicPartition("test.events", 0)
    found = [Event.from_bytes(e.value) for e in log.read(tp, *log.bounds(tp))]
    return [e for e in found if e.code == code]


@pytest.mark.feature("N1", "O3")
def test_a_copy_under_the_same_name_does_not_start_and_the_first_one_goes_on() -> None:
    with Cluster(2, partitions=2, registry=Registry()) as cluster:
        first = cluster.node("A").runtime
        before = cluster.tables(), cluster.tree.get("nodes/A")

        def adapters(config: Any, name: str) -> Adapters:
            return Adapters(
                MemoryLog(cluster.broker),
                MemoryCoordinator(cluster.tree),
                MemoryChannel(),
                MemoryStore(copied(cluster.disks["A"])),
                lambda site: None,  # type: ignore[arg-type,return-value]
            )

        with pytest.raises(DuplicateLocationError, match=f"pid {first.pid} at {first.info.address}"):
            node(cluster.config, "A", registry=Registry(), adapters=adapters)
        assert (cluster.tables(), cluster.tree.get("nodes/A")) == before
        wait_until(lambda: told_events(cluster, "HALOG-1008"), "the first one says so")
        (event,) = told_events(cluster, "HALOG-1008")
        assert f"node A runs already: pid {first.pid} at {first.info.address}" in event.text


@pytest.mark.feature("N1", "O3")
def test_a_copy_under_another_name_does_not_start() -> None:
    """It says whose it is; one that an older halog made does not, and has that node's installation timestamp."""
    with Cluster(2, partitions=2, registry=Registry()) as cluster:
        cluster.kill("B")
        cluster.disks["B"] = copied(cluster.disks["A"])
        with pytest.raises(RefusedError, match="is node A's, or a copy of it"):
            cluster.restart("B")
        store = MemoryStore(cluster.disks["B"])
        owner = cluster_identity.remembered(store)
        assert owner is not None
        cluster_identity.remember(store, cluster.config, owner.id, "")
        store.close()
        with pytest.raises(DuplicateTimestampError, match=r"node B .* has the installation timestamp of node A"):
            cluster.restart("B")
        assert cluster.tree.children("nodes") == ["A"]


@pytest.mark.feature("N1", "R4")
def test_a_killed_node_takes_its_name_back_at_once() -> None:
    """Its session has not ended; its address refuses connections."""
    with Cluster(2, partitions=2, registry=Registry()) as cluster:
        data = cluster.tree.get("nodes/B")
        assert data is not None
        cluster.kill("B")
        cluster.tree.create("nodes/B", data.data, 0)
        cluster.restart("B")
        cluster.settle()
