"""This module greets whoever listens at an address, and does nothing else there: so a process finds out which node is
there, and whether the two may talk."""

from __future__ import annotations

import queue

from halog.ports import Channel, Peer
from halog.runtime.rpc import frames


def answer_to(channel: Channel, hello: frames.Hello, address: str, wait_s: float) -> bytes | None:
    """Return the first frame that comes back; None: none came in time, or the connection ended. UnreachableError: there
    is no connection; its evidence says whether it was refused."""
    answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def hear(peer: Peer, frame: bytes) -> None:
        answers.put(frame)

    def end(peer: Peer) -> None:
        answers.put(None)

    peer = channel.dial(address, wait_s, hear, end)
    try:
        peer.send(frames.encode(hello))
        return answers.get(timeout=wait_s)
    except queue.Empty:
        return None
    finally:
        peer.close()
