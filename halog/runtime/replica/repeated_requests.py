"""This module joins requests that are asked again while their first attempt still runs: methods, moves, hand-overs
(R5).

A client gives up on an attempt long before what it asked for has to be done, since the node may be dead. Then it asks
again, perhaps the same node. Law: a request with the id of one that runs here joins it, and gets its answer; nothing is
begun a second time. An answer is kept until the client is known to have it, or for a while: it may have been given on a
connection that nobody listens to any more. A refusal is not kept, since nothing was done: the next attempt may succeed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from halog.core.ids import Member
from halog.errors import FrameError, UnreachableError
from halog.ports import Peer
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame

logger = logging.getLogger("halog.service")

KEPT_S: Final = 30.0
"""Longer than anybody asks for the same (`timing.call_deadline_ms`)."""

KEPT_BYTES: Final = 32 << 20
"""Two of the largest answers: few are lost on their way."""

Key = tuple[Member, bytes]


class RepeatedRequest:
    """Holds one such request, and the connections that wait for its answer. It takes the place of the connection it
    came on."""

    __slots__ = ("_followed", "_peers", "_repeats", "at", "data", "key")

    def __init__(self, repeats: RepeatedRequests, key: Key, peer: Peer) -> None:
        self._repeats = repeats
        self.key = key
        self._peers = [peer]
        self.data = b""
        """The answer, once it is there."""
        self.at = 0.0
        """When the answer came."""
        self._followed: Callable[[frames.Reply], None] | None = None

    @property
    def member(self) -> Member:
        """Return the node that asks."""
        return self.key[0]

    def follow(self, told: Callable[[frames.Reply], None]) -> None:
        """Have `told` called with the answer, before whoever asked has it."""
        self._followed = told

    def answer(self, reply: frames.Reply) -> None:
        """Send the answer to all who ask. Called once."""
        if self._followed is not None:
            self._followed(reply)
        data = encoded(reply)
        for peer in self._repeats.answered(self, data, kept=not isinstance(reply, frames.ErrorReply)):
            send(peer, data)

    def joined(self, peer: Peer) -> None:
        """Note that it is asked again, on this connection. Called with the lock held."""
        self._peers.append(peer)

    def taken(self) -> list[Peer]:
        """Return the connections that wait, none of which waits any more. Called with the lock held."""
        peers = self._peers
        self._peers = []
        return peers


class RepeatedRequests:
    """Keeps the repeated requests of one node. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[Key, RepeatedRequest] = {}
        self._kept: dict[Key, RepeatedRequest] = {}
        """Answered, in the order of the answers."""
        self._bytes = 0
        self.last: dict[int, Key] = {}
        """By connection: what was asked for last on it. Most have asked for nothing that is kept."""

    def begin(self, member: Member, number: bytes, peer: Peer) -> RepeatedRequest | None:
        """Return the request if it is to be done now; None: it runs, or is done, and this connection gets its
        answer."""
        key = member, number
        with self._lock:
            self.last[id(peer)] = key
            call = self._running.get(key)
            if call is not None:
                call.joined(peer)
                return None
            call = self._kept.get(key)
            if call is None:
                call = self._running[key] = RepeatedRequest(self, key, peer)
                return call
        send(peer, call.data)
        return None

    def heard(self, peer: Peer) -> None:
        """Forget an answer when the next request comes on its connection: whoever asks has it."""
        if id(peer) in self.last:
            with self._lock:
                self._forget(self.last.pop(id(peer), None))

    def closed(self, peer: Peer) -> None:
        """Forget a connection, but not its last answer: it may have been closed before the answer was read."""
        with self._lock:
            self.last.pop(id(peer), None)

    def answered(self, call: RepeatedRequest, data: bytes, *, kept: bool) -> list[Peer]:
        """Keep an answer, and return the connections that wait for it."""
        with self._lock:
            self._running.pop(call.key, None)
            if kept:
                call.data, call.at = data, self._clock()
                self._kept[call.key] = call
                self._bytes += len(data)
                self._drop()
            return call.taken()

    def _drop(self) -> None:
        """Forget answers that are too old, or too many."""
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if self._bytes <= KEPT_BYTES and self._clock() - oldest.at < KEPT_S:
                return
            self._forget(key)

    def _forget(self, key: Key | None) -> None:
        call = None if key is None else self._kept.pop(key, None)
        if call is not None:
            self._bytes -= len(call.data)


def encoded(reply: frames.Reply) -> bytes:
    """Return the bytes of a reply. One that cannot be sent is told as that: else it would be asked for, and done, until
    the deadline."""
    try:
        return frames.encode(reply)
    except Exception as e:
        what = ascii(f"{type(e).__name__}: {e}")[1:-1]
        return frames.encode(frames.ErrorReply("HalogError", f"the answer cannot be sent: {what}", {}))


def send(peer: Peer, data: bytes) -> None:
    """Send to one connection, if it is still there."""
    try:
        try:
            peer.send(data)
        except FrameError as e:  # too large for a frame: say so, or the caller asks in vain until its deadline
            peer.send(frames.encode(to_frame(e)))
    except UnreachableError:
        logger.debug("%s is gone before its reply", peer.remote)
