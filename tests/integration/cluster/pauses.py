"""A control beside a load: what holds it up is the machine (`tests.integration.cluster.waits`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from halog.runtime.node.open import RunningNode
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import Pause, Wait, beyond

PAUSE_S = 0.02
"""Between two of the control's: it is to look on, not to take part."""
KEEP = 12
TAIL = "control"
ENDS_S = 60.0
"""Longer than any call is waited for: who has not ended by then hangs."""


class Control:
    """One thread that lands its own aircraft on a node of its own, from before the load until after it."""

    def __init__(self, node: RunningNode, *, land: Callable[[], None] | None = None, ends_s: float = ENDS_S) -> None:
        """`land`: what it does in place of landing."""
        self.node = node
        self._do = land or self._land
        self._ends_s = ends_s
        self.waits: list[Wait] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Control:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(self._ends_s)
        assert not self._thread.is_alive(), "the control never got an answer"

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                began = time.monotonic()
                self._do()
                self.waits.append(Wait(began, time.monotonic()))
        except BaseException as error:
            self.errors.append(error)

    def _land(self) -> None:
        from tests.integration.cluster.fleet import Aircraft, Flight  # one process has one class of a name

        def once() -> None:
            aircraft = self.node.find(Aircraft, TAIL) or self.node.create(Aircraft(tail=TAIL))
            landing = aircraft.land(10)
            self.node.create(Flight(tail=TAIL, number=landing))
            if old := self.node.find(Flight, TAIL, landing - KEEP):
                self.node.delete(old)

        self.node.transactional(retries=200)(once)()

    def check(self, waits: Sequence[Wait], pause: Pause) -> None:
        """Nobody waited for anything but the pause and the machine. A transaction of the control is known when it has
        ended, and one stall may cover it and what is judged: one that began later has ended, too, before it judges."""
        judged = list(waits)
        self._outlasts(max((w.ended for w in judged), default=0.0))
        assert not self.errors, f"the control failed: {self.errors[0]!r}"
        found = list(beyond(judged, list(self.waits), pause))
        assert not found, f"{len(found)} of {len(judged)}:\n" + "\n".join(found[:5])

    def _outlasts(self, moment: float) -> None:
        def does() -> bool:
            return bool(self.errors) or any(w.began >= moment for w in self.waits[-1:])

        wait(does, "the control goes on", self._ends_s)
