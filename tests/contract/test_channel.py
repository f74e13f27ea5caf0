"""The Channel port over real sockets, plain and with TLS: order, bounds, and peers that are refused, silent, frozen or
hostile."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from halog.adapters.tcp import channel, handshakes
from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.connect import Dialler
from halog.adapters.tcp.framing import MAX_FRAME
from halog.adapters.tcp.security import ChannelSecurity
from halog.adapters.tcp.stream import PLAINTEXT, Stream
from halog.errors import ClosedError, DeadlineError, FrameError, UnreachableError
from halog.ports import Peer
from tests.certificates import TestAuthority, node_uri
from tests.contract.rigs_coordinator import wait_for

HOST = "127.0.0.1:0"

LONG_S = 60.0
"""What is allowed where nothing is to be waited for."""
SOON_S = 20.0
"""Long before that, on a busy machine too."""


def ignore(*_: object) -> None:
    """A callback for what the test does not look at."""


def at(sock: socket.socket) -> str:
    return f"127.0.0.1:{sock.getsockname()[1]}"


def echo(peer: Peer, frame: bytes) -> None:
    peer.send(frame)


def refusal(why: str) -> bytes:
    return f"refused: {why}".encode()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handshake is given up here, and no thread left behind, because a machine stood still."""
    monkeypatch.setattr(handshakes, "TIME_S", LONG_S)
    monkeypatch.setattr(handshakes, "FAREWELL_S", LONG_S)
    monkeypatch.setattr(channel, "JOIN_S", LONG_S)


