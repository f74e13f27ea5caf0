"""This module lets two nodes that live and do not hear each other settle transactions, through the coordinator: one
znode is there for each pair and way, `decisions/<asked>/<asker>`.

A line may be cut for long, and the nodes at its ends stay active (`halog.core.election.challenges`). Transactions over
partitions of both would be in doubt for as long, and hold their objects. So what one of them has to tell or to ask the
other about a decision goes this way: a batch of questions at a time, which the other one answers in the same znode. A
question says what a `Decide` says, and may be lost, or come twice, as that may; the core asks again. This module
decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import msgspec

from halog.core.ids import Member
from halog.core.tolerant import TolerantDecoder, TolerantStruct, carrying, encode
from halog.errors import HalogError
from halog.ports import Coordinator, UnknownResult, Versioned
from halog.runtime.rpc import frames

logger = logging.getLogger("halog.members")

MOST: Final = 64
"""So many questions are in a batch: some 20 kB."""

ANSWERING: Final = 8
"""So many are answered at once: each takes the time of a record in the log."""

WITHIN_S: Final = 2.0
"""A batch that is not answered within this time is lost."""


class DecisionQuestion(TolerantStruct, frozen=True):
    """A `DecisionQuestion` says what a `Decide` says, with the transaction's id as hex."""

    partition: str
    tx: str
    commit: bool
    decides: bool
    participants: tuple[str, ...] = ()


class DecisionBatch(TolerantStruct, frozen=True):
    """A `DecisionBatch` is the znode. `asker` and `of` are runs. What is of another run counts for nothing."""

    asker: int
    of: int
    number: int
    questions: tuple[DecisionQuestion, ...] = ()
    answered: int = 0
    """The number of the batch whose answers these are."""
    answers: tuple[str, ...] = ()
    """How each transaction stands; "": the node that was asked does not serve the partition, or does not know yet."""


