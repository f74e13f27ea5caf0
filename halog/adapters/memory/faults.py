"""This module makes operations of the memory servers fail, hang, or lose their answers, where a test says so.

A `MemoryTree`, a `MemoryCoordinator`, a `MemoryBroker` and a `MemoryChannel` have `faults` each: of all that use the
tree or the broker, or of the one node whose session or channel it is. An operation has the name that it has in its port
(`set`, `bounds`, `request`). What it is about tells operations of one name apart: a znode's path, a topic's partition
(or the name of a topic), the address and the frame of a request.

    cluster.tree.faults.fail("set", UnknownResult("no answer"), "partitions/p-0", lands=True, times=1)
    with cluster.broker.faults.fail("bounds", LogError("busy")):
        ...
    late = channel.faults.fail("request", DeadlineError("no answer"), is_commit, times=1)
    late.met[0].land()  # it was late, and arrives now
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
About = str | Callable[[Any], bool]
"""What an operation is about: with what its path begins or its topic is called, or a function that knows."""
Effect = Callable[["Attempt[Any]"], Any]
"""What comes of an operation that meets a fault: what the function returns or raises. It may let the attempt land."""


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """An `Attempt` is an operation that met a fault. `land` carries it out at the server, then or later."""

    about: Any
    land: Callable[[], T]


@dataclass(eq=False)
class Fault:
    """A `Fault` stands until it is ended, or was met as often as it was to be. In a with-block it ends with the
    block."""

    operation: str
    effect: Effect
    about: About
    times: int | None
    met: list[Attempt[Any]] = field(default_factory=list)
    """Holds all operations that met it, in order."""
    ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def concerns(self, operation: str, about: Any) -> bool:
        if self.ended or operation != self.operation:
            return False
        if callable(self.about):
            return self.about(about)
        return str(getattr(about, "topic", about)).startswith(self.about)

    def perform(self, about: Any, land: Callable[[], T]) -> T:
        """Let an operation meet this fault, if it was not met often enough."""
        attempt = Attempt(about, land)
        with self._lock:
            if self.ended:
                return land()
            self.met.append(attempt)
            self.ended = len(self.met) == self.times
        result: T = self.effect(attempt)
        return result

    def end(self) -> None:
        """End the fault: operations are carried out again."""
        with self._lock:
            self.ended = True

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


class Faults:
    """Holds the faults of one server, session or channel. An operation meets the newest first, and what that lets land
    meets the older ones."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def add(self, operation: str, effect: Effect, about: About = "", *, times: int | None = None) -> Fault:
        """Give such operations this effect, the first `times` of them, or all."""
        fault = Fault(operation, effect, about, times)
        with self._lock:
            self._faults = (*(f for f in self._faults if not f.ended), fault)
        return fault

    def fail(
        self,
        operation: str,
        error: BaseException,
        about: About = "",
        *,
        lands: bool = False,
        times: int | None = None,
    ) -> Fault:
        """Fail such operations. With `lands` they happen, and only their answers are lost."""

        def effect(attempt: Attempt[Any]) -> Any:
            if lands:
                attempt.land()
            raise deepcopy(error)  # whoever catches one may note on it what came of his request

        return self.add(operation, effect, about, times=times)

    def perform(self, operation: str, about: Any, land: Callable[[], T]) -> T:
        """Carry out an operation, or let it meet what stands in its way."""
        for fault in self._faults:
            if fault.concerns(operation, about):
                land = partial(fault.perform, about, land)
        return land()

    def end(self) -> None:
        """End all faults there are."""
        for fault in self._faults:
            fault.end()

    def __bool__(self) -> bool:
        return bool(self._faults)
