"""The node channel with TLS over real sockets: strangers are refused by name, and disturb nobody (N5, Q5)."""

from __future__ import annotations

import os
import re
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from halog.adapters.tcp import handshakes, security, stream
from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.framing import pack
from halog.adapters.tcp.security import CertificateFiles, ChannelSecurity
from halog.core.ids import Member
from halog.errors import ConfigError, UnauthorizedError, UnreachableError
from halog.ports import Peer, Principal
from halog.runtime.rpc.errors import not_allowed
from halog.runtime.rpc.greeting import answer_to
from halog.runtime.rpc.versions import greeting
from tests.certificates import DAY, TestAuthority, node_uri, user_uri
from tests.contract.rigs_coordinator import wait_for

HOST = "127.0.0.1:0"
LONG_S = 60.0
SOON_S = 20.0
"""Long before that, on a busy machine too."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handshake is given up because a machine stood still."""
    monkeypatch.setattr(handshakes, "TIME_S", LONG_S)


def refusal(why: str) -> bytes:
    return f"refused: {why}".encode()


def ignore(*_: object) -> None:
    """A callback for what the test does not look at."""


def secured(files: CertificateFiles, *, required: bool = True) -> ChannelSecurity:
    return ChannelSecurity("test", files, required=required, refusal=refusal)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    """Another authority, which nobody trusts."""
    return TestAuthority(tmp_path_factory.mktemp("stranger"), "stranger")


class Listening:
    """A node's channel that answers, and what it told of strangers."""

    def __init__(self, security: ChannelSecurity | None) -> None:
        self.channel = TcpChannel(security=security)
        self.refused: list[tuple[str, str]] = []
        self.met: list[str] = []
        self.address = self.channel.listen(
            HOST, self._answer, ignore, lambda host, why: self.refused.append((host, why))
        )

    def _answer(self, peer: Peer, frame: bytes) -> None:
        self.met.append(str(peer.principal))
        peer.send(frame)

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)


@pytest.fixture
def node(authority: TestAuthority) -> Iterator[Listening]:
    """Node A, which requires TLS."""
    made = Listening(secured(authority.issue(node_uri("A"))))
    yield made
    made.channel.close()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith(("halog-peer", "halog-hand"))])


@pytest.fixture
def friend(authority: TestAuthority) -> Iterator[TcpChannel]:
    """Node B, which requires TLS, too."""
    made = TcpChannel(security=secured(authority.issue(node_uri("B"))))
    yield made
    made.close()


