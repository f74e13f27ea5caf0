"""This module finds out for a client which nodes are up (N3). A client keeps no connection to a node for that, and
sends no keep-alives: hundreds of clients would be a load for each node.

It goes by what is registered, and greets a node where that may be wrong: once when it registers, when a request to it
met nobody, when a partition went to another node, and when its registration is gone. As long as a node is registered
and not up, or up and not registered, it is greeted again every few seconds. So where nobody asks a node for anything,
one that froze is up to a client until its session ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from halog.core.membership.node_states import NodeSight, NodeState
from halog.errors import ClosedError, FrameError, UnreachableError, VersionMismatchError
from halog.metadata.nodes import NodeInfo
from halog.ports import Channel
from halog.runtime.rpc import frames
from halog.runtime.rpc.greeting import answer_to
from halog.runtime.rpc.versions import judge_answer, mismatch_of
from halog.runtime.support.daemon_pool import Workers

logger = logging.getLogger("halog.nodes")

AGAIN_S: Final = 2.0
"""Pause between greetings of a node that is not up, as nodes make between attempts to connect to one that refuses."""

THREADS: Final = 8
"""So many nodes are greeted at once: each that hangs takes a thread for the non-response timeout."""


class _AskedNode:
    """Holds what is known of one run of a node."""

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.registered = True
        self.up = False
        self.asking = False


class NodeAsks:
    """Asks nodes for one client, once somebody wants to know. `seen` is told what is found, and never waits.
    `patience_s`: how long a node may take to answer; `again_s`: see AGAIN_S."""

    def __init__(
        self,
        channel: Channel,
        hello: frames.Hello,
        seen: Callable[[Mapping[str, NodeSight]], None],
        patience_s: float,
        again_s: float = AGAIN_S,
    ) -> None:
        self._channel = channel
        self._hello = hello
        self._seen = seen
        self._patience_s = patience_s
        self._again_s = again_s
        self._lock = threading.Lock()
        self._registered: Mapping[str, NodeInfo] = {}
        self._nodes: dict[str, _AskedNode] = {}
        self._workers = Workers("halog-node-asks", THREADS)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to ask, unless that was done before."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._work, name="halog-node-asks", daemon=True)
                self._thread.start()
                self._take()

    def close(self) -> None:
        """Ask nobody any more."""
        self._closing.set()
        self._workers.close()

    # --- what may have changed; any thread, never waits ---

    def registrations(self, infos: Mapping[str, NodeInfo]) -> None:
        """Take the registered nodes, which changed."""
        with self._lock:
            self._registered = {name: info for name, info in infos.items() if info.hosts and info.reached}
            if self._thread is not None:
                self._take()

    def doubted(self, node: str) -> None:
        """Ask a node that is taken for up: something says that it may not be."""
        if self._thread is None:
            return
        with self._lock:
            one = self._nodes.get(node)
            if one is not None and one.up:
                self._ask(one)

    # --- asking ---

    def _take(self) -> None:
        for name, info in self._registered.items():
            one = self._nodes.get(name)
            if one is None or one.info.incarnation != info.incarnation:
                one = self._nodes[name] = _AskedNode(info)
            elif one.registered and one.info == info:
                continue
            one.info, one.registered = info, True
            self._tell(one)
            self._ask(one)
        for name, one in self._nodes.items():
            if name not in self._registered and one.registered:
                one.registered = False
                self._tell(one, "its registration is gone")
                if one.up:
                    self._ask(one)

    def _tell(self, one: _AskedNode, why: str = "", *, offline: bool = False, refused: NodeState | None = None) -> None:
        why = "it answers" if one.up else why or "it was not asked yet"
        sight = NodeSight(one.info.incarnation, one.registered, one.up, offline, refused, why)
        self._seen({one.info.name: sight})

    def _ask(self, one: _AskedNode) -> None:
        if one.asking or self._closing.is_set():
            return
        try:
            self._workers.submit(partial(self._greet, one, one.info))
            one.asking = True
        except ClosedError:
            return

    def _greet(self, one: _AskedNode, info: NodeInfo) -> None:
        why, offline, refused = "", False, None
        try:
            offline_for = self._answer(info)
            why, offline = f"it is offline: {offline_for}", bool(offline_for)
            up = not offline
        except VersionMismatchError as error:
            why, up, refused = error.message, False, NodeState.UNSUPPORTED_PROTOCOL
        except (UnreachableError, FrameError) as error:
            why, up = error.message, False
        with self._lock:
            one.asking = False
            if self._nodes.get(info.name) is one and not self._closing.is_set():
                one.up = up
                self._tell(one, why, offline=offline, refused=refused)

    def _answer(self, info: NodeInfo) -> str:
        """Return why the node says that it is offline, "": it does not. Raises why it is not to be talked to."""
        if (error := mismatch_of(info)) is not None:
            raise error
        for address in info.reached[:-1]:
            with suppress(UnreachableError, FrameError):
                return self._answer_at(address, info)
        return self._answer_at(info.reached[-1], info)

    def _answer_at(self, address: str, info: NodeInfo) -> str:
        data = answer_to(self._channel, self._hello, address, self._patience_s)
        if data is None:
            raise UnreachableError("it does not answer a greeting", node=info.name)
        welcome = judge_answer(address, data)
        if (welcome.node, welcome.incarnation) != info.member:
            raise UnreachableError(f"another process answers at {address}", node=info.name)
        return welcome.offline

    def _work(self) -> None:
        while not self._closing.wait(self._again_s):
            with self._lock:
                for one in self._nodes.values():
                    if one.registered is not one.up:
                        self._ask(one)
