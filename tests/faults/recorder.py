"""What clients did, event by event, and the histories the checkers judge.

An invocation is written down before it is made and its completion after it is known, so that a client killed in
between leaves an operation of unknown outcome. Events travel as lines of JSON between processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from tests.faults.history import FOREVER, Append, Operation, Outcome, ReadList, Transaction


class Step(msgspec.Struct, frozen=True):
    """`write`, `swap`, `read` of a register, `add` to, `see` and (nothing is written beside it) `look` of a counter,
    `append` to and `list` of a list."""

    kind: str
    group: str
    name: str
    argument: int = 0

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A transaction is about to be made."""

    number: int
    process: str
    partition: str
    steps: tuple[Step, ...]
    invoked: float
    strict: bool = True


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Its caller was told. `results` has one list per step; `tx` and `lsn` say where it is in the log, if it changed
    something."""

    number: int
    process: str
    returned: float
    outcome: Outcome
    results: tuple[tuple[int, ...], ...] = ()
    tx: str = ""
    lsn: int = 0
    error: str = ""


Event = Began | Ended
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


class Recorder:
    """Events of this process's clients, in order. `tell` gets each as a line too."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._tell = tell

    def began(self, process: str, partition: str, steps: tuple[Step, ...], *, strict: bool = True) -> Began:
        with self._lock:
            event = Began(len(self._events), process, partition, steps, time.monotonic(), strict)
            self._add(event)
        return event

    def ended(self, began: Began, outcome: Outcome, **told: Any) -> None:
        with self._lock:
            self._add(Ended(began.number, began.process, time.monotonic(), outcome, **told))

    def _add(self, event: Event) -> None:
        self._events.append(event)
        if self._tell is not None:
            self._tell(msgspec.json.encode(event).decode())

    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)


def parsed(lines: Iterable[str]) -> list[Event]:
    """The events another process has told."""
    return [_DECODER.decode(line) for line in lines if line.startswith("{")]


class Pair(msgspec.Struct, frozen=True):
    """A transaction with what became of it; `ended` is None while nobody knows."""

    began: Began
    ended: Ended | None

    @property
    def outcome(self) -> Outcome:
        return Outcome.UNKNOWN if self.ended is None else self.ended.outcome

    @property
    def returned(self) -> float:
        return FOREVER if self.ended is None or self.outcome is Outcome.UNKNOWN else self.ended.returned


def pairs(events: Iterable[Event]) -> list[Pair]:
    """Invocations with their completions."""
    begun: dict[tuple[str, int], Began] = {}
    done: dict[tuple[str, int], Ended] = {}
    for event in events:
        found: Any = begun if isinstance(event, Began) else done
        found[event.process, event.number] = event
    return [Pair(began, done.get(at)) for at, began in begun.items()]


def operations(found: Iterable[Pair], kinds: frozenset[str]) -> Iterator[Operation]:
    """Those of one step of these kinds."""
    for p in found:
        (step, *rest) = p.began.steps
        if rest or step.kind not in kinds:
            continue
        told = p.ended.results[0] if p.ended is not None and p.outcome is Outcome.OK else ()
        kind = "read" if step.kind == "see" else step.kind
        result = told[0] if told else None
        yield Operation(p.began.process, step.key, kind, step.argument, result, p.began.invoked, p.returned, p.outcome)


def transactions(found: Iterable[Pair]) -> Iterator[Transaction]:
    """Those that append to lists and read them."""
    for p in found:
        if p.began.steps[0].kind in ("append", "list"):
            results = p.ended.results if p.ended is not None and p.outcome is Outcome.OK else ()
            steps = tuple(_list_steps(p.began.steps, results))
            yield Transaction(p.began.process, steps, p.began.invoked, p.returned, p.outcome, p.began.strict)


def _list_steps(steps: tuple[Step, ...], results: tuple[tuple[int, ...], ...]) -> Iterator[Append | ReadList]:
    for at, step in enumerate(steps):
        if step.kind == "append":
            yield Append(step.key, step.argument)
        elif results:
            yield ReadList(step.key, results[at])
