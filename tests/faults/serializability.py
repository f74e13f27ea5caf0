"""Is there one order of all transactions that explains what each read, and respects real time where it is promised?

List-append histories (as Elle's): every appended value is unique, so a list read tells who wrote its every element and
in which order. What one history alone shows is told first (elements that failed, were half-done, came twice); then the
transactions become a graph, and a cycle in it is an anomaly, named by its edges:

  ww  wrote the element after the other's        wr  read a list that ends with the other's element
  rw  read a list to which the other appended    rt  began after the other had returned

G0 = ww alone, G1c = with wr, G-single = exactly one rw, G2 = several; "-realtime" where an rt edge is needed for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.faults.history import Append, Outcome, ReadList, Transaction

Graph = Mapping[str, Mapping[int, set[int]]]
"""Edges by kind, from transaction to transactions."""

LEVELS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("G0", ("ww",), ("ww",)),
    ("G1c", ("wr",), ("ww", "wr")),
    ("G-single", ("rw",), ("ww", "wr")),
    ("G2", ("rw",), ("ww", "wr", "rw")),
)
"""(anomaly, the cycle's first edge, its other edges), from the worst down."""


class Anomaly(NamedTuple):
    """What no serial order explains."""

    kind: str
    what: str


def check(history: Sequence[Transaction]) -> list[Anomaly]:
    """Every anomaly of these transactions; a cycle is told once, by its worst name."""
    return _Judge(history).run()


class _Judge:
    def __init__(self, history: Sequence[Transaction]) -> None:
        self.history = history
        self.writer: dict[tuple[str, int], int] = {}
        self.last: dict[tuple[int, str], int] = {}
        """(transaction, key) → the last value it appended there: the only one others may see a list end with."""
        for n, tx in enumerate(history):
            for step in _appends(tx):
                assert (step.key, step.value) not in self.writer, f"{step} is not unique: the history proves nothing"
                self.writer[step.key, step.value] = n
                self.last[n, step.key] = step.value
        self.order = self._longest_lists()
        self.found: list[Anomaly] = []

    def run(self) -> list[Anomaly]:
        for n, tx in enumerate(self.history):
            if tx.outcome is Outcome.OK:
                self._within(n, tx)
        self._lost()
        if not self.found:  # a graph of lists that contradict each other says nothing
            self.found.extend(_cycles(self._graph(), len(self.history)))
        return self.found

    def _longest_lists(self) -> dict[str, tuple[int, ...]]:
        longest: dict[str, tuple[int, ...]] = {}
        for tx in self.history:
            for read in _reads(tx):
                if len(read.values) > len(longest.get(read.key, ())):
                    longest[read.key] = read.values
        return longest

    def _tell(self, kind: str, n: int, what: object) -> None:
        self.found.append(Anomaly(kind, f"{self.history[n].process}'s transaction {n}: {what}"))

    # --- what a read shows by itself ---

    def _within(self, n: int, tx: Transaction) -> None:
        own: dict[str, list[int]] = defaultdict(list)
        seen: dict[str, tuple[int, ...]] = {}
        for step in tx.steps:
            if isinstance(step, Append):
                own[step.key].append(step.value)
                continue
            self._read(n, step, len(own[step.key]))
            mine = tuple(own[step.key])
            if mine and step.values[-len(mine) :] != mine:
                self._tell("internal", n, f"does not read its own {mine} in {step}")
            before = step.values[: len(step.values) - len(mine)]
            if seen.setdefault(step.key, before) != before:
                self._tell("internal", n, f"read {seen[step.key]} and then {step}")

    def _read(self, n: int, read: ReadList, mine: int) -> None:
        if len(set(read.values)) < len(read.values):
            self._tell("duplicated element", n, read)
        for value in read.values:
            w = self.writer.get((read.key, value))
            if w is None:
                self._tell("garbage", n, f"nobody ever appended {value} of {read}")
            elif self.history[w].outcome is Outcome.FAILED:
                self._tell("G1a", n, f"a dirty read: {value} of {read} is of transaction {w}, which failed")
        others = read.values[: len(read.values) - mine]
        if others and (w := self.writer.get((read.key, others[-1]))) not in (None, n):
            assert w is not None
            if self.last[w, read.key] != others[-1]:
                self._tell("G1b", n, f"{read} ends in the middle of transaction {w}")
        order = self.order.get(read.key, ())
        if order[: len(read.values)] != read.values:
            self._tell("incompatible order", n, f"{read} is no beginning of {order}")

    def _lost(self) -> None:
        """A later transaction read the list without an element its writer had been told is there; or two that
        happened read the same list and both appended to it."""
        rivals: dict[tuple[str, tuple[int, ...]], int] = {}
        for n, tx in enumerate(self.history):
            if tx.outcome is not Outcome.OK:
                continue
            for key, values in _read_before_append(tx):
                first = rivals.setdefault((key, values), n)
                if first != n:
                    self._tell("lost update", n, f"it and transaction {first} both appended to {key} {values}")
        last = dict(self._final())
        for (key, value), n in self.writer.items():
            if self.history[n].outcome is Outcome.OK and key in last and value not in last[key]:
                self._tell("lost write", n, f"{value} of {key} was acknowledged; at the end the list is {last[key]}")

    def _final(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Lists as read after every transaction that appended to them and happened had returned."""
        returned: dict[str, float] = defaultdict(float)
        for tx in self.history:
            for step in _appends(tx):
                if tx.outcome is Outcome.OK:
                    returned[step.key] = max(returned[step.key], tx.returned)
        for tx in self.history:
            if tx.strict:
                for read in _reads(tx):
                    if tx.invoked > returned[read.key]:
                        yield read.key, read.values

    # --- the graph ---

    def _happened(self) -> set[int]:
        """Acknowledged, or unknown and seen by somebody."""
        seen = {self.writer[key, v] for key, values in self.order.items() for v in values}
        return seen | {n for n, tx in enumerate(self.history) if tx.outcome is Outcome.OK}

    def _graph(self) -> Graph:
        edges: dict[str, dict[int, set[int]]] = {k: defaultdict(set) for k in ("ww", "wr", "rw", "rt")}
        happened = self._happened()
        for key, values in self.order.items():
            for a, b in pairwise(values):
                self._edge(edges["ww"], self.writer[key, a], self.writer[key, b])
        for n in happened:
            for read in _reads(self.history[n]):
                self._edges_of(edges, n, read)
        for a, b in _real_time(self.history, happened):
            self._edge(edges["rt"], a, b)
        return edges

    def _edges_of(self, edges: Mapping[str, dict[int, set[int]]], n: int, read: ReadList) -> None:
        others = [w for v in read.values if (w := self.writer[read.key, v]) != n]
        if others:
            self._edge(edges["wr"], others[-1], n)
        order = self.order.get(read.key, ())
        unread = order[len(read.values) : len(read.values) + 1]
        nexts = [self.writer[read.key, v] for v in unread] or self._unseen(read.key)
        for b in nexts:
            self._edge(edges["rw"], n, b)

    def _unseen(self, key: str) -> list[int]:
        """Transactions that happened and whose element no list shows: they come after every list that was read."""
        shown = set(self.order.get(key, ()))
        ok = ((v, n) for (k, v), n in self.writer.items() if k == key and self.history[n].outcome is Outcome.OK)
        return [n for v, n in ok if v not in shown]

    def _edge(self, edges: dict[int, set[int]], a: int, b: int) -> None:
        if a != b:
            edges[a].add(b)


def _appends(tx: Transaction) -> Iterator[Append]:
    return (s for s in tx.steps if isinstance(s, Append))


def _reads(tx: Transaction) -> Iterator[ReadList]:
    """What counts as read: only a caller who got an answer knows."""
    return (s for s in tx.steps if isinstance(s, ReadList) and tx.outcome is Outcome.OK)


def _read_before_append(tx: Transaction) -> Iterator[tuple[str, tuple[int, ...]]]:
    read: dict[str, tuple[int, ...]] = {}
    for step in tx.steps:
        if isinstance(step, ReadList):
            read.setdefault(step.key, step.values)
        elif step.key in read:
            yield step.key, read.pop(step.key)


def _real_time(history: Sequence[Transaction], happened: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Pairs of which the first had returned before the second began; those that follow from others are left out."""
    strict = sorted((n for n in happened if history[n].strict), key=lambda n: history[n].invoked)
    for at, a in enumerate(strict):
        if history[a].outcome is not Outcome.OK:
            continue
        horizon = float("inf")
        for b in strict[at + 1 :]:
            if history[b].invoked > horizon:
                break
            if history[b].invoked > history[a].returned:
                if history[b].outcome is Outcome.OK:
                    horizon = min(horizon, history[b].returned)
                yield a, b


# --- cycles ---


def _cycles(graph: Graph, size: int) -> Iterator[Anomaly]:
    """With real time the same cycles would only be told again, so it is looked at where there are none without."""
    for suffix, more in (("", ()), ("-realtime", ("rt",))):
        told: list[frozenset[int]] = []
        for kind, first, rest in LEVELS:
            for cycle in _shortest(_union(graph, first, size), _union(graph, (*rest, *more), size)):
                if not any(t <= frozenset(cycle) for t in told):
                    told.append(frozenset(cycle))
                    yield Anomaly(kind + suffix, _path(graph, cycle))
        if told:
            return


def _union(graph: Graph, kinds: Iterable[str], size: int) -> list[set[int]]:
    return [set().union(*(graph[k].get(n, ()) for k in kinds)) for n in range(size)]


def _shortest(first: Sequence[set[int]], rest: Sequence[set[int]]) -> Iterator[list[int]]:
    """For each strongly connected part that has one, a cycle of one `first` edge and the fewest of `rest`."""
    for part in _connected([f | r for f, r in zip(first, rest, strict=True)]):
        for a in sorted(part):
            if way := _way(rest, first[a] & part, a, part):
                yield [a, *way]
                break


def _way(edges: Sequence[set[int]], starts: set[int], goal: int, part: set[int]) -> list[int]:
    """From one of `starts` to `goal`, within the part; [] if there is none."""
    came: dict[int, int | None] = dict.fromkeys(starts)
    queue = deque(sorted(starts))
    while queue:
        n = queue.popleft()
        if n == goal:
            way = [n]
            while (before := came[way[0]]) is not None:
                way.insert(0, before)
            return way
        for b in sorted(edges[n] & part - came.keys()):
            came[b] = n
            queue.append(b)
    return []


def _connected(edges: Sequence[set[int]]) -> Iterator[set[int]]:
    """Strongly connected parts of two and more (Kosaraju's: finish order, then the reverse graph)."""
    back: list[set[int]] = [set() for _ in edges]
    for a, targets in enumerate(edges):
        for b in targets:
            back[b].add(a)
    order: list[int] = []
    seen: set[int] = set()
    for root in range(len(edges)):
        _walk(edges, root, seen, order)
    seen.clear()
    for root in reversed(order):
        part: list[int] = []
        _walk(back, root, seen, part)
        if len(part) > 1:
            yield set(part)


def _walk(edges: Sequence[set[int]], root: int, seen: set[int], out: list[int]) -> None:
    """Depth first, without recursion; a node is put out when all behind it are."""
    if root in seen:
        return
    seen.add(root)
    stack = [(root, iter(edges[root]))]
    while stack:
        node, rest = stack[-1]
        for b in rest:
            if b not in seen:
                seen.add(b)
                stack.append((b, iter(edges[b])))
                break
        else:
            out.append(node)
            stack.pop()


def _path(graph: Graph, cycle: Sequence[int]) -> str:
    steps = []
    for a, b in pairwise(cycle):
        kinds = [k for k in ("ww", "wr", "rw", "rt") if b in graph[k].get(a, ())]
        steps.append(f"{a} -{'/'.join(kinds)}→ ")
    return "".join(steps) + str(cycle[-1])
