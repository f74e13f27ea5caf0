"""Clients that work while faults happen, and write down every invocation and completion.

Each thread does small transactions in every partition in turn: swaps and reads of registers, sums of counters (by a
method on the active node), reads and appends of lists. A read that must be linearizable writes its client's ticket, so
that it is checked at the commit (protocol R5: read-write transactions are validated in every mode); plain reads are
recorded as not strict. Nothing is repeated here: an outcome is what one commit was told.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import halog
from halog.errors import HalogError
from halog.runtime.node.open import RunningNode
from halog.transactions.node import Node as Verbs
from tests.faults.history import Outcome
from tests.faults.leaks import Footprint, footprints
from tests.faults.recorder import Event, Pair, Recorder, Step, pairs, parsed
from tests.faults.things import Counter, Listing, Register, Ticket
from tests.faults.verdict import ENOUGH
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import Process, wait

BLOCK_S = 3.0
"""After this long clients take new keys, so that no key has more operations than the checkers can judge."""
PAUSE_S = 0.006
OUTCOMES = {True: Outcome.OK, False: Outcome.FAILED, None: Outcome.UNKNOWN}


def partition_of(node: Verbs, group: str) -> str:
    return node.space.route(Register, (group, "")).partition


def groups(node: Verbs, prefix: str) -> dict[str, str]:
    """One group of objects in every partition, by partition."""
    found: dict[str, str] = {}
    n = 0
    while len(found) < len(node.backend.partitions_of("Register")):
        found.setdefault(partition_of(node, f"{prefix}{n}"), f"{prefix}{n}")
        n += 1
    return found


# --- one transaction ---


def perform(node: Verbs, step: Step, process: str) -> tuple[int, ...]:
    """Do one step in the current transaction; what it told."""
    return _VERBS[step.kind](node, step, process)


def _register(node: Verbs, step: Step, process: str) -> tuple[int, ...]:
    found = node.find(Register, step.group, step.name)
    before = 0 if found is None else found.value
    if step.kind == "read":
        _stamp(node, step.group, process)
    elif found is None:
        node.create(Register(group=step.group, name=step.name, value=step.argument))
    else:
        found.value = step.argument
    return () if step.kind == "write" else (before,)


def _counter(node: Verbs, step: Step, process: str) -> tuple[int, ...]:
    found = node.find(Counter, step.group, step.name)
    if step.kind == "see":
        _stamp(node, step.group, process)
    if step.kind != "add":
        return (0 if found is None else found.value,)
    found = found or node.create(Counter(group=step.group, name=step.name))
    return (found.add(step.argument),)


def _append(node: Verbs, step: Step, process: str) -> tuple[int, ...]:
    found = node.find(Listing, step.group, step.name)
    if found is None:
        node.create(Listing(group=step.group, name=step.name, values=[step.argument]))
    else:
        found.values.append(step.argument)
    return ()


def _list(node: Verbs, step: Step, process: str) -> tuple[int, ...]:
    found = node.find(Listing, step.group, step.name)
    return () if found is None else tuple(found.values)


def _stamp(node: Verbs, group: str, process: str) -> None:
    ticket = node.find(Ticket, group, process) or node.create(Ticket(group=group, name=process))
    ticket.number += 1


_VERBS: dict[str, Callable[[Verbs, Step, str], tuple[int, ...]]] = {
    "write": _register,
    "swap": _register,
    "read": _register,
    "add": _counter,
    "see": _counter,
    "look": _counter,
    "append": _append,
    "list": _list,
}


def transact(recorder: Recorder, node: Verbs, process: str, steps: Sequence[Step], *, strict: bool = True) -> Outcome:
    """Run the steps as one transaction, once, and write down what its caller was told."""
    began = recorder.began(process, partition_of(node, steps[0].group), tuple(steps), strict=strict)
    tx = node.transaction()
    try:
        with tx:
            results = tuple(perform(node, step, process) for step in steps)
            if strict and all(s.kind in ("list", "look") for s in steps):
                _stamp(node, steps[0].group, process)
    except HalogError as error:
        outcome = OUTCOMES[error.happened]
        recorder.ended(began, outcome, tx=_hex(tx.id), error=f"{type(error).__name__}: {error}")
        return outcome
    recorder.ended(began, Outcome.OK, results=results, tx=_hex(tx.id), lsn=tx.lsn or 0)
    return Outcome.OK


def _hex(id_: bytes | None) -> str:
    return "" if id_ is None else id_.hex()


# --- many ---


class History:
    """What clients of one test have done; the common part of those here and those in a process of their own."""

    name: str
    partitions: Sequence[str]
    before: Mapping[int, Footprint] = MappingProxyType({})
    """What nodes' processes held when it began."""

    def events(self) -> list[Event]:
        raise NotImplementedError

    def pairs(self) -> list[Pair]:
        return pairs(self.events())

    def told(self, outcome: Outcome) -> list[Pair]:
        """Completed transactions with this outcome."""
        return [p for p in self.pairs() if p.ended is not None and p.ended.outcome is outcome]

    def flows(self, limit_s: float, partitions: Sequence[str] | None = None) -> float:
        """Until every partition has acknowledged two transactions that began after now; how long that took."""
        since, wanted = time.monotonic(), set(partitions or self.partitions)
        wait(lambda: wanted <= self._served(since), lambda: self._stuck(since, wanted), limit_s)
        return time.monotonic() - since

    def _served(self, since: float) -> set[str]:
        ok = [p.began.partition for p in self.told(Outcome.OK) if p.began.invoked >= since]
        return {p for p in ok if ok.count(p) > 1}

    def _stuck(self, since: float, wanted: set[str]) -> str:
        open_ = [f"{p.began.process} in {p.began.partition}" for p in self.pairs() if p.ended is None]
        failed = [p.ended.error for p in self.pairs() if p.ended is not None and p.ended.error]
        return f"{self.name}: {sorted(wanted - self._served(since))} serve; waiting: {open_}; errors: {failed[-3:]}"


