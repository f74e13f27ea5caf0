"""A control beside a load: what holds it up is the machine (`tests.integration.cluster.waits`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from halog.runtime.open import Node
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.waits import Pause, Wait, beyond

PAUSE_S = 0.02
"""Between two of the control's: it is to look on, not to take part."""
KEEP = 12
TAIL = "control"


class Control:
    """One thread that lands its own aircraft on a node of its own, from before the load until after it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.waits: list[Wait] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Control:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                began = time.monotonic()
                self._land()
                self.waits.append(Wait(began, time.monotonic()))
        except BaseException as error:
            self.errors.append(error)

    def _land(self) -> None:
        def once() -> None:
            aircraft = self.node.find(Aircraft, TAIL) or self.node.create(Aircraft(tail=TAIL))
            landing = aircraft.land(10)
            self.node.create(Flight(tail=TAIL, number=landing))
            if old := self.node.find(Flight, TAIL, landing - KEEP):
                self.node.delete(old)

        self.node.transactional(retries=200)(once)()

    def check(self, waits: Sequence[Wait], pause: Pause) -> None:
        """Nobody waited for anything but the pause and the machine."""
        assert self.errors == []
        found = list(beyond(waits, list(self.waits), pause))
        assert not found, f"{len(found)} of {len(waits)}:\n" + "\n".join(found[:5])
