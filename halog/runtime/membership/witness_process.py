"""This is the witness's program: `python witness_process.py PIDFD`. See `halog.runtime.membership.witness`.

Imports nothing of halog. Reads lines of JSON, the last one counts: what to say, in base64, and whom to.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

CONNECT_S = 1.0
"""For an address that does not answer; the others are told meanwhile."""
TELL_S = 3.0
"""For all of it with one address, connecting included, however it is answered: a byte at a time, perhaps."""


def main(pidfd: int) -> None:
    """Watch until the process is no more, then tell of it."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # who ends a node and all about it is to be witnessed
        signal.signal(each, signal.SIG_IGN)
    told: dict[str, Any] = {"say": "", "to": []}
    rest = b""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if 0 in ready:
            data = os.read(0, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                told = json.loads(lines[-1])
            if not data:
                poll.unregister(0)
        elif pidfd in ready:
            break
    tls = told.get("tls") or {"to": [], "files": []}
    tell(base64.b64decode(told["say"]), told["to"], tls["to"], tls["files"])


def tell(data: bytes, plain: Sequence[str], secured: Sequence[str] = (), files: Sequence[str] = ()) -> None:
    """Tell all at once. `files`: authorities, certificate and key, as they are by now, for those with TLS."""
    threads = [threading.Thread(target=_tell, args=(data, address, ())) for address in plain]
    threads += [threading.Thread(target=_tell, args=(data, address, files)) for address in secured]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _tell(data: bytes, address: str, files: Sequence[str]) -> None:
    host, _, port = address.rpartition(":")
    until = time.monotonic() + TELL_S
    with (
        suppress(OSError),
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain,
        _protected(plain, files) as connection,
    ):
        connection.settimeout(_left(until))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while True:  # the greeting is answered; the end comes once all was read
            connection.settimeout(_left(until))
            if not connection.recv(1 << 12):
                return


def _protected(connection: socket.socket, files: Sequence[str]) -> socket.socket:
    """Return the connection, with TLS if there are files. An authority of the cluster's answers for the other side."""
    if not files:
        return connection
    import ssl  # 5 MB, and only here

    authorities, certificate, key = files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(authorities)
    context.load_cert_chain(certificate, key)
    return context.wrap_socket(connection)


def _left(until: float) -> float:
    """Return the seconds until then. Raises TimeoutError if it is over."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


if __name__ == "__main__":
    main(int(sys.argv[1]))