class Clients(History):
    """Threads of this process, in all partitions or `only` some. `seat` tells groups on the same objects apart."""

    module = __name__
    """To be run as a process of its own."""

    def __init__(
        self,
        node: Verbs,
        prefix: str,
        *,
        threads: int = 3,
        seat: int = 0,
        only: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.node = node
        self.name = f"{prefix}-"
        self.seat = seat
        self.groups = {p: g for p, g in groups(node, self.name).items() if not only or p in only}
        self.partitions = list(self.groups)
        self.recorder = Recorder(tell)
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]

    def events(self) -> list[Event]:
        return self.recorder.events()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        self.start()
        self.flows(90)
        if isinstance(self.node, RunningNode):
            self.before = footprints(self.node)
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            wait(lambda: len(self.told(Outcome.OK)) >= ENOUGH, "enough happened to prove something")
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a caller never got an answer"

    def _run(self, number: int) -> None:
        process = f"{self.name}{self.seat}{number}"
        rng = random.Random(process)
        places = list(self.groups.values())
        turn = 0
        try:
            while not self._stop.wait(PAUSE_S * rng.random() * 2):
                turn += 1
                steps, strict = self._plan(rng, places[turn % len(places)], self._value(number, turn))
                transact(self.recorder, self.node, process, steps, strict=strict)
        except BaseException as error:
            self.errors.append(error)

    def _value(self, number: int, turn: int) -> int:
        """Unique among all clients; room for ten appends."""
        return ((self.seat * 100 + number + 1) * 1_000_000 + turn) * 10

    def _plan(self, rng: random.Random, group: str, value: int) -> tuple[list[Step], bool]:
        block = int(time.monotonic() // BLOCK_S)
        dice = rng.random()
        if dice < 0.35:
            kind = rng.choice(("swap", "swap", "write", "read"))
            return [Step(kind, group, f"r{block}", value)], True
        if dice < 0.6:
            kind = rng.choice(("add", "add", "see"))
            return [Step(kind, group, f"c{block}", rng.randint(1, 3))], True
        lists = [f"l{block}{rng.choice('xyz')}" for _ in range(rng.randint(1, 3))]
        if dice < 0.7:
            return [Step("list", group, name) for name in dict.fromkeys(lists)], False
        return list(_read_and_append(rng, group, lists, value)), True

    def read_all(self, node: Verbs) -> None:
        """A strict read of every key, after all else: what was lost shows here."""
        keys: dict[tuple[str, str], None] = {(s.group, s.name): None for p in self.pairs() for s in p.began.steps}
        for group, name in keys:
            kind = {"r": "read", "c": "see", "l": "list"}[name[0]]
            outcome = transact(self.recorder, node, f"{self.name}end", [Step(kind, group, name)])
            assert outcome is Outcome.OK, self.told(outcome)[-1].ended


def _read_and_append(rng: random.Random, group: str, lists: list[str], value: int) -> Iterator[Step]:
    for n, name in enumerate(lists):
        yield Step("list", group, name)
        if rng.random() < 0.6 or n == 0:
            yield Step("append", group, name, value + n)


class ClientProcess(History):
    """The same in a process of its own, to be killed and stopped. It works on the objects of `beside`."""

    def __init__(self, cluster: Cluster, beside: Clients, *, seat: int = 1, toml: Any = None) -> None:
        prefix = beside.name.removesuffix("-")
        self.name = f"{beside.name}{seat}"
        self.partitions = beside.partitions
        argv = [beside.module, str(toml or cluster.toml), prefix, str(seat)]
        with cluster.inside():
            self.process = Process(f"client-{prefix}-{seat}", cluster.directory, argv)
        cluster.helpers.append(self.process)
        self.flows(90)

    def events(self) -> list[Event]:
        return parsed(self.process.lines())


def main(config: str, prefix: str, seat: int, kind: type[Clients] = Clients) -> None:
    """Entry point of a client process: works until it is killed."""
    node: RunningNode = halog.node(config)

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    clients = kind(node, prefix, seat=seat, tell=tell)
    clients.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
