"""Coordinator implementations under test, with the faults each can be made to show."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.client import KazooClient

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.adapters.zookeeper.access import PLAIN, ZooKeeperAccess
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.embedded import EmbeddedSite
from halog.ports import Coordinator, SessionState
from tests.contract.proxy import Proxy

_numbers = itertools.count()


class States(list[SessionState]):
    """The states told, in order."""

    def __call__(self, state: SessionState) -> None:
        self.append(state)


class CoordinatorRig(Protocol):
    """What the coordinator suite needs of an implementation."""

    def open(self, states: States | None = None) -> Coordinator:
        """A connected node of the shared cluster."""

    def disconnect(self, c: Coordinator) -> None:
        """Break the connection and let no new one through."""

    def reconnect(self, c: Coordinator) -> None:
        """Let it through again."""

    def expire(self, c: Coordinator) -> None:
        """End its session under a living connection; it gets a new one by itself."""

    def losing_reply(self, c: Coordinator, write: Callable[[], Any]) -> Any:
        """Run a write that happens while its reply is lost and the connection breaks."""

    def end(self) -> None: ...


class MemoryCoordinatorRig:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self._open: list[MemoryCoordinator] = []

    def open(self, states: States | None = None) -> MemoryCoordinator:
        c = MemoryCoordinator(self.tree)
        c.connect(states if states is not None else States())
        self._open.append(c)
        return c

    def disconnect(self, c: Coordinator) -> None:
        assert isinstance(c, MemoryCoordinator)
        c.suspend()

    def reconnect(self, c: Coordinator) -> None:
        assert isinstance(c, MemoryCoordinator)
        c.resume()

    def expire(self, c: Coordinator) -> None:
        assert isinstance(c, MemoryCoordinator)
        c.expire()

    def losing_reply(self, c: Coordinator, write: Callable[[], Any]) -> Any:
        assert isinstance(c, MemoryCoordinator)
        c.lose_reply()
        return write()

    def end(self) -> None:
        for c in self._open:
            c.close()


SESSION_MS = 10_000
"""The longest that the server grants. A session of a node's second breaks where the machine stands still for a third of
it, and then a test that breaks no connection itself is refused a request."""
ANSWER_S = 30.0
"""Nobody here waits for an answer that does not come, but who says so."""
WAIT_S = 30.0


class ZkRig:
    """Each client has a proxy of its own between it and the server. `address`: where that is, if it is not the site's
    plain port; `access`: how it is spoken to."""

    def __init__(self, site: EmbeddedSite, address: str = "", access: ZooKeeperAccess = PLAIN) -> None:
        self.site = site
        self.address = address or site.info.zookeeper
        self.access = access
        self.cluster = f"c{os.getpid()}-{next(_numbers)}"
        self._open: list[tuple[ZkCoordinator, Proxy]] = []

    def open(self, states: States | None = None, *, answer_s: float = ANSWER_S) -> ZkCoordinator:
        proxy = Proxy(self.address)
        c = ZkCoordinator(
            proxy.address, self.cluster, session_timeout_ms=SESSION_MS, answer_s=answer_s, access=self.access
        )
        self._open.append((c, proxy))
        c.connect(states if states is not None else States())
        return c

    def proxy(self, c: Coordinator) -> Proxy:
        return next(proxy for known, proxy in self._open if known is c)

    def disconnect(self, c: Coordinator) -> None:
        self.proxy(c).cut(reopen=False)
        assert isinstance(c, ZkCoordinator)
        wait_for(lambda: not c._client.connected)

    def reconnect(self, c: Coordinator) -> None:
        self.proxy(c).open()

    def expire(self, c: Coordinator) -> None:
        """ZooKeeper ends a session that a second client took over and closed."""
        assert isinstance(c, ZkCoordinator)
        before = c.session_id
        thief = KazooClient(hosts=self.site.info.zookeeper, client_id=c._client.client_id)
        thief.start()
        thief.stop()
        thief.close()
        wait_for(lambda: c.session_id not in (0, before))

    def losing_reply(self, c: Coordinator, write: Callable[[], Any]) -> Any:
        proxy = self.proxy(c)
        proxy.hold_replies()

        def heal() -> None:
            proxy.lost.wait(ANSWER_S / 2)  # then the request has been carried out
            proxy.cut()
            proxy.pass_replies()

        healer = threading.Thread(target=heal)
        healer.start()
        try:
            return write()
        finally:
            healer.join()

    def end(self) -> None:
        for c, proxy in self._open:
            c.close()
            proxy.close()


def wait_for(condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)
