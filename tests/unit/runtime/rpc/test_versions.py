"""Two versions of halog meet: what they say first, and what each makes of frames that it does not know (U1)."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

import halog
from halog.adapters.memory import MemoryChannel
from halog.backend import Invocation, Work, Write
from halog.core.ids import Member
from halog.core.log.records import CREATE
from halog.core.table.table import PartitionTable
from halog.errors import FrameError, UnauthorizedError, UnreachableError, UnsupportedRequestError, VersionMismatchError
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.release import RELEASE
from halog.runtime.membership.members import Membership
from halog.runtime.rpc import frames, versions
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.rpc.frames import PROTOCOL
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.stranger_text import SHOWN
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.golden.samples import INCOMING, KINDS, frame


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=Registry()) as made:
        yield made


def address(cluster: Cluster) -> str:
    return cluster.node("A").runtime.info.address


class Line:
    """A connection to node A, over which whole frames are sent and read."""

    def __init__(self, cluster: Cluster) -> None:
        host, _, port = address(cluster).rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 5)
        self.socket.settimeout(5)
        self.said = self.socket.makefile("rb")

    def say(self, *parts: object) -> None:
        data = msgspec.msgpack.encode(parts)
        self.socket.sendall(len(data).to_bytes(4, "big") + data)

    def hear(self) -> Any:
        """The next frame as it stands; None: the connection has ended."""
        head = self.said.read(4)
        return msgspec.msgpack.decode(self.said.read(int.from_bytes(head, "big"))) if head else None

    def close(self) -> None:
        self.said.close()
        self.socket.close()


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    made = Line(cluster)
    yield made
    made.close()


def welcome(cluster: Cluster) -> list[object]:
    return ["Welcome", "A", 3, halog.__version__, cluster.node("A").runtime.info.incarnation, ""]


# --- frames ---


@pytest.mark.feature("U1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_frame_with_fields_of_a_later_version_is_read_with_those_that_are_known(kind: type) -> None:
    decode = frames.decode_incoming if kind in INCOMING else frames.decode_reply
    known = decode(frame(kind))
    assert type(known) is kind
    assert decode(frame(kind, {"later": [1, 2]}, None)) == known


@pytest.mark.feature("U1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_field_that_may_be_left_out_stands_behind_all_that_may_not(kind: type) -> None:
    """A field of a later version is left out by an older one: it must have a default, and all behind it."""
    required = [f.required for f in msgspec.structs.fields(kind)]
    assert required == sorted(required, reverse=True)


@pytest.mark.feature("U1")
def test_a_frame_of_an_unknown_kind_is_told_from_bytes_that_are_no_frame() -> None:
    assert frames.decode_incoming(msgspec.msgpack.encode(["Teleport", 1, {"a": []}])) == frames.UnknownFrame("Teleport")
    assert frames.decode_incoming(msgspec.msgpack.encode(["Tele\nport"])) == frames.UnknownFrame(r"'Tele\nport'")
    long = frames.decode_incoming(msgspec.msgpack.encode(["T" * 1_000_000]))
    assert long == frames.UnknownFrame(repr("T" * SHOWN))
    for data in (b"", b"\xc0", b"\x90", msgspec.msgpack.encode([1, "Fetch"]), msgspec.msgpack.encode({"Fetch": 1})):
        with pytest.raises(FrameError):
            frames.decode_incoming(data)
    with pytest.raises(FrameError):
        frames.decode_incoming(msgspec.msgpack.encode(["Fetch", "p"]))  # known, and too short
    with pytest.raises(FrameError):
        frames.decode_incoming(b"\x91" * 200_000)


@pytest.mark.feature("U1")
def test_an_unknown_request_is_answered_by_name_and_the_connection_goes_on(cluster: Cluster, line: Line) -> None:
    line.say("Hello", "test", "new-tool", 1, 3, 3, "9.9", "tool")
    assert line.hear() == welcome(cluster)
    line.say("Teleport", "p", 7)
    tag, error, message, evidence = line.hear()
    assert (tag, error) == ("Failed", "UnsupportedRequestError")
    assert message == (
        f"node A runs halog {halog.__version__} and does not know the request Teleport; nothing was done; it needs a "
        "later halog"
    )
    assert evidence == {"node": "A", "release": halog.__version__, "request": "Teleport"}
    line.say("Status", "later")
    assert line.hear()[0] == "StatusIs"


# --- the greeting ---


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    ("lowest", "highest", "spoken"),
    [(3, 3, 3), (1, 3, 3), (3, 9, 3), (1, 2, None), (4, 9, None), (2, 2, None)],
)
def test_the_highest_protocol_that_both_speak_counts(lowest: int, highest: int, spoken: int | None) -> None:
    assert versions.SPOKEN == (3, 3)
    assert versions.common(lowest, highest) == spoken


@pytest.mark.feature("U1")
def test_a_later_version_that_speaks_this_protocol_too_is_welcome(cluster: Cluster, line: Line) -> None:
    line.say("Hello", "test", "B", 7, 12, 3, "1.4", "node", "later", {"and": "more"})
    assert line.hear() == welcome(cluster)


@pytest.mark.feature("U1")
def test_one_that_speaks_only_later_protocols_is_told_both_versions(line: Line) -> None:
    line.say("Hello", "test", "future", 1, 12, 11, "1.4", "tool")
    tag, error, message, evidence = line.hear()
    assert (tag, error) == ("Failed", "VersionMismatchError")
    assert message == (
        f"node A runs halog {halog.__version__}, which speaks protocol 3; future runs halog 1.4, which speaks protocol "
        "11 to 12; nothing was done: node A needs a later halog"
    )
    assert evidence == {"node": "A", "release": halog.__version__, "lowest": 3, "protocol": 3}
    assert line.hear() is None


@pytest.mark.feature("U1")
def test_halog_0_1_is_refused_by_name_in_answer_to_what_it_asks(line: Line) -> None:
    """It takes the first frame that comes for the answer to its request: its greeting is not answered."""
    line.say("Hello", "test", "halog-cli-x", 1, 2)
    for _ in range(2):  # it keeps a connection that was answered on
        line.say("Status")
        tag, error, message, _ = line.hear()
        assert (tag, error) == ("Failed", "VersionMismatchError")
        assert "halog-cli-x runs halog 0.1, which speaks protocol 2" in message
        assert message.endswith("halog-cli-x needs a later halog")


LONG = "x\n" * 100_000


@pytest.mark.feature("U1", "Q5")
@pytest.mark.parametrize("protocol", [2, 99])
def test_what_a_stranger_says_of_itself_is_shortened_and_quoted(cluster: Cluster, line: Line, protocol: int) -> None:
    """It is told to operators, and back to whoever said it."""
    line.say("Hello", "test", "stranger", 1, protocol, protocol, LONG)
    if protocol == 2:
        line.say("Status")
    _, error, message, _ = line.hear()
    assert error == "VersionMismatchError"
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.feature("U1")
def test_nobody_introduces_itself_twice(line: Line) -> None:
    line.say("Hello", "test", "B", 7, 3, 3, "0.2.0", "client")
    assert line.hear()[0] == "Welcome"
    line.say("Hello", "test", "C", 7, 3, 3, "0.2.0", "client")
    assert line.hear() is None


@pytest.mark.feature("U1")
def test_a_frame_nested_too_deep_is_no_frame() -> None:
    deep = b"\x91" * 200_000 + b"\xc0"
    with pytest.raises(FrameError):
        frames.decode_incoming(b"\x92\xa6Status" + deep)
    with pytest.raises(FrameError):
        frames.decode_reply(b"\x92\xa5Valid" + deep)


class Answering:
    """A peer that answers every greeting with the same frame."""

    def __init__(self, *frame: object) -> None:
        self.channel = MemoryChannel()
        data = msgspec.msgpack.encode(frame)
        self.address = self.channel.listen("127.0.0.1:0", lambda peer, _: peer.send(data), lambda peer: None)


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (("Failed", "VersionMismatchError", "both are named", {"node": "A"}), VersionMismatchError, "both are named"),
        (("Failed", "FrameError", "it is of another cluster", {}), UnreachableError, "refuses this process: it is of"),
        (
            ("Welcome", "A", 9, "1.4", 7, "", "more"),
            VersionMismatchError,
            "node A runs halog 1.4, which speaks protocol 9",
        ),
        (("Valid",), UnreachableError, "answered with Confirmation"),
        (("Never", "heard"), UnreachableError, "did not answer as a node does"),
    ],
)
def test_what_a_greeting_is_answered_with_ends_the_request_before_it_is_sent(
    answer: tuple[object, ...], error: type[halog.errors.HalogError], said: str
) -> None:
    there, here = Answering(*answer), MemoryChannel()
    here.introduce(frames.encode(versions.greeting("test", Member("C", 1), "client")), versions.judge_answer)
    with pytest.raises(error, match=said) as caught:
        here.request(there.address, frames.encode(frames.StatusRequest()), 2.0)
    assert caught.value.evidence["sent"] is False
    here.close()
    there.channel.close()


@pytest.mark.feature("U1")
@pytest.mark.parametrize("op", [3, -1])
def test_a_write_of_an_op_that_is_not_known_is_refused_and_nothing_of_it_is_done(cluster: Cluster, op: int) -> None:
    """By whoever would have it in his log: to vote, to commit, and before a method sees it."""
    writes = (Write(CREATE, bytes(24), b"known", b"1", -1), Write(op, bytes(24), b"unknown", b"2", -1))
    work, tx = Work((), writes), os.urandom(16)
    wait_until(lambda: cluster.tables()["test-0"].active is not None, "somebody serves it")
    serves = cluster.tables()["test-0"].active
    assert serves is not None
    active = cluster.node(serves.node).runtime.copies["test-0"]
    router = next(cluster.node(name).runtime.router for name in cluster.names if name != serves.node)
    wait_until(lambda: active.serving and router.active("test-0") == serves.node, "the other one knows")
    before = active.core.state.chain.state.lsn
    for request in (
        frames.Submit("test-0", tx, work),
        frames.PrepareRequest("test-0", tx, "test-0", ("test-0", "test-1"), b"", work),
        frames.Invoke("test-0", Invocation(bytes(8), b"known", "method", b"", work)),
    ):
        with pytest.raises(UnsupportedRequestError, match=f"does not know the request to write with op {op}") as caught:
            router.ask("test-0", request, 5.0, lambda: False)
        assert caught.value.happened is False
    assert active.core.state.chain.state.lsn == before


@pytest.mark.feature("U1")
def test_what_a_server_says_that_is_no_node_is_shortened_and_quoted() -> None:
    with pytest.raises(VersionMismatchError) as caught:
        versions.judge_answer("host:1", frames.encode(frames.ErrorReply("VersionMismatchError", LONG, {})))
    assert len(str(caught.value)) < 5_000
    assert str(caught.value).isprintable()


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\1\xc0\0\0\0\1\xc0"]
)
def test_another_server_at_a_nodes_address_is_one_that_cannot_be_reached(said: bytes) -> None:
    """So the request goes to whoever is there next; it was certainly not sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(said), daemon=True).start()
        here = MemoryChannel()
        here.introduce(frames.encode(versions.greeting("test", Member("C", 1), "client")), versions.judge_answer)
        with pytest.raises(UnreachableError) as caught:
            here.request(f"127.0.0.1:{server.getsockname()[1]}", frames.encode(frames.StatusRequest()), 2.0)
        assert caught.value.evidence["sent"] is False
        here.close()


