"""What the addresses of a ZooKeeper do, where the moment of it is all that differs (N4)."""

from __future__ import annotations

import errno
import socket

import pytest

from halog.adapters.zookeeper.reachability import silence


@pytest.mark.feature("N4")
@pytest.mark.parametrize("code", [errno.EPIPE, errno.ECONNRESET])
def test_a_connection_that_is_closed_before_it_is_looked_at_was_accepted(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of both by the connect: a connection that was made, ended and reset in one go. Seen once in some
    dozen runs against a ZooKeeper whose connections were all taken."""

    def connect(*_args: object) -> socket.socket:
        raise OSError(code, "as the kernel says")

    monkeypatch.setattr(socket, "create_connection", connect)
    found = silence("127.0.0.1:2181")
    assert found.busy
    assert "maxClientCnxns" in found.text
