"""This module keeps the states of all remote nodes as this process sees them (N3), and tells its application of those
that come and go.

`halog.core.membership.node_states` says what a sight means. Whoever sees nodes hands its sights over and never waits:
notifiers are called by threads of their own (`halog.runtime.events.node_notifiers`). What happens to a node while its
notifiers run is told when they have returned: that it is gone, or that it was, and is back. So at most two rounds of
calls wait for one node, however long a notifier takes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from halog.core.membership.node_states import (
    REFUSALS,
    TELLING,
    NodeSight,
    NodeState,
    NodeStateChange,
    NodeStateTracker,
)
from halog.errors import ClosedError
from halog.events import NODE_REFUSED, NOTIFIER_FAILED
from halog.runtime.events.history import History
from halog.runtime.events.node_notifiers import NodeChange, NodeNotifier, NotifierPair, NotifierThreads
from halog.runtime.support.clock import wall_ms

logger = logging.getLogger("halog.nodes")

CLOSE_S: Final = 5.0
"""How long notifiers that run when their node closes may take."""

UNKNOWN: Final = "no address of it is known"
AGAIN: Final = "it started again"


class _Followed:
    """Holds what is known of one remote node."""

    def __init__(self, now_ms: int) -> None:
        self.tracker = NodeStateTracker()
        self.since_ms = now_ms
        self.why = UNKNOWN
        self.lost = ""
        """Why it went down last."""
        self.called = False
        """Does a thread take care of its notifiers?"""


class NodeStates:
    """Follows the remote nodes for one run of a process. `named` returns the names of the configured nodes. `close_s`:
    see CLOSE_S."""

    def __init__(
        self, me: str, history: History, named: Callable[[], Iterable[str]], *, close_s: float = CLOSE_S
    ) -> None:
        self._me = me
        self._history = history
        self._named = named
        self._close_s = close_s
        self._began_ms = wall_ms()
        self._lock = threading.Lock()
        """Over all below; never held while anything is called that may wait."""
        self._nodes: dict[str, _Followed] = {}
        self._pairs: list[NotifierPair] = []
        self._threads = NotifierThreads(self._next_call)
        self._closed = False

    # --- what is seen; any thread, never waits ---

    def seen(self, sights: Mapping[str, NodeSight]) -> None:
        """Take what is seen of these nodes now."""
        refused = []
        with self._lock:
            for name, sight in sights.items():
                one = self._followed(name)
                if sight != one.tracker.sight:
                    refused += self._look(name, one, sight)
            up = [name for name, one in self._nodes.items() if one.tracker.sight.up]
        for name, state, why in refused:
            told_by_another = state is NodeState.UNSUPPORTED_PROTOCOL and any(other < self._me for other in up)
            more = {"state": state.value, "to": self._me}
            self._history.tell(NODE_REFUSED, why, node=name, more=more, logged=told_by_another)

    def _followed(self, name: str) -> _Followed:
        one = self._nodes.get(name)
        if one is None:
            one = self._nodes[name] = _Followed(self._began_ms)
        return one

    def _look(self, name: str, one: _Followed, sight: NodeSight) -> list[tuple[str, NodeState, str]]:
        """Take a sight of a node; return what is to be told of it."""
        was = one.tracker.sight
        if was.up and was.run != sight.run:
            one.lost = AGAIN
        elif was.up and not sight.up:
            one.lost = sight.why
        steps = one.tracker.look(sight)
        self._note(one, steps)
        self._settle(name, one)
        return [(name, step.now, sight.why) for step in steps if step.now in REFUSALS]

    def _note(self, one: _Followed, steps: Iterable[NodeStateChange]) -> None:
        """Note since when, and why: what notifiers do changes neither."""
        for step in steps:
            if step.happening not in ("notifiers returned", "notifier added"):
                one.since_ms = wall_ms()
                one.why = one.lost if step.happening == "lost" else one.tracker.sight.why

    def _settle(self, name: str, one: _Followed) -> None:
        """Call what is due for a node, unless a thread is about it; where nothing is, go on to the next state."""
        while not one.called and one.tracker.state in TELLING:
            if self._due(name, one) is None:
                self._note(one, one.tracker.returned())
            else:
                one.called = True
                self._threads.call(name)

    # --- notifiers ---

    def notify(self, available: NodeNotifier | None, unavailable: NodeNotifier | None) -> Callable[[], None]:
        """Call `available` for each node that is up, and for each that comes up; `unavailable` for each that it was, or
        would have been called for and that is not up any more. Return a function that ends this: no call begins after
        that, or after the node was closed. ClosedError if the node is closed."""
        pair = NotifierPair(available, unavailable)
        with self._lock:
            if self._closed:
                raise ClosedError(f"node {self._me} is closed: it calls no notifier any more")
            self._threads.begin()
            self._pairs.append(pair)
            for name, one in self._nodes.items():
                self._note(one, one.tracker.added())
                self._settle(name, one)

        def remove() -> None:
            with self._lock:
                self._pairs = [other for other in self._pairs if other is not pair]

        return remove

    def _due(self, name: str, one: _Followed) -> tuple[NotifierPair, NodeNotifier] | None:
        """Return the next notifier that is to be called in this state; None: there is none. Those that have none for
        it count as told."""
        up = one.tracker.state is NodeState.IN_UP_NOTIFIER
        for pair in self._pairs:
            if up is (name not in pair.told):
                notifier = pair.available if up else pair.unavailable
                if notifier is not None:
                    return pair, notifier
                (pair.told.add if up else pair.told.discard)(name)
        return None

    def _next_call(self, name: str) -> Callable[[], object] | None:
        """Return the next call for a node, which counts as made; None: nothing is due any more."""
        with self._lock:
            one = self._nodes[name]
            while one.tracker.state in TELLING:
                due = self._due(name, one)
                if due is not None:
                    pair, notifier = due
                    up = one.tracker.state is NodeState.IN_UP_NOTIFIER
                    (pair.told.add if up else pair.told.discard)(name)
                    change = NodeChange(name, one.tracker.target.value, one.why, one.since_ms)
                    return partial(self._call, notifier, change)
                self._note(one, one.tracker.returned())
            one.called = False
        return None

    def _call(self, notifier: NodeNotifier, change: NodeChange) -> None:
        try:
            notifier(change)
        except ClosedError as error:
            logger.info("a notifier for node %s did not run to its end: %s", change.node, error)
        except BaseException as error:  # also what ends a task or a process: in this thread it would end all calls
            name = getattr(notifier, "__qualname__", None) or type(notifier).__qualname__
            why = f"{type(error).__name__}: {error}"
            logger.warning("notifier %s failed for node %s", name, change.node, exc_info=True)
            more = {"notifier": name, "state": change.state, "to": self._me}
            self._history.tell(NOTIFIER_FAILED, why, node=change.node, more=more)

    def end(self) -> None:
        """Begin no call any more."""
        with self._lock:
            self._closed = True
            self._pairs = []

    def close(self) -> None:
        """Begin no call any more. Wait for those that run, within bounds, but not for one that closes the node."""
        self.end()
        self._threads.close(self._close_s)

    # --- what is known ---

    def now(self) -> dict[str, NodeChange]:
        """Return the state of each node that is configured, or was seen, in the order of their names."""
        with self._lock:
            for name in self._named():
                if name != self._me:
                    self._followed(name)
            return {name: _shown(name, one) for name, one in sorted(self._nodes.items())}


def _shown(name: str, one: _Followed) -> NodeChange:
    state, sight, why = one.tracker.state, one.tracker.sight, one.why
    if state in TELLING and sight.up is (state is NodeState.IN_DOWN_NOTIFIER):
        why += f"; notifiers have not returned, and meanwhile: {sight.why}"
    return NodeChange(name, state.value, why, one.since_ms)
