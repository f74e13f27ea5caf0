"""This module puts a node's ports behind a gate, which stops the node from touching the world without stopping its
threads.

A process that gets SIGSTOP does nothing any more, and what is sent to it waits. Threads cannot be stopped, but all a
node can do goes through its ports: while the gate is shut, every call into a port and every callback out of one waits.
Nobody can see what a node computes meanwhile. Behind a killed node's gate, whatever it still writes or sends has no
effect, and whatever it asks is unreachable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from halog.errors import UnreachableError

_CALLBACKS: Final = frozenset({"connect", "watch", "watch_children", "listen", "dial", "append"})
"""Port methods that take functions to call back."""
_MAKERS: Final = frozenset({"session", "tail", "transaction", "journal", "snapshot"})
"""Port methods whose result is a port itself."""
_ONE_WAY: Final = frozenset({"poll", "append", "follow", "unfollow", "wake", "write", "drop", "abandon", "close"})
"""Port methods a dying node's threads may call without an answer."""
_OF_PEERS: Final = frozenset({"listen", "dial"})
"""Port methods whose callbacks get a connection."""


class Gate:
    """A `Gate` is open, shut (a paused node), or shut for good (a killed one)."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.dead = False
        self._peers: dict[int, tuple[Any, GatedPort]] = {}

    def shut(self) -> None:
        """Close the gate: the node is paused."""
        self._open.clear()

    def open(self) -> None:
        """Open the gate: the node goes on."""
        self._open.set()

    def kill(self) -> None:
        """Wake every waiting thread and let none through."""
        self.dead = True
        self._open.set()

    def pass_through(self) -> None:
        """Wait while the gate is shut; UnreachableError behind a killed node's."""
        self._open.wait()
        if self.dead:
            raise UnreachableError("this node was killed by the test", sent=False)

    def swallows(self) -> bool:
        """Wait while the gate is shut; True if nothing comes through any more."""
        self._open.wait()
        return self.dead

    def callback(self, func: Callable[..., Any], *, of_peers: bool = False) -> Callable[..., Any]:
        """Return a function for the world to call: it waits while the gate is shut, and never runs behind a killed
        node's."""

        def call(*args: Any) -> Any:
            self._open.wait()
            if of_peers and args:
                args = (self.peer(args[0]), *args[1:])
            return None if self.dead else func(*args)

        return call

    def peer(self, raw: Any) -> GatedPort:
        """Return the one gated connection for a raw one: a node tells its connections apart by identity."""
        return self._peers.setdefault(id(raw), (raw, GatedPort(raw, self)))[1]


class GatedPort:
    """A `GatedPort` is any port behind a gate."""

    def __init__(self, port: Any, gate: Gate) -> None:
        self._port = port
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        if not callable(value):
            return value
        wrapped = self._method(name, value)
        self.__dict__[name] = wrapped
        return wrapped

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        gate = self._gate

        def call(*args: Any, **kwargs: Any) -> Any:
            if name in _ONE_WAY and gate.swallows():
                return ()
            gate.pass_through()
            if name in _CALLBACKS:
                of_peers = name in _OF_PEERS
                args = tuple(gate.callback(a, of_peers=of_peers) if callable(a) else a for a in args)
            result = method(*args, **kwargs)
            if name == "dial":
                return gate.peer(result)
            return GatedPort(result, gate) if name in _MAKERS else result

        return call
