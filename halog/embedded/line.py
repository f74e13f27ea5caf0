"""This module is the line to one server of another site: a TCP forwarder that can be cut, cut one way, slowed and made
to flap.

Bytes that a cut line has taken and not yet delivered are held, not lost, as TCP holds them: bytes sent into a short cut
arrive after it, late. A cut line takes nothing more, so a sender's buffers fill, and neither end hears that a
connection ended. A connection is made only while both ways are open; until then a caller's connection leads nowhere.
`refuse` is the other kind of fault: the machine is there and the port is closed; connections are reset.

It serves demos and tests of sites that lose each other. One thread per line looks after all its connections; it moves
bytes and knows no frames.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from halog.embedded import ports

HOST: Final = "127.0.0.1"
CHUNK: Final = 1 << 16
HELD: Final = 1 << 20
"""Bytes a line holds in one direction of a connection; more stay with their sender."""
BACKLOG: Final = 128
ANSWER_S: Final = 10.0
"""The thread takes up a change within a few ms; if this passes, the thread is gone."""

THERE: Final = "there"
"""The direction from the caller to the server."""
BACK: Final = "back"
"""The direction of the server's answers."""
BOTH: Final = frozenset((THERE, BACK))


@dataclass(frozen=True)
class Mode:
    """Says what a line does now."""

    cut: frozenset[str] = frozenset()
    refuses: bool = False
    delay_s: float = 0.0
    flaps: tuple[float, float] | None = None
    """Seconds open and seconds cut, in turn."""
    since: float = 0.0

    def blocked(self, now: float) -> frozenset[str]:
        """Return the directions in which nothing passes now."""
        if self.flaps is not None and (now - self.since) % sum(self.flaps) >= self.flaps[0]:
            return BOTH
        return self.cut

    def next_turn(self, now: float) -> float | None:
        """Return the time of flapping's next change."""
        if self.flaps is None:
            return None
        into = (now - self.since) % sum(self.flaps)
        return now + (self.flaps[0] if into < self.flaps[0] else sum(self.flaps)) - into


@dataclass(eq=False)
class Flow:
    """A `Flow` is one direction of a connection."""

    direction: str
    source: socket.socket
    target: socket.socket
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    """Chunks on their way: (due, bytes)."""
    size: int = 0
    ended: bool = False
    """The source has closed its side."""
    done: bool = False
    """The target has been told so."""

    def take(self, now: float, delay_s: float) -> None:
        """Read the bytes that have come; OSError: the connection broke."""
        data = self.source.recv(CHUNK)
        if data:
            self.held.append((now + delay_s, data))
            self.size += len(data)
        else:
            self.ended = True

    def give(self, now: float) -> None:
        """Write the bytes that are due, as far as the target takes them."""
        while self.held and self.held[0][0] <= now:
            due, data = self.held[0]
            try:
                sent = self.target.send(data)
            except BlockingIOError:
                return
            self.size -= sent
            if sent < len(data):
                self.held[0] = (due, data[sent:])
                return
            self.held.popleft()
        if self.ended and not self.held and not self.done:
            self.done = True
            with suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)

    def due(self, now: float) -> bool:
        """Is there something to write now?"""
        return bool(self.held) and self.held[0][0] <= now