@pytest.fixture(params=["plain", "TLS"], scope="module")
def security(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChannelSecurity | None:
    if request.param == "plain":
        return None
    files = TestAuthority(tmp_path_factory.mktemp("authority")).issue(node_uri("A"))
    return ChannelSecurity("test", files, required=True, refusal=refusal)


def raw(sock: socket.socket, security: ChannelSecurity | None, *, server: bool) -> Stream:
    """Return a stream over a socket that the test reads and writes by itself."""
    if security is None:
        return Stream(sock, PLAINTEXT)
    session = security.server() if server else security.client()
    data = b""
    while not session.shake(data):
        sock.sendall(session.take())
        data = sock.recv(65_536)
    sock.sendall(session.take())
    return Stream(sock, session)


def accepted(server: socket.socket, security: ChannelSecurity | None) -> Stream:
    sock, _ = server.accept()
    return raw(sock, security, server=True)


@pytest.fixture
def channels(security: ChannelSecurity | None) -> Iterator[Callable[..., TcpChannel]]:
    """Makes channels; in the end closes them all and looks for threads they left."""
    made: list[TcpChannel] = []

    def make(max_frame: int = MAX_FRAME) -> TcpChannel:
        made.append(TcpChannel(max_frame, security))
        return made[-1]

    yield make
    for one in made:
        one.close()
    wait_for(
        lambda: (
            not [t for t in threading.enumerate() if t.name.startswith(("halog-peer", "halog-accept", "halog-hand"))]
        )
    )


@pytest.fixture
def a(channels: Callable[..., TcpChannel]) -> TcpChannel:
    return channels()


@pytest.fixture
def b(channels: Callable[..., TcpChannel]) -> TcpChannel:
    return channels()


def test_frames_come_whole_and_in_order_both_ways(a: TcpChannel, b: TcpChannel) -> None:
    """Frames of any size, empty and large ones among them, arrive in order at the other end and back."""
    sizes = [0, 1, 4, 65_535, 65_536, 3_000_000, 7] * 20
    frames = [os.urandom(n) for n in sizes]
    got: list[bytes] = []
    peer = b.dial(a.listen(HOST, echo, ignore), LONG_S, lambda p, f: got.append(f), ignore)
    for n, frame in enumerate(frames):
        wait_for(lambda n=n: len(got) >= n - 30)  # type: ignore[misc]  # who does not read is disconnected
        peer.send(frame)
    wait_for(lambda: len(got) == len(frames))
    assert got == frames


@pytest.mark.feature("N4")
def test_refused_and_silent_are_told_apart(a: TcpChannel) -> None:
    """A closed port is `refused` at once; an address that does not answer is not, when the time allowed is over."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else's meanwhile, and nobody listens
        started = time.monotonic()
        with pytest.raises(UnreachableError) as caught:
            a.dial(at(closed), LONG_S, ignore, ignore)
    assert caught.value.evidence["refused"] is True
    assert time.monotonic() - started < SOON_S
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)  # never accepts: its queue is full after a few
    address = at(full)
    waiting = [socket.socket() for _ in range(4)]
    for s in waiting:
        s.setblocking(False)
        s.connect_ex(full.getsockname())
    started = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        a.request(address, b"x", 0.3)
    assert caught.value.evidence == {"address": address, "refused": False, "sent": False}
    assert 0.2 < time.monotonic() - started < SOON_S
    for s in [*waiting, full]:
        s.close()


@pytest.mark.feature("N4")
def test_who_dies_as_soon_as_connected_is_unreachable(a: TcpChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that is gone resets what it has not accepted: callers are told so by an error they know."""
    connects = socket.create_connection

    def dies(address: tuple[str, int], timeout: float) -> socket.socket:
        made = connects(address, timeout)
        server.close()
        select.select([made], [], [], LONG_S)
        return made

    monkeypatch.setattr(socket, "create_connection", dies)
    for call in (partial(a.request, frame=b"x"), partial(a.dial, on_frame=ignore, on_closed=ignore)):
        server = socket.create_server(("127.0.0.1", 0))
        address = at(server)
        with pytest.raises(UnreachableError, match="broke the connection") as caught:
            call(address, timeout_s=LONG_S)
        assert caught.value.evidence == {"address": address, "refused": False, "sent": False, "broke": True}


@pytest.mark.feature("N4")
def test_a_broken_connection_is_noticed_at_once_by_both(a: TcpChannel, b: TcpChannel) -> None:
    """Closing one end calls `on_closed` once on each side, and sending afterwards is refused."""
    here: list[Peer] = []
    there: list[Peer] = []
    peer = b.dial(a.listen(HOST, ignore, there.append), LONG_S, ignore, here.append)
    peer.send(b"x")
    peer.close()
    wait_for(lambda: len(here) == 1 and len(there) == 1)
    assert here == [peer]
    with pytest.raises(UnreachableError):
        peer.send(b"y")
    time.sleep(0.05)
    assert (len(here), len(there)) == (1, 1)


def test_a_request_gets_its_own_reply_from_another_thread_later(a: TcpChannel, b: TcpChannel) -> None:
    """A handler may answer later and elsewhere; many callers side by side each get their own reply."""

    def later(peer: Peer, frame: bytes) -> None:
        threading.Timer(0.01 * (frame[0] % 3), peer.send, (frame[::-1],)).start()

    address = a.listen(HOST, later, ignore)
    wrong: list[bytes] = []

    def call(n: int) -> None:
        for k in range(20):
            frame = bytes((n, k, 1, 2))
            if b.request(address, frame, LONG_S) != frame[::-1]:
                wrong.append(frame)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_late_reply_is_never_the_next_requests(a: TcpChannel, b: TcpChannel) -> None:
    """The DeadlineError comes before the reply, and its connection is gone: the late reply reaches nobody."""
    given_up = threading.Event()

    def slow(peer: Peer, frame: bytes) -> None:
        if frame == b"slow":
            assert given_up.wait(LONG_S)
        with suppress(UnreachableError):  # who asked has gone
            peer.send(b"re " + frame)

    address = a.listen(HOST, slow, ignore)
    assert b.request(address, b"first", LONG_S) == b"re first"  # connecting is not part of the short time
    with pytest.raises(DeadlineError):
        b.request(address, b"slow", 0.1)
    threading.Timer(0.2, given_up.set).start()  # in the middle of what follows
    for n in range(20):
        assert b.request(address, b"%d" % n, LONG_S) == b"re %d" % n
        time.sleep(0.02)


def test_whether_a_request_was_sent_is_known(a: TcpChannel, b: TcpChannel, channels: Callable[..., TcpChannel]) -> None:
    """A peer that takes the frame and hangs up: sent=True. A restarted peer's stale connection is not used at all."""
    address = a.listen(HOST, lambda peer, frame: peer.close(), ignore)
    with pytest.raises(UnreachableError) as caught:
        b.request(address, b"x", LONG_S)
    assert caught.value.evidence["sent"] is True
    first = channels()
    address = first.listen(HOST, echo, ignore)
    assert b.request(address, b"1", LONG_S) == b"1"
    first.close()
    with pytest.raises(UnreachableError) as caught:
        b.request(address, b"2", LONG_S)
    assert (caught.value.evidence["refused"], caught.value.evidence["sent"]) == (True, False)
    second = channels()
    second.listen(address, echo, ignore)
    assert b.request(address, b"3", LONG_S) == b"3"
    second.close()


@pytest.mark.feature("U1")
def test_pooled_connections_introduce_themselves_once(a: TcpChannel, b: TcpChannel) -> None:
    """The introduction is the first frame of each connection, is answered once, and is not repeated."""
    got: list[bytes] = []
    answers: list[tuple[str, bytes]] = []

    def handler(peer: Peer, frame: bytes) -> None:
        got.append(frame)
        peer.send(frame)

    b.introduce(b"hello", lambda address, reply: answers.append((address, reply)))
    address = a.listen(HOST, handler, ignore)
    assert [b.request(address, x, LONG_S) for x in (b"1", b"2")] == [b"1", b"2"]
    assert got == [b"hello", b"1", b"2"]
    assert answers == [(address, b"hello")]


@pytest.mark.feature("U1")
def test_a_request_is_not_sent_where_the_introduction_is_refused(
    a: TcpChannel, b: TcpChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever judges the answer may raise: the connection ends, and the next request begins with another one. So do
    requests to who does not answer in time, and to who closes."""
    got: list[bytes] = []

    def refuse(address: str, reply: bytes) -> None:
        raise UnreachableError(f"{address} said {reply!r}")

    def handler(peer: Peer, frame: bytes) -> None:
        got.append(frame)
        peer.send(b"no")

    b.introduce(b"hello", refuse)
    address = a.listen(HOST, handler, ignore)
    for _ in range(2):
        with pytest.raises(UnreachableError, match="said b'no'") as caught:
            b.request(address, b"1", LONG_S)
        assert caught.value.evidence["sent"] is False
    assert got == [b"hello"] * 2
    silent, connect = a.listen(HOST, ignore, ignore), Dialler.connect
    monkeypatch.setattr(Dialler, "connect", lambda self, address, timeout_s: connect(self, address, LONG_S))
    with pytest.raises(DeadlineError) as late:
        b.request(silent, b"1", 0.1)
    assert late.value.evidence["sent"] is False
    closing = a.listen(HOST, lambda peer, frame: peer.close(), ignore)
    with pytest.raises(UnreachableError) as gone:
        b.request(closing, b"1", LONG_S)
    assert gone.value.evidence["sent"] is False


def test_drop_ends_requests_that_wait(a: TcpChannel, b: TcpChannel) -> None:
    """A caller waiting for a dead node's reply is freed at once, not at its deadline."""
    address = a.listen(HOST, lambda peer, frame: b.drop(address), ignore)
    started = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        b.request(address, b"x", LONG_S)
    assert time.monotonic() - started < SOON_S
    assert caught.value.evidence["sent"] is True


@pytest.mark.feature("R8")
def test_a_frame_over_the_limit_is_refused_on_both_sides(channels: Callable[..., TcpChannel]) -> None:
    """The sender is told before a byte is sent; a peer that announces one is disconnected before it is read."""
    small, large = channels(1000), channels()
    closed = threading.Event()
    address = small.listen(HOST, echo, lambda peer: closed.set())
    peer = small.dial(address, LONG_S, ignore, ignore)
    with pytest.raises(FrameError, match="1001"):
        peer.send(bytes(1001))
    peer.send(bytes(1000))
    with pytest.raises(UnreachableError):
        large.request(address, bytes(1001), LONG_S)
    assert closed.wait(SOON_S)


def test_a_reply_that_is_no_frame_is_refused(b: TcpChannel, security: ChannelSecurity | None) -> None:
    """A server that is no halog node announces gigabytes: FrameError, nothing is allocated, nobody hangs."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        s, protection = accepted(server, security)[:2]
        if not protection.open(b""):  # it may have come with the end of the handshake
            s.recv(100)
        s.sendall(protection.seal(struct.pack(">I", 0xFFFFFFFF)))

    threading.Thread(target=answer).start()
    with pytest.raises(FrameError):
        b.request(at(server), b"x", LONG_S)
    server.close()


def test_a_frozen_peer_costs_the_sender_no_time(b: TcpChannel, security: ChannelSecurity | None) -> None:
    """A peer that stops reading: sends return at once, up to a bound of memory, then its connection is closed."""
    server = socket.create_server(("127.0.0.1", 0))
    closed = threading.Event()
    frozen: list[Stream] = []
    accepting = threading.Thread(target=lambda: frozen.append(accepted(server, security)))
    accepting.start()
    peer = b.dial(at(server), LONG_S, ignore, lambda p: closed.set())
    accepting.join()  # and never reads
    longest, sent = 0.0, 0
    with pytest.raises(UnreachableError, match="does not read"):
        while sent < 100 << 20:
            started = time.monotonic()
            peer.send(bytes(1 << 20))
            longest = max(longest, time.monotonic() - started)
            sent += 1 << 20
    assert sent < 60 << 20
    assert longest < SOON_S, "who waits for it waits for ever"
    assert closed.wait(SOON_S)
    frozen[0].sock.close()
    server.close()


def test_a_slow_peer_gets_everything_in_order(b: TcpChannel, security: ChannelSecurity | None) -> None:
    """What the kernel does not take at once is drained later, in order, also for frames sent meanwhile."""
    server = socket.create_server(("127.0.0.1", 0))
    found: list[Stream] = []
    accepting = threading.Thread(target=lambda: found.append(accepted(server, security)))
    accepting.start()
    peer = b.dial(at(server), LONG_S, ignore, ignore)
    accepting.join()
    slow, protection = found[0][:2]
    frames = [bytes([n]) * 500_000 for n in range(40)]
    for frame in frames:
        peer.send(frame)
    wanted = b"".join(struct.pack(">I", len(f)) + f for f in frames)
    got = bytearray()
    while len(got) < len(wanted):
        got += protection.open(slow.recv(1 << 20))
    assert got == wanted
    slow.close()
    server.close()


def test_a_handler_that_raises_closes_its_connection_only(a: TcpChannel, b: TcpChannel) -> None:
    """The peer whose frame could not be handled is disconnected; the listener serves the others."""

    def handler(peer: Peer, frame: bytes) -> None:
        if frame == b"bad":
            raise FrameError("no frame of ours")
        peer.send(frame)

    address = a.listen(HOST, handler, ignore)
    with pytest.raises(UnreachableError):
        b.request(address, b"bad", LONG_S)
    assert b.request(address, b"good", LONG_S) == b"good"


@pytest.mark.parametrize(("told", "lines"), [(True, 0), (False, 1)])
def test_a_refusal_that_was_told_closes_the_connection_without_a_word(
    a: TcpChannel, b: TcpChannel, caplog: pytest.LogCaptureFixture, told: bool, lines: int
) -> None:
    """Who is refused comes again several times a second, for as long as nobody ends it."""

    def refuse(peer: Peer, frame: bytes) -> None:
        raise FrameError("D is refused", told=told)

    closed = threading.Event()
    b.dial(a.listen(HOST, refuse, ignore), LONG_S, ignore, lambda peer: closed.set()).send(b"hello")
    assert closed.wait(SOON_S)
    assert [r.levelname for r in caplog.records if "D is refused" in r.getMessage()] == ["WARNING"] * lines


def test_close_leaves_no_thread_and_no_socket(security: ChannelSecurity | None) -> None:
    """After close: no thread of ours, no descriptor more than before, and every use says that it is closed."""
    before = len(os.listdir("/proc/self/fd"))
    a, b = TcpChannel(security=security), TcpChannel(security=security)
    address = a.listen(HOST, echo, ignore)
    peers = [b.dial(address, LONG_S, ignore, ignore) for _ in range(10)]
    b.request(address, b"x", LONG_S)
    for peer in peers:
        peer.send(b"x")
    b.close()
    a.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("halog-")] == []
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ClosedError):
        b.request(address, b"x", LONG_S)
    with pytest.raises(UnreachableError):
        peers[0].send(b"x")