# --- what is registered ---

OLD = NodeInfo("B", 1, "127.0.0.1:1", 0, True, 0, "0.1.0")


@pytest.mark.feature("U1")
def test_a_node_that_has_registered_other_protocols_is_refused_by_name_and_not_connected_to() -> None:
    asked: list[str] = []

    class Wire(MemoryChannel):
        def dial(self, address: str, *rest: Any) -> Peer:
            asked.append(address)
            return super().dial(address, *rest)

    view = ClusterView(Wire())
    view.nodes_seen({"B": OLD})
    with pytest.raises(VersionMismatchError) as caught:
        view.addresses_of("B")
    assert caught.value.evidence["sent"] is False
    assert caught.value.exit_code == 7
    assert str(caught.value) == (
        f"node B runs halog 0.1.0, which speaks protocol 2; this process runs halog {halog.__version__}, which speaks "
        "protocol 3; nothing was done: node B needs a later halog"
    )
    view.nodes_seen({})
    with pytest.raises(UnreachableError, match=r"is not registered; last it was: node B runs halog 0\.1\.0"):
        view.addresses_of("B")  # another one comes
    hello = versions.greeting("c", Member("A", 1), "node")
    members = Membership(Member("A", 1), hello, view.channel, 150, 600, lambda *_: None, lambda work: work())
    members.registrations({"B": OLD})
    members.tick()
    assert asked == []
    assert members.links["B"].refused == str(caught.value)
    assert members.alive == {Member("A", 1)}