class _Line:
    """Holds the questions to one run of another node."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.number = 0
        self.waiting = deque[tuple[frames.Decide, Future[str]]]()
        self.under_way: list[Future[str]] = []
        self.until = 0.0


class DecisionRelay:
    """A `DecisionRelay` asks and answers for one node."""

    def __init__(
        self,
        me: Member,
        coordinator: Coordinator,
        to: Callable[[str], Member | None],
        decide: Callable[[frames.Decide], str],
    ) -> None:
        """Ask and answer for the run `me`. `to(partition)`: the run that is active for it, if it lives and is not
        heard. `decide` answers on this node: how the transaction stands; "": this node cannot say."""
        self._me = me
        self.to = to
        self._coordinator = coordinator
        self._decide = decide
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="halog-relay")
        self._answering = ThreadPoolExecutor(ANSWERING, thread_name_prefix="halog-relayed")
        self._lines: dict[str, _Line] = {}
        self._watched: set[str] = set()
        self._taken: dict[str, tuple[int, int]] = {}
        """By asker: the run and the number of the batch that was taken last."""
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Ask and answer nothing more."""
        self._writing.shutdown(wait=False, cancel_futures=True)
        self._answering.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for line in self._lines.values():
                for answer in [*line.under_way, *(answer for _, answer in line.waiting)]:
                    answer.cancel()

    # --- the one that asks ---

    def ask(self, other: Member, r: frames.Decide, within_s: float) -> str | None:
        """Return how the transaction stands at this run of another node; None: it has not said within this time, in
        seconds, or does not know."""
        answer: Future[str] = Future()
        with self._lock:
            if self._closed:
                return None
            line = self._lines.get(other.node)
            if line is None or line.run != other.incarnation:
                line = self._lines[other.node] = _Line(other.incarnation)
            line.waiting.append((r, answer))
        self._run(lambda: self._send(other.node, line))
        try:
            return answer.result(within_s) or None
        except (TimeoutError, CancelledError):
            answer.cancel()
            return None

    def _send(self, node: str, line: _Line) -> None:
        """Write the next batch, unless one is under way. Runs on one thread."""
        if line.under_way and time.monotonic() < line.until:
            return
        with self._lock:
            batch = [(r, answer) for r, answer in line.waiting if not answer.done()]
            line.waiting = deque(batch[MOST:])
            batch = batch[:MOST]
        if not batch:
            return
        self._watch(f"decisions/{node}/{self._me.node}", lambda found: self._heard(node, found))
        line.number += 1
        line.under_way, line.until = [answer for _, answer in batch], time.monotonic() + WITHIN_S
        questions = tuple(
            DecisionQuestion(
                partition=r.partition, tx=r.tx.hex(), commit=r.commit, decides=r.decides, participants=r.participants
            )
            for r, _ in batch
        )
        self._write(
            f"decisions/{node}/{self._me.node}",
            DecisionBatch(asker=self._me.incarnation, of=line.run, number=line.number, questions=questions),
        )

    def _write(self, path: str, batch: DecisionBatch) -> None:
        found = self._coordinator.get(path)
        if found is None:
            self._coordinator.create(path, encode(batch))
        else:
            self._coordinator.set(path, encode(carrying(batch, _batch(found))), found.version)

    def _heard(self, node: str, found: Versioned | None) -> None:
        batch = _batch(found)
        if batch is not None and batch.asker == self._me.incarnation and batch.answered == batch.number:
            self._run(lambda: self._answered(node, batch))

    def _answered(self, node: str, batch: DecisionBatch) -> None:
        line = self._lines.get(node)
        if line is None or (line.run, line.number) != (batch.of, batch.number):
            return
        answers, line.under_way = line.under_way, []
        for answer, how in zip(answers, batch.answers, strict=False):
            if answer.set_running_or_notify_cancel():
                answer.set_result(how)
        self._send(node, line)

    # --- the one that is asked ---

    def lost_at(self, node: str) -> None:
        """Listen to a node that says that it does not hear this one."""
        self._run(lambda: self._watch(f"decisions/{self._me.node}/{node}", lambda found: self._asked(node, found)))

    def _asked(self, node: str, found: Versioned | None) -> None:
        batch = _batch(found)
        if batch is None or found is None or batch.of != self._me.incarnation or batch.answered == batch.number:
            return
        with self._lock:
            if self._taken.get(node) == (batch.asker, batch.number):
                return
            self._taken[node] = batch.asker, batch.number
        self._run(lambda: self._answer(node, batch, found.version))

    def _answer(self, node: str, batch: DecisionBatch, version: int) -> None:
        asked = [self._answering.submit(self._how, question) for question in batch.questions]
        left = [len(asked)]

        def one_more(_: Future[str]) -> None:
            with self._lock:
                left[0] -= 1
                last = not left[0]
            if last:
                self._run(lambda: self._tell(node, batch, version, tuple(how.result() for how in asked)))

        for how in asked:
            how.add_done_callback(one_more)

    def _tell(self, node: str, batch: DecisionBatch, version: int, answers: tuple[str, ...]) -> None:
        done = msgspec.structs.replace(batch, answered=batch.number, answers=answers)
        self._coordinator.set(f"decisions/{self._me.node}/{node}", encode(done), version)

    def _how(self, question: DecisionQuestion) -> str:
        with suppress(HalogError, ValueError):
            tx = bytes.fromhex(question.tx)
            return self._decide(
                frames.Decide(question.partition, tx, question.commit, question.decides, question.participants)
            )
        return ""

    # --- both ---

    def _watch(self, path: str, seen: Callable[[Versioned | None], None]) -> None:
        if path not in self._watched:
            self._coordinator.watch(path, lambda _, found: seen(found))
            self._watched.add(path)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            self._writing.submit(self._safely, work)
        except RuntimeError:  # it is closed
            logger.debug("no more decisions go by the coordinator")

    def _safely(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (HalogError, UnknownResult, RuntimeError) as error:  # the core asks again
            logger.debug("a batch of decisions came to nothing: %s", error)


def _batch(found: Versioned | None) -> DecisionBatch | None:
    return _DECODER.found(None if found is None else found.data)


_DECODER = TolerantDecoder(DecisionBatch)