class SiteLine:
    """A `SiteLine` listens on a port of its own (`address`) and forwards to `target` on loopback from the moment it is
    made.

    The server need not run yet; earlier callers are refused. Each change holds when its call returns: nothing passes a
    cut line from then on.
    """

    def __init__(self, target: int, port: int | None = None) -> None:
        self.target = target
        self.port = port or ports.pick(set())
        self.made = 0
        """Connections that were made."""
        self._mode = self._wanted = Mode()
        self._flows: list[Flow] = []
        self._changed = threading.Condition()
        self._closing = False
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._door: socket.socket | None = self._listen()
        self._thread = threading.Thread(target=self._run, name=f"line to {target}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    # --- what it can be told ---

    def heal(self) -> None:
        """Let everything pass at once again; held bytes go on their way."""
        self._become(Mode())

    def cut(self, *directions: str) -> None:
        """Let nothing pass, or nothing in these directions (`THERE`, `BACK`); the rest stays as it is."""
        self._become(replace(self._wanted, cut=frozenset(directions) or BOTH, refuses=False, flaps=None))

    def refuse(self) -> None:
        """Reset connections, and refuse new ones."""
        self._become(replace(self._wanted, refuses=True, flaps=None))

    def delay(self, seconds: float) -> None:
        """Make each byte take so much longer, each way."""
        self._become(replace(self._wanted, delay_s=seconds))

    def flap(self, open_s: float, cut_s: float) -> None:
        """Open and cut the line in turn until another call changes that."""
        assert open_s > 0, "a line that is never open is cut"
        assert cut_s > 0, "a line that is never cut does not flap"
        now = time.monotonic()
        self._become(replace(self._wanted, cut=frozenset(), refuses=False, flaps=(open_s, cut_s), since=now))

    def close(self) -> None:
        """Reset all connections and free the port."""
        self._closing = True
        self._wake.send(b"x")
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive(), f"the line to {self.target} does not end"
        self._wake.close()
        self._woken.close()

    def _become(self, mode: Mode) -> None:
        with self._changed:
            self._wanted = mode
            self._wake.send(b"x")
            taken_up = self._changed.wait_for(lambda: self._mode is mode or not self._thread.is_alive(), ANSWER_S)
        assert taken_up, f"the line to {self.target} takes no orders"
        assert self._thread.is_alive(), f"the line to {self.target} has ended"

    # --- its thread ---

    def _run(self) -> None:
        try:
            while not self._closing:
                self._take_up()
                self._turn()
        finally:
            self._reset_all()
            self._shut()

    def _take_up(self) -> None:
        mode = self._wanted
        if mode.refuses:
            self._reset_all()
            self._shut()
        elif self._door is None:
            self._door = self._listen()
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    def _turn(self) -> None:
        """Wait until something can be done, and do it."""
        now = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for sock, events in self._interests(now):
                selector.register(sock, events)
            ready = {key.fileobj for key, _ in selector.select(self._timeout(now))}
        if self._woken in ready:
            with suppress(BlockingIOError):
                self._woken.recv(CHUNK)
            if self._wanted is not self._mode:
                return  # before anything more passes
        blocked = self._mode.blocked(now := time.monotonic())
        if self._door is not None and self._door in ready and not blocked:
            self._accept(self._door)
        for flow in [f for f in self._flows if f.direction not in blocked]:
            if flow in self._flows:
                self._pass(flow, now, flow.source in ready)

    def _interests(self, now: float) -> Iterator[tuple[socket.socket, int]]:
        """Yield each socket once with its events. A socket with none is left out, so that not even its end is
        reported."""
        blocked, wanted = self._mode.blocked(now), dict[socket.socket, int]()
        for flow in self._flows:
            if flow.direction in blocked:
                continue
            if not flow.ended and flow.size < HELD:
                wanted[flow.source] = wanted.get(flow.source, 0) | selectors.EVENT_READ
            if flow.due(now):
                wanted[flow.target] = wanted.get(flow.target, 0) | selectors.EVENT_WRITE
        yield self._woken, selectors.EVENT_READ
        if self._door is not None and not blocked:
            yield self._door, selectors.EVENT_READ
        yield from wanted.items()

    def _timeout(self, now: float) -> float | None:
        blocked = self._mode.blocked(now)
        times = [f.held[0][0] for f in self._flows if f.held and f.held[0][0] > now and f.direction not in blocked]
        if (turn := self._mode.next_turn(now)) is not None:
            times.append(turn)
        return max(0.0, min(times) - now) if times else None

    def _pass(self, flow: Flow, now: float, readable: bool) -> None:
        try:
            if readable and not flow.ended and flow.size < HELD:
                with suppress(BlockingIOError):
                    flow.take(now, self._mode.delay_s)
            flow.give(now)
        except OSError:
            self._drop(flow, reset=True)
            return
        if flow.done and all(f.done for f in self._pair(flow)):
            self._drop(flow, reset=False)

    def _pair(self, flow: Flow) -> list[Flow]:
        return [f for f in self._flows if f.source in (flow.source, flow.target)]

    def _drop(self, flow: Flow, *, reset: bool) -> None:
        self._flows = [f for f in self._flows if f.source not in (flow.source, flow.target)]
        for sock in (flow.source, flow.target):
            _end(sock, reset)

    def _accept(self, door: socket.socket) -> None:
        with suppress(OSError):
            caller, _ = door.accept()
            try:
                server = socket.create_connection((HOST, self.target), 1.0)
            except OSError:
                _end(caller, reset=True)
                return
            for sock in (caller, server):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._flows += [Flow(THERE, caller, server), Flow(BACK, server, caller)]
            self.made += 1

    def _listen(self) -> socket.socket:
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((HOST, self.port))
        door.listen(BACKLOG)
        door.setblocking(False)
        return door

    def _shut(self) -> None:
        if self._door is not None:
            self._door.close()  # waiting callers are reset
        self._door = None

    def _reset_all(self) -> None:
        while self._flows:
            self._drop(self._flows[0], reset=True)


def _end(sock: socket.socket, reset: bool) -> None:
    if reset:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
