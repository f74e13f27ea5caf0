"""One node has two tails of the log: one is told of every entry at once, one is told every few ms. A third one is for
copies that are read no faster than somebody allows (`halog.runtime.host.throttle`), while they read what was there.

Copies that commits or elections may wait for follow the prompt one. An async replica follows the patient one, and so
does a sync replica while it is pushed to (decision 7): told of every entry, it would take half the CPU of the commit it
is told of, on a small machine from that very commit. `place` moves a copy when that changes, `hurry` one that stands
for election; both tails hand over contiguous runs from its next offset on, and a copy skips what it has: a move can
neither leave a hole nor apply twice. This module decides nothing.
"""

from __future__ import annotations

import threading

from halog.core.roles import Role
from halog.core.table.migration import copy_rate
from halog.ports import LogTail, TopicPartition
from halog.runtime.replica.driver import Copy


class Tails:
    """Follow and unfollow come from any thread, with the copy's lock held; one thread places."""

    def __init__(self, prompt: LogTail, patient: LogTail) -> None:
        self.prompt = prompt
        self.patient = patient
        self.slow: LogTail | None = None
        self._lock = threading.Lock()
        self._patiently: set[TopicPartition] = set()
        self._slowly: set[TopicPartition] = set()

    def follow(self, tp: TopicPartition, offset: int) -> None:
        """Deliver entries from `offset` on, promptly unless `slow_down` said otherwise."""
        with self._lock:
            if self.slow is not None and tp in self._slowly:
                self.slow.follow(tp, offset)
                return
            self._leave(tp)
            self.prompt.follow(tp, offset)

    def slow_down(self, tp: TopicPartition) -> None:
        """What is followed next of it is followed through the slow tail, which is there by now."""
        with self._lock:
            self._slowly.add(tp)

    def is_slow(self, tp: TopicPartition) -> bool:
        """Is it followed so?"""
        return tp in self._slowly

    def unfollow(self, tp: TopicPartition) -> None:
        """Deliver nothing more."""
        with self._lock:
            self._leave(tp)
            self.prompt.unfollow(tp)

    def _leave(self, tp: TopicPartition) -> None:
        if tp in self._patiently:
            self._patiently.discard(tp)
            self.patient.unfollow(tp)
        if self.slow is not None and tp in self._slowly:
            self._slowly.discard(tp)
            self.slow.unfollow(tp)

    def hurry(self, copy: Copy) -> None:
        """It stands for election: its own first records are awaited next. With the copy's lock held."""
        with self._lock:
            if copy.tp in self._patiently or copy.tp in self._slowly:
                self._leave(copy.tp)
                self.prompt.follow(copy.tp, copy.core.state.next_offset)

    def place(self, copy: Copy) -> None:
        """Have the copy told at the pace it needs now; called every tick. An election goes on as it began."""
        if copy.tp in self._slowly and (
            copy.core.state.role is not Role.LOADING or not copy_rate(copy.core.state.table, copy.core.state.me.node)
        ):
            with copy.lock:
                self.hurry(copy)
        if self._fits(copy):
            return
        with copy.lock, self._lock:
            if self._fits(copy):
                return
            at = copy.core.state.next_offset
            if copy.core.following.is_patient:
                self.prompt.unfollow(copy.tp)
                self._patiently.add(copy.tp)
                self.patient.follow(copy.tp, at)
            else:
                self._leave(copy.tp)
                self.prompt.follow(copy.tp, at)

    def _fits(self, copy: Copy) -> bool:
        core = copy.core
        return (
            copy.ended
            or core.state.role is not Role.FOLLOWING
            or core.following.is_patient is (copy.tp in self._patiently)
        )

    def close(self) -> None:
        """Close all."""
        self.prompt.close()
        self.patient.close()
        if self.slow is not None:
            self.slow.close()
