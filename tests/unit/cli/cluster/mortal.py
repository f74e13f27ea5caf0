"""A cluster on the memory adapters one of whose processes dies at a chosen step of what it does to the world."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from halog.adapters.memory import MemoryChannel, MemoryCoordinator, MemoryDisk, MemoryLog, MemoryStore
from halog.config import Config
from halog.errors import HalogError, UnreachableError
from halog.runtime.node.open import RunningNode
from halog.runtime.support.adapters import Adapters
from halog.testing.gate import Gate, GatedPort
from tests.unit.cli.conftest import Cluster

CHANGES = ("create", "set", "delete", "ensure_topic", "grow_topic", "put")
"""Port methods that change what other processes see."""

Step = tuple[str, str, int]
"""(method, what its first argument begins with, which of those that do)."""


class Mortal(Cluster):
    """`doomed`: processes whose names begin so die before their `step`, once."""

    doomed = ""
    step: Step = "", "", 0
    died: threading.Event

    def __init__(self, directory: Path, toml: str) -> None:
        super().__init__(directory, toml)
        self.died = threading.Event()
        self._left = 0
        self.bodies: dict[str, tuple[Gate, MemoryChannel, MemoryCoordinator]] = {}

    def doom(self, name: str, step: Step) -> None:
        """From now on a process of this name dies before that step."""
        self.doomed = name
        self.step = step
        self._left = step[2]
        self.died.clear()

    def adapters(self, config: Config, name: str, **_: float) -> Adapters:
        if not self.doomed or not name.startswith(self.doomed):
            return super().adapters(config, name)
        gate, channel, coordinator = Gate(), MemoryChannel(), MemoryCoordinator(self.tree)
        store = GatedPort(MemoryStore(MemoryDisk(name)), gate) if name in config.nodes else None
        log = Mortally(MemoryLog(self.broker), gate, self._fuse(gate))
        self.bodies[name] = gate, channel, coordinator
        lasting: Any = Mortally(coordinator, gate, self._fuse(gate))
        written: Any = log
        reached: Any = GatedPort(channel, gate)
        return Adapters(written, lasting, reached, store)

    def _fuse(self, gate: Gate) -> Callable[[str, str], None]:
        def burn(method: str, path: str) -> None:
            if self.died.is_set() or method != self.step[0] or not path.startswith(self.step[1]):
                return
            self._left -= 1
            if self._left < 0:
                self.died.set()
                gate.kill()

        return burn

    def begin(self, name: str) -> bool:
        """Start a node or client that is doomed; False if it died before it was up."""
        try:
            self.start(name)
        except HalogError:
            assert self.died.is_set()
            return False
        return True

    def bury(self, name: str) -> None:
        """What the kernel and ZooKeeper do for a dead process; nothing of it is doomed any more."""
        assert self.died.wait(10), f"{name} never came to {self.step}"
        self.doomed = ""
        gate, channel, coordinator = self.bodies.pop(name)
        gate.kill()
        channel.close()
        with suppress(UnreachableError):
            coordinator.expire(reconnect=False)
        coordinator.close()
        running: RunningNode | None = self.nodes.pop(name, None)
        if running is not None:
            running.runtime.close(hand_over=False)
            running.abandon()


class Mortally(GatedPort):
    """A port that tells of each change before it is made."""

    def __init__(self, port: Any, gate: Gate, burn: Callable[[str, str], None]) -> None:
        super().__init__(port, gate)
        self._burn = burn

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        gated = super()._method(name, method)
        if name not in CHANGES:
            return gated

        def call(*args: Any, **kwargs: Any) -> Any:
            self._burn(name, str(args[0]))
            return gated(*args, **kwargs)

        return call
