"""Is there an order of one key's operations that explains what every client saw, and respects real time?

Wing & Gong's search with Lowe's memory of what was tried, over a linked list of calls and returns, for each key alone:
a history is linearizable if each of its keys is. Failed operations take no part, so one that somebody saw makes the
key's history unexplainable. Unknown ones return at the end of time: the search may place them anywhere after their
call, or nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.faults.history import FOREVER, Operation, Outcome

MOST_TRIED = 500_000
"""Configurations looked at before a history is given up on; clients keep keys small, so that it never is."""

Step = Callable[[int, Operation], tuple[bool, int]]
"""(state, operation) → (may it happen in this state, the state then)."""


class Violation(NamedTuple):
    """A key whose history nothing explains."""

    key: str
    explained: int
    """How many operations the longest explanation covers."""
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        lines = "\n".join(f"  {o}" for o in self.operations)
        return f"{self.key}: {self.explained} of {len(self.operations)} operations can be explained\n{lines}"


def register(state: int, op: Operation) -> tuple[bool, int]:
    """A register: `write` sets it, `swap` sets it and tells what it was, `read` tells what it is."""
    told = op.result if op.outcome is Outcome.OK else None
    if op.kind == "write":
        return True, op.argument
    if op.kind == "swap":
        return told is None or told == state, op.argument
    return told is None or told == state, state


def counter(state: int, op: Operation) -> tuple[bool, int]:
    """A counter: `add` adds and tells the sum, `read` tells what it is."""
    after = state + op.argument if op.kind == "add" else state
    told = op.result if op.outcome is Outcome.OK else None
    return told is None or told == after, after


def check(history: Iterable[Operation], step: Step, initial: int = 0) -> list[Violation]:
    """The keys that have no explanation."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for op in history:
        if op.outcome is Outcome.OK or (op.outcome is Outcome.UNKNOWN and op.kind != "read"):
            by_key[op.key].append(op)
    found = (_Search(key, ops, step, initial).run() for key, ops in sorted(by_key.items()))
    return [v for v in found if v is not None]


class _Node:
    """A call or a return in the list of what is not yet explained."""

    __slots__ = ("after", "before", "match", "number")

    def __init__(self, number: int, match: _Node | None) -> None:
        self.number = number
        self.match = match
        """`match` is a call's return; a return has none."""
        self.before: _Node | None = None
        self.after: _Node | None = None

    def lift(self) -> None:
        """Take the call and its return out of the list."""
        for node in (self, self.match):
            assert node is not None
            assert node.before is not None
            node.before.after = node.after
            if node.after is not None:
                node.after.before = node.before

    def put_back(self) -> None:
        """The reverse of `lift`, in reverse order."""
        for node in (self.match, self):
            assert node is not None
            assert node.before is not None
            node.before.after = node
            if node.after is not None:
                node.after.before = node


class _Search:
    """One key's."""

    def __init__(self, key: str, operations: Sequence[Operation], step: Step, initial: int) -> None:
        self.key = key
        self.step = step
        self.state = initial
        self.operations = tuple(sorted(operations, key=lambda o: o.invoked))
        self.head = self._linked()
        self.done = 0
        self.tried: set[tuple[int, int]] = set()
        self.stack: list[tuple[_Node, int]] = []
        self.longest = 0

    def _linked(self) -> _Node:
        moments: list[tuple[float, int, _Node]] = []
        for number, op in enumerate(self.operations):
            back = _Node(number, None)
            moments.append((op.invoked, 0, _Node(number, back)))
            moments.append((FOREVER if op.outcome is Outcome.UNKNOWN else op.returned, 1, back))
        moments.sort(key=lambda m: m[:2])  # a call at the moment of a return may be before it: that is the weaker claim
        head = at = _Node(-1, None)
        for _, _, node in moments:
            at.after, node.before = node, at
            at = node
        return head

    def run(self) -> Violation | None:
        node = self.head.after
        while node is not None:
            if node.match is not None:
                node = self.head.after if self._place(node) else node.after
            elif self.operations[node.number].outcome is Outcome.UNKNOWN:
                return None  # every return before it is explained, and it need never have happened
            elif not self.stack:
                return Violation(self.key, self.longest, self.operations)
            else:
                node = self._undo()
        return None

    def _place(self, node: _Node) -> bool:
        """Let the operation happen now, unless that was tried."""
        may, after = self.step(self.state, self.operations[node.number])
        now = (self.done | 1 << node.number, after)
        if not may or now in self.tried:
            return False
        self.tried.add(now)
        assert len(self.tried) < MOST_TRIED, f"{self.key}: too many overlapping operations to judge"
        self.stack.append((node, self.state))
        self.longest = max(self.longest, len(self.stack))
        self.done, self.state = now
        node.lift()
        return True

    def _undo(self) -> _Node | None:
        node, self.state = self.stack.pop()
        self.done &= ~(1 << node.number)
        node.put_back()
        return node.after