@pytest.mark.feature("U1")
def test_nodes_register_what_they_speak(cluster: Cluster) -> None:
    wait_until(lambda: len(cluster.node("A").runtime.router.nodes) == 2, "both are known")
    assert {info.protocols for info in cluster.node("A").runtime.router.nodes.values()} == {(3, 3)}


@pytest.mark.feature("U1")
def test_an_error_of_a_later_version_keeps_its_text() -> None:
    """A class that this version does not know is told as the root of all."""
    from halog.runtime.rpc.errors import from_frame

    error = from_frame(frames.ErrorReply("LaterError", "so it is", {"x": 1}))
    assert (type(error), str(error), error.evidence) == (halog.errors.HalogError, "so it is", {"x": 1})
    assert isinstance(from_frame(frames.ErrorReply("UnsupportedRequestError", "", {})), UnsupportedRequestError)


class Led(NamedTuple):
    """A router that knows of a partition whose active node listens somewhere."""

    router: Router
    channel: MemoryChannel

    @classmethod
    def by(cls, address: str, attempt_s: float) -> Led:
        channel = MemoryChannel()
        channel.introduce(frames.encode(versions.greeting("test", Member("C", 1), "client")), versions.judge_answer)
        router = Router("C", channel, attempt_s)
        router.nodes_seen({"A": NodeInfo("A", 1, address, 1, True, 0, "", protocols=versions.SPOKEN)})
        router.table_seen("p-0", 1, PartitionTable("p-0", "00" * 16, "t", 0, "p", ("A",), 0, active=Member("A", 1)))
        return cls(router, channel)

    def ask(self, deadline_s: float) -> frames.Reply:
        return self.router.ask("p-0", frames.AskOutcome("p-0", bytes(16), 1), deadline_s, lambda: False)


