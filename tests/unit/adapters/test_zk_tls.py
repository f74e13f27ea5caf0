"""The socket that kazoo gets for a connection by TLS, against a server of the test's own (N5)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from halog.adapters.zookeeper.access import TlsFiles
from halog.adapters.zookeeper.wakeup import CountingHandler
from halog.certs.identity import HolderKind
from tests.secure_zookeeper import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certs")
    made.make(HolderKind.SERVER, "zookeeper", "127.0.0.1")
    return made


@pytest.fixture
def address(certificates: Certificates) -> Iterator[tuple[str, int]]:
    """Where a server answers each connection with two words in one record, and waits for its end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.place("zookeeper.crt"), certificates.place("zookeeper.key"))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    made, _ = listener.accept()
                    with context.wrap_socket(made, server_side=True) as sealed:
                        sealed.sendall(b"onetwo")
                        sealed.recv(1)
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[:2]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.feature("N5")
def test_what_tls_has_opened_already_is_ready_to_be_read(certificates: Certificates, address: tuple[str, int]) -> None:
    """Of two answers in one record the socket has nothing any more when the first one was read. Another socket that is
    ready is told with it."""
    handler = CountingHandler(certificates.files())
    one, other = socket.socketpair()
    sealed = handler.create_connection(address, "127.0.0.1", 10.0)
    with one, other, sealed:
        assert handler.select([sealed], [], [], 10)[0] == [sealed]
        assert sealed.recv(3) == b"one"
        assert handler.select([sealed, one], [], [], 0) == ([sealed], [], [])
        other.send(b"x")
        assert handler.select([sealed, one], [], [], 0) == ([sealed, one], [], [])
        assert sealed.recv(3) == b"two"
        assert handler.select([sealed, one], [], [], 0) == ([one], [], [])


@pytest.mark.feature("N5", "O4")
def test_a_connection_notes_what_tls_says_against_it(
    certificates: Certificates, address: tuple[str, int], tmp_path: Path
) -> None:
    """An authority that did not sign, and a host that is not named. Files are read for each connection: what was put
    right counts for the next one. kazoo tries again where a file is missing."""
    ca = tmp_path / "ca.crt"
    handler = CountingHandler(TlsFiles(ca))
    with pytest.raises(OSError, match=r"security\.zookeeper\.ca: .* cannot be used: No such file"):
        handler.create_connection(address, "127.0.0.1", 10.0)
    assert handler.tls_error is None
    ca.write_bytes(Certificates(tmp_path / "other").place("ca.crt").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        handler.create_connection(address, "127.0.0.1", 10.0)
    assert isinstance(handler.tls_error, ssl.SSLCertVerificationError)
    ca.write_bytes(certificates.place("ca.crt").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError, match=r"zk1\.example"):
        handler.create_connection(address, "zk1.example", 10.0)
    for named in ("127.0.0.1", 2181):  # for a word of four letters kazoo names the port
        handler.create_connection(address, named, 10.0).close()
    CountingHandler(TlsFiles(ca, check_hostname=False)).create_connection(address, "zk1.example", 10.0).close()
