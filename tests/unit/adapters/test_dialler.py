"""What a process keeps in mind of addresses that it connects to is bounded (N5)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from halog.adapters.tcp import connect
from halog.adapters.tcp.security import ChannelSecurity
from halog.errors import UnreachableError
from tests.certificates import TestAuthority, node_uri

PATIENCE_S = 0.05


@pytest.mark.feature("N5")
def test_addresses_of_nodes_that_are_gone_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts again a thousand times, each time at another port, costs no memory; one that is noted again
    and again is known: TLS is spoken to it."""
    monkeypatch.setattr(connect, "MOST_EXPECTED", 3)
    files = TestAuthority(tmp_path).issue(node_uri("A"))
    dialler = connect.Dialler(ChannelSecurity("test", files, required=False, refusal=str.encode))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        for port in range(1_000):
            dialler.expect(f"127.0.0.9:{port}", "B", tls=True)
            dialler.expect(address, "B", tls=True)
        with pytest.raises(UnreachableError, match="completed no TLS handshake"):
            dialler.connect(address, PATIENCE_S)
        for port in range(3):
            dialler.expect(f"127.0.0.9:{port}", "B", tls=True)
        dialler.connect(address, PATIENCE_S).sock.close()  # nothing is known of it any more: plain text