def shows(files: CertificateFiles | None, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """Return what a process that obeys nothing connects with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = highest
    if files is not None:
        context.load_cert_chain(files.cert, files.key)
    return context


def heard(place: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """Connect, say something, and return what comes until the other side ends it."""
    found = b""
    with socket.create_connection(place, LONG_S) as sock, suppress(OSError), context.wrap_socket(sock) as tls:
        tls.sendall(pack(b"let me in"))
        while data := tls.recv(1000):
            found += data
    return found


Shown = Callable[[TestAuthority, TestAuthority], CertificateFiles | None]
STRANGERS: dict[str, tuple[Shown, str]] = {
    "expired": (lambda a, s: a.issue(node_uri("B"), file="old", begins=-2 * DAY, ends=-DAY), "certificate has expired"),
    "not yet valid": (lambda a, s: a.issue(node_uri("B"), file="new", begins=DAY), "certificate is not yet valid"),
    "wrong authority": (lambda a, s: s.issue(node_uri("B")), "unable to get local issuer certificate"),
    "no certificate": (lambda a, s: None, "peer did not return a certificate"),
    "wrong cluster": (lambda a, s: a.issue(node_uri("B", "other"), file="other"), "of cluster 'other'"),
    "no name": (lambda a, s: a.issue(), "names nobody"),
    "two names": (lambda a, s: a.issue(node_uri("B"), user_uri("b"), file="two"), "names 2 at once"),
    "no kind of name": (lambda a, s: a.issue("halog://test/root/b", file="root"), "names no node and no user"),
    "oversize": (lambda a, s: a.issue(node_uri("B"), file="large", size=300_000), "excessive message size"),
}


@pytest.mark.feature("N5", "Q5")
@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_refused_by_name(
    kind: str, node: Listening, friend: TcpChannel, authority: TestAuthority, stranger: TestAuthority
) -> None:
    """Whatever it shows, no frame of it is read, the reason is told, and others go on."""
    shown, why = STRANGERS[kind]
    said = heard(node.place, shows(shown(authority, stranger)))
    wait_for(lambda: bool(node.refused))
    (host, reason) = node.refused[0]
    assert (host, why in reason, len(node.refused)) == ("127.0.0.1", True, 1), reason
    assert node.met == []
    if kind in ("wrong cluster", "no name", "two names", "no kind of name"):  # TLS itself has nothing against it
        assert f"refused: {reason}".encode() in said
    assert friend.request(node.address, b"x", LONG_S) == b"x"
    assert node.met == ["node B"]


@pytest.mark.feature("N5")
def test_an_older_tls_is_refused(node: Listening, friend: TcpChannel, authority: TestAuthority) -> None:
    """There is no way down to TLS 1.2."""
    heard(node.place, shows(authority.issue(node_uri("B")), ssl.TLSVersion.TLSv1_2))
    wait_for(lambda: bool(node.refused))
    assert "TLS 1.3" in node.refused[0][1]
    assert friend.request(node.address, b"x", LONG_S) == b"x"


@pytest.mark.feature("N5")
def test_plaintext_is_refused_by_name(node: Listening, friend: TcpChannel) -> None:
    """A process without TLS is told why, in a frame that it understands."""
    plain = TcpChannel()
    answer = plain.request(node.address, b"hello", LONG_S)
    assert answer.startswith(b"refused: this node requires TLS")
    plain.close()
    wait_for(lambda: bool(node.refused))
    assert node.met == []
    assert friend.request(node.address, b"x", LONG_S) == b"x"


@pytest.mark.feature("N5")
def test_a_node_without_tls_is_named(friend: TcpChannel) -> None:
    """Whoever requires TLS says so of a listener that has none, and sends it nothing."""
    plain = Listening(None)
    with pytest.raises(UnreachableError, match="may speak no TLS") as caught:
        friend.request(plain.address, b"x", LONG_S)
    assert (caught.value.evidence["sent"], caught.value.evidence["greeting"]) == (False, True)
    assert plain.met == []
    plain.channel.close()


@pytest.mark.feature("N5")
def test_one_that_accepts_both_is_reached_both_ways(friend: TcpChannel, authority: TestAuthority) -> None:
    """It dials with TLS where the other side is registered with it, and else without."""
    accepting = secured(authority.issue(node_uri("A")), required=False)
    both, plain = Listening(accepting), Listening(None)
    assert friend.request(both.address, b"x", LONG_S) == b"x"
    assert plain.channel.request(both.address, b"x", LONG_S) == b"x"
    assert both.channel.request(plain.address, b"x", LONG_S) == b"x"
    other = Listening(secured(authority.issue(node_uri("C")), required=False))
    other.channel.expect(both.address, "A", tls=True)
    assert other.channel.request(both.address, b"x", LONG_S) == b"x"
    assert both.met == ["node B", "None", "node C"]
    for one in (both, plain, other):
        one.channel.close()


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("uri", "why"), [(node_uri("C"), "for node C, and node A was meant"), (user_uri("A"), "for user A")]
)
def test_a_node_that_is_another_one_is_sent_nothing(
    uri: str, why: str, friend: TcpChannel, authority: TestAuthority
) -> None:
    """Whoever took another node's address shows a certificate that names somebody else."""
    impostor = Listening(secured(authority.issue(uri, file="impostor")))
    friend.expect(impostor.address, "A", tls=True)
    with pytest.raises(UnreachableError, match=why) as caught:
        friend.request(impostor.address, b"x", LONG_S)
    assert caught.value.evidence["sent"] is False
    with pytest.raises(UnreachableError, match=why):
        friend.dial(impostor.address, LONG_S, ignore, ignore)
    assert impostor.met == []
    impostor.channel.close()


@pytest.mark.feature("N5")
def test_who_is_not_trusted_learns_why(node: Listening, stranger: TestAuthority, authority: TestAuthority) -> None:
    """A process whose own certificate is refused hears it from the other side, and knows that nothing was sent."""
    bad = stranger.issue(node_uri("B"), file="told")
    both = bad.ca.parent / "both.crt"
    both.write_bytes(authority.file.read_bytes() + bad.ca.read_bytes())
    channel = TcpChannel(security=secured(CertificateFiles(both, bad.cert, bad.key)))
    channel.introduce(b"hello", ignore)
    with pytest.raises(UnreachableError, match="refuses this process's TLS: unknown ca") as caught:
        channel.request(node.address, b"x", LONG_S)
    assert (caught.value.evidence["sent"], caught.value.evidence["greeting"]) == (False, True)
    told = not_allowed(caught.value, "A")
    assert told is not None
    assert str(told).startswith("node A does not let this process in: it refuses this process's TLS: unknown ca (")
    ended: list[str] = []
    with suppress(UnreachableError):  # it may have been refused by then
        channel.dial(node.address, LONG_S, ignore, lambda peer: ended.append(peer.refusal)).send(b"hello")
    wait_for(lambda: bool(ended))
    (why,) = ended
    assert "its ca has no authority that issued this process's certificate" in why
    with pytest.raises(UnreachableError, match="unknown ca"):
        answer_to(channel, greeting("test", Member("B", 1), "client"), node.address, LONG_S)
    channel.close()


@pytest.mark.feature("N5")
def test_whose_certificate_has_expired_since_learns_it(
    node: Listening, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were valid when the process began with them."""
    monkeypatch.setattr(security, "_met", lambda server, client, verified: Principal("test", "node", "B"))
    old = authority.issue(node_uri("B"), file="since", begins=-2 * DAY, ends=-DAY)
    channel = TcpChannel(security=secured(old))
    channel.introduce(b"hello", ignore)
    with pytest.raises(UnreachableError, match="this process's certificate has expired") as caught:
        channel.request(node.address, b"x", LONG_S)
    assert isinstance(not_allowed(caught.value, "A"), UnauthorizedError)
    channel.close()


@pytest.mark.feature("N5")
def test_half_open_connections_cost_no_threads_and_nobody_else(node: Listening, friend: TcpChannel) -> None:
    """A thousand connections that say nothing, or half of a greeting, keep nobody out."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    before = threading.active_count()
    silent = []
    try:
        for n in range(1_000):
            sock = socket.create_connection(node.place, LONG_S)
            if n % 2:
                sock.send(b"\x16\x03\x01\x02")
            silent.append(sock)
        started = time.monotonic()
        assert friend.request(node.address, b"x", LONG_S) == b"x"
        assert time.monotonic() - started < SOON_S
        assert threading.active_count() <= before + 1, "the friend's own connection has one"
    finally:
        for sock in silent:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    wait_for(lambda: len(node.refused) >= 1_000 - handshakes.MOST)


@pytest.mark.feature("N5")
def test_a_handshake_that_trickles_in_ends(
    node: Listening, friend: TcpChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then prolongs nothing."""
    monkeypatch.setattr(handshakes, "TIME_S", 0.5)
    with socket.create_connection(node.place, LONG_S) as slow:
        ended = False
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(1_000):
            try:
                slow.sendall(bytes([byte]))
            except OSError:
                ended = True
                break
            time.sleep(0.05)
    assert ended
    assert "took too long" in node.refused[0][1]
    monkeypatch.setattr(handshakes, "TIME_S", LONG_S)
    assert friend.request(node.address, b"x", LONG_S) == b"x"


@pytest.mark.feature("N5")
def test_bytes_that_only_begin_like_tls_end_at_once(node: Listening, friend: TcpChannel) -> None:
    """What is no handshake, or one without end, is refused, and nothing of it is kept."""
    for said in (b"\x16" + b"halog" * 100, b"\x16\x03\x01\x40\x00\x01\xff\xff\xff\x03\x03" + bytes(16_384)):
        with socket.create_connection(node.place, LONG_S) as sock, suppress(OSError):
            sock.sendall(said)
            while sock.recv(1000):
                pass
    wait_for(lambda: len(node.refused) == 2)
    assert not [why for _, why in node.refused if "took too long" in why]
    assert friend.request(node.address, b"x", LONG_S) == b"x"


@pytest.mark.feature("N5")
def test_no_connection_outlives_what_was_shown_for_it_for_long(
    node: Listening, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it makes another one, and shows what he has by then. Who does not is not listened to."""
    lasting = TcpChannel(security=secured(authority.issue(node_uri("B"))))
    short = TcpChannel(security=secured(authority.issue(node_uri("C"))))
    heard: list[bytes] = []
    ended = threading.Event()
    try:
        assert lasting.request(node.address, b"1", SOON_S) == b"1"
        (first,) = lasting._pool._idle[node.address]
        assert lasting.request(node.address, b"2", SOON_S) == b"2"
        assert lasting._pool._idle[node.address] == [first]
        young = lasting.dial(node.address, SOON_S, lambda _, frame: heard.append(frame), ignore)
        assert not young.aged
        monkeypatch.setattr(stream, "LIVES_S", 0.2)
        monkeypatch.setattr(stream, "PATIENCE", 10_000.0)
        peer = short.dial(node.address, SOON_S, lambda _, frame: heard.append(frame), ignore)
        wait_for(lambda: peer.aged)
        peer.send(b"3")  # it is used until another one stands
        wait_for(lambda: heard == [b"3"])
        assert short.request(node.address, b"4", SOON_S) == b"4"
        (second,) = short._pool._idle[node.address]
        wait_for(lambda: time.monotonic() > second.renewed_at)
        assert short.request(node.address, b"5", SOON_S) == b"5"
        assert short._pool._idle[node.address] != [second]
        monkeypatch.setattr(stream, "PATIENCE", 0.0)
        late = short.dial(node.address, SOON_S, lambda _, frame: heard.append(frame), lambda _: ended.set())
        with suppress(UnreachableError):
            late.send(b"6")
        assert ended.wait(SOON_S)
        assert heard == [b"3"]
    finally:
        lasting.close()
        short.close()


@pytest.mark.feature("N5", "O4")
def test_renewed_files_are_taken_while_it_runs(authority: TestAuthority, tmp_path: Path) -> None:
    """New connections show the new certificate; files that do not hold together change nothing, by name."""
    own = TestAuthority(tmp_path)
    files = own.issue(node_uri("A"))
    security = secured(files)
    listening = Listening(security)
    assert security.renew() is None
    own.issue(node_uri("A"), ends=timedelta(days=50))
    renewed = security.renew()
    assert renewed is not None
    assert renewed.error == ""
    assert security.renew() is None
    other = secured(own.issue(node_uri("B")))
    friend = TcpChannel(security=other)
    assert friend.request(listening.address, b"1", LONG_S) == b"1"
    good = {file: file.read_bytes() for file in files}
    for spoil, why in (
        (lambda: files.key.write_bytes((tmp_path / "B.key").read_bytes()), "does not fit the certificate"),
        (lambda: files.key.unlink(), "cannot be read"),
        (lambda: files.cert.write_text("nothing"), "or the certificate is none"),
        (lambda: own.issue(node_uri("A"), begins=-2 * DAY, ends=-DAY), "certificate has expired"),
        (lambda: authority.issue(node_uri("A"), file="foreign").cert.replace(files.cert), "does not fit"),
        (lambda: own.issue(node_uri("C"), file="A"), "is for node C, and this process is node A"),
        (lambda: files.ca.write_text("nobody"), "holds no certificates"),
    ):
        spoil()
        bad = security.renew()
        assert bad is not None
        assert why in bad.error
        for file, data in good.items():
            file.write_bytes(data)
            file.chmod(0o600)
        again = security.renew()
        assert again is not None
        assert again.error == ""
    friend.drop(listening.address)
    assert friend.request(listening.address, b"2", LONG_S) == b"2"
    friend.close()
    listening.channel.close()


@pytest.mark.feature("N5")
@pytest.mark.parametrize(
    ("mode", "user", "group", "good"),
    [
        (0o600, 0, 0, True),
        (0o400, 0, 0, True),
        (0o640, 0, 0, True),
        (0o640, 0, 54321, False),
        (0o640, 54321, 0, False),
        (0o660, 0, 0, False),
        (0o604, 0, 0, False),
        (0o644, 0, 0, False),
    ],
)
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int, user: int, group: int, good: bool) -> None:
    """At the start and at a renewal, by name; once it is guarded the next look takes it. A key of root's may be read by
    a group of this process's."""
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    own = TestAuthority(tmp_path)
    files = own.issue(node_uri("A"))
    security, me = secured(files), os.getegid()
    os.chown(files.key, user, me if group == 0 else group)
    files.key.chmod(mode)
    renewed = security.renew()
    why = rf"security\.key: .*A\.key: others have access to this key \(mode {mode:04o}, .*; `chmod 600 .*A\.key`"
    if good:
        assert renewed is None or renewed.error == ""
        secured(files)
        return
    assert renewed is not None
    assert re.match(why, renewed.error)
    with pytest.raises(ConfigError, match=why):
        secured(files)
    os.chown(files.key, 0, me)
    files.key.chmod(0o600)
    again = security.renew()
    assert again is not None
    assert again.error == ""


@pytest.mark.feature("N5")
@pytest.mark.parametrize("gone", ["ca", "cert", "key"])
def test_a_file_that_goes_while_it_is_read_changes_nothing(tmp_path: Path, gone: str) -> None:
    """Whoever renews may remove it and write it anew: the look in between is told, and the next one takes it."""

    class Going(type(tmp_path)):  # type: ignore[misc]
        """A file that is removed as soon as it was seen to be there."""

        goes = False

        def read_bytes(self) -> bytes:
            data = Path(self).read_bytes()
            if Going.goes:
                Path(self).unlink()
            return data

    own = TestAuthority(tmp_path)
    files = own.issue(node_uri("A"))
    security = secured(files._replace(**{gone: Going(getattr(files, gone))}))
    good = Path(getattr(files, gone)).read_bytes()
    Path(getattr(files, gone)).write_bytes(good)
    Going.goes = True
    told = security.renew()
    Going.goes = False
    assert told is not None
    assert f"security.{gone}: " in told.error
    assert "cannot be read: No such file" in told.error
    Path(getattr(files, gone)).write_bytes(good)
    Path(getattr(files, gone)).chmod(0o600)
    again = security.renew()
    assert again is not None
    assert again.error == ""
