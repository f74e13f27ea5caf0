"""Nodes are challenged through the coordinator: one znode is there for each pair and way, `lines/<asked>/<asker>`.

The asker writes the number of its question, who is asked writes that it has answered it, and both watch. What a
question means, and when it is due, `halog.core.election.challenges` says. This module decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from halog.core.ids import Member
from halog.core.tolerant import TolerantDecoder, TolerantStruct, carrying, encode
from halog.errors import HalogError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned

logger = logging.getLogger("halog.members")

DOWN = 0


class Challenge(TolerantStruct, frozen=True):
    """This is the znode. `asker` and `of` are runs: what is written to another run of either counts for nothing."""

    asker: int
    of: int
    asked: int = 0
    answered: int = 0
    lost: bool = False
    """Does the asker not hear the other one any more?"""
    down: bool = False
    """Who answers has no quorum in one of its zones: it lives, and serves nothing."""


class Challenger(Protocol):
    """A `Challenger` asks silent runs whether they live."""

    def met_soon(self, node: str) -> None:
        """There is such a node, which is to be heard."""

    def ask(self, other: Member, number: int, lost: bool) -> None:
        """Ask a run that is silent whether it lives, with a number; `lost`: its silence counts already."""


class NoChallenger:
    """A `NoChallenger` stands for a challenger that asks nobody."""

    def met_soon(self, node: str) -> None:
        """Nobody is met."""

    def ask(self, other: Member, number: int, lost: bool) -> None:
        """Nobody is asked."""


class Challenging:
    """`Challenging` asks and answers for one node. Whatever waits for the coordinator does so on threads of its own."""

    def __init__(
        self,
        me: Member,
        coordinator: Coordinator,
        answered: Callable[[str, int, int], None],
        is_lost: Callable[[str], None],
        offline: Callable[[], str],
    ) -> None:
        """Ask and answer for the run `me`. `answered(node, its run, number)` is told of answers, with DOWN for a number
        where that one serves nothing; `is_lost(node)`, that this node is not heard there. `offline` says why this one
        serves nothing; "": it does."""
        self._me = me
        self._coordinator = coordinator
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="halog-challenge")
        """Of its own: nothing else that waits for a server may hold up an answer."""
        self._lines: dict[str, tuple[int, Challenge | None]] = {}
        """By node: the znode that has our questions, as it was seen last, and its version."""
        self._answered = answered
        self._is_lost = is_lost
        self._offline = offline
        self._watched: set[str] = set()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            self._executor.submit(self._safely, work)
        except RuntimeError:  # it is closed
            logger.debug("no more challenges")

    def close(self) -> None:
        """Ask and answer nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def met_soon(self, node: str) -> None:
        """There is such a node. Called by the coordinator's own threads, which must not wait for it."""
        if node not in self._watched:
            self._watched.add(node)
            self._run(lambda: self._watch(node))

    def _watch(self, node: str) -> None:
        self._coordinator.watch(f"lines/{self._me.node}/{node}", lambda _, found: self._asked(node, found))
        self._coordinator.watch(f"lines/{node}/{self._me.node}", lambda _, found: self._heard(node, found))

    def ask(self, other: Member, number: int, lost: bool) -> None:
        """Ask this run whether it lives."""
        self._run(lambda: self._ask(other, number, lost=lost))

    def _ask(self, other: Member, number: int, *, lost: bool) -> None:
        path = f"lines/{other.node}/{self._me.node}"
        question = Challenge(self._me.incarnation, other.incarnation, number, 0, lost)
        if (seen := self._lines.get(other.node)) is not None:
            version, line = seen
            now = carrying(question, line)
            try:
                self._lines[other.node] = self._coordinator.set(path, encode(now), version), now
                return
            except VersionError:
                logger.debug("%s was written meanwhile", path)
        found = self._coordinator.get(path)
        if found is None:
            self._coordinator.create(path, encode(question))
        else:
            self._coordinator.set(path, encode(carrying(question, _line(found))), found.version)

    def _asked(self, node: str, found: Versioned | None) -> None:
        line = _line(found)
        if line is None or found is None or line.of != self._me.incarnation:
            return
        if line.lost:
            self._run(lambda: self._is_lost(node))
        if line.answered != line.asked:
            down = bool(self._offline())
            answer = encode(msgspec.structs.replace(line, answered=line.asked, down=down))
            path, version = f"lines/{self._me.node}/{node}", found.version
            self._run(lambda: self._coordinator.set(path, answer, version))

    def _heard(self, node: str, found: Versioned | None) -> None:
        line = _line(found)
        if found is not None:
            self._lines[node] = found.version, line
        if line is not None and line.asker == self._me.incarnation and line.answered == line.asked:
            run, number = line.of, DOWN if line.down else line.answered
            self._run(lambda: self._answered(node, run, number))

    def _safely(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (HalogError, UnknownResult) as error:  # the next question is not far
            logger.debug("a challenge came to nothing: %s", error)


def _line(found: Versioned | None) -> Challenge | None:
    return _DECODER.found(None if found is None else found.data)


_DECODER = TolerantDecoder(Challenge)
