"""This module greets whoever listens at an address, and does nothing else there: so a process finds out which node is
there, and whether the two may talk."""

from __future__ import annotations

import queue
from contextlib import suppress

from halog.errors import UnreachableError
from halog.ports import Channel, Peer
from halog.runtime.rpc import frames


def answer_to(channel: Channel, hello: frames.Hello, address: str, wait_s: float) -> bytes | None:
    """Return the first frame that comes back; None: none came in time, or the connection ended. UnreachableError: there
    is no connection, and its evidence says whether it was refused; or the two do not trust each other."""
    answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def hear(peer: Peer, frame: bytes) -> None:
        answers.put(frame)

    def end(peer: Peer) -> None:
        answers.put(None)

    peer = channel.dial(address, wait_s, hear, end)
    try:
        with suppress(UnreachableError):  # it may have refused us, and closed: its end says why
            peer.send(frames.encode(hello))
        answer = answers.get(timeout=wait_s)
        if answer is None and peer.refusal:
            said = f"{address} is not spoken to: {peer.refusal}"
            raise UnreachableError(said, address=address, refused=False, greeting=True)
        return answer
    except queue.Empty:
        return None
    finally:
        peer.close()