@pytest.mark.feature("U1", "R5")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            ("Failed", "FrameError", "C is refused: it belongs to cluster 'test', this is 'other'", {}),
            "this is 'other'",
        ),
        (("Failed", "RefusedError", "later reasons", {}), "later reasons"),
        (("Valid",), "answered with Confirmation"),
    ],
)
def test_a_greeting_that_is_refused_is_told_long_before_the_deadline(answer: tuple[object, ...], said: str) -> None:
    there = Answering(*answer)
    led = Led.by(there.address, 0.3)
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=f"p-0: its active node A cannot be asked: .*{said}") as caught:
        led.ask(60.0)
    assert 0.3 <= time.monotonic() - began < 10.0
    assert (caught.value.happened, caught.value.evidence["sent"], caught.value.evidence["node"]) == (False, False, "A")
    led.channel.close()
    there.channel.close()


@pytest.mark.feature("N5", "R5")
def test_whoever_is_not_let_in_is_told_so_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no silence: whether the node is asked as the active one, or by its name."""
    there = Answering("Failed", "UnauthorizedError", "C is refused: its certificate is for user eve", {})
    led = Led.by(there.address, 0.1)
    with pytest.raises(UnauthorizedError, match=r"node A does not let this process in: C is refused: .* eve; ") as e:
        led.ask(60.0)
    assert (e.value.exit_code, e.value.evidence["partition"], e.value.evidence["node"]) == (8, "p-0", "A")
    with pytest.raises(UnauthorizedError, match="node A does not let this process in"):
        led.router.request("A", frames.StatusRequest(), 60.0)
    led.channel.close()
    there.channel.close()


@pytest.mark.feature("U1", "R5")
def test_where_another_node_takes_over_a_refused_greeting_is_nothing_to_tell() -> None:
    """Another process has the address of a node that is dead."""
    there, node = Answering("Failed", "FrameError", "of another cluster", {}), MemoryChannel()
    outcome = frames.encode(frames.OutcomeReply("happened", 7))

    def serve(peer: Peer, data: bytes) -> None:
        greets = isinstance(frames.decode_incoming(data), frames.Hello)
        peer.send(frames.encode(frames.Welcome("B", PROTOCOL, RELEASE, 1)) if greets else outcome)

    address = node.listen("127.0.0.1:0", serve, lambda peer: None)
    led = Led.by(there.address, 1.0)
    led.router.nodes_seen({"B": NodeInfo("B", 1, address, 1, True, 0, "", protocols=versions.SPOKEN)})
    table = msgspec.structs.replace(led.router.tables["p-0"][1], active=Member("B", 1))
    takeover = threading.Timer(0.3, lambda: led.router.table_seen("p-0", 2, table))
    takeover.start()
    assert led.ask(60.0) == frames.OutcomeReply("happened", 7)
    takeover.join()
    for channel in (led.channel, there.channel, node):
        channel.close()
