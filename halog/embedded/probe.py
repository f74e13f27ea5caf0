"""This module asks a server on this machine whether it answers, in its own protocol. It never keeps a connection, never
raises.

The broker gets a hand-written Metadata request (version 1, no topics): the supervisor needs no Kafka client, and a
refused connection costs microseconds instead of a client's back-off.
"""

from __future__ import annotations

import socket
import struct

from halog.embedded.model import LOOPBACK

TIMEOUT_S = 0.5  # a server that accepts but is still starting is asked again after this

# api key 3 (Metadata), version 1, correlation id 7, client id "halog"; body: an empty list of topics
_METADATA = struct.pack(">hhih5si", 3, 1, 7, 5, b"halog", 0)


def kafka_answers(port: int, timeout_s: float = TIMEOUT_S, host: str = LOOPBACK) -> bool:
    """Return True once a metadata answer names at least one live broker."""
    try:
        with socket.create_connection((host, port), timeout_s) as s:
            s.sendall(struct.pack(">i", len(_METADATA)) + _METADATA)
            head = _exactly(s, 12)
    except OSError:
        return False
    if len(head) < 12:
        return False
    _size, correlation, brokers = struct.unpack(">iii", head)
    return bool(correlation == 7 and brokers >= 1)


def zookeeper_answers(port: int, timeout_s: float = TIMEOUT_S, host: str = LOOPBACK) -> bool:
    """Return True once `srvr` names a mode: before that the server listens but does not serve."""
    try:
        with socket.create_connection((host, port), timeout_s) as s:
            s.sendall(b"srvr")
            answer = b""
            while chunk := s.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode: " in answer


def _exactly(s: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := s.recv(size - len(data))):
        data += chunk
    return data
