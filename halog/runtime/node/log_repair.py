"""Puts into a partition's log what only stores of nodes hold: a tool's work, while no node runs (E4, E5, decision 45).

As a node that was elected does: `EpochStarted` is appended and read, then the tail, then `EpochOpened`, each read back
accepted before the next. Whoever writes at the same time is found out by that, and nothing counts then of what this one
had not read. Repeating it after a death goes on behind what the log has by then.
"""

from __future__ import annotations

import time
from typing import Final

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState
from halog.core.state.tail import Tail
from halog.errors import DeadlineError, LogError, RefusedError
from halog.ports import Log, TopicPartition
from halog.runtime.node.log_history import entries

ANSWER_S: Final = 60.0
"""For the log's acknowledgement of what was given to it."""


class LogAppender:
    """`LogAppender` writes to one partition's log. `state` is its history up to `offset`."""

    def __init__(self, log: Log, tp: TopicPartition, state: ChainState, offset: int) -> None:
        self._log = log
        self._tp = tp
        self._chain = Chain(state)
        self._offset = offset

    def append(self, tail: Tail, epoch: EpochId) -> ChainState:
        """Bring what the log lacks of `tail` into it, in an epoch of its own that ends with that; the history then."""
        s = self._chain.state
        self._give([records.encode(records.EpochStarted(records.Header(s.log_id, epoch), s.epoch, s.lsn))], tail)
        s = self._chain.state
        if s.epoch != epoch:
            raise self._somebody()
        if not tail.joins(s):
            raise LogError(f"the log of {self._tp.topic}/{self._tp.partition} ends at lsn {s.lsn} by now")
        self._give(tail.again(s, epoch), tail)
        s = self._chain.state
        if tail.run or s.epoch != epoch or s.void:
            raise self._somebody()
        header = records.Header(s.log_id, epoch, s.lsn + 1, s.hash)
        self._give([records.encode(records.EpochOpened(header, s.lineage[-1:]))], tail)
        if not self._chain.state.opened or self._chain.state.epoch != epoch:
            raise self._somebody()
        return self._chain.state

    def _somebody(self) -> RefusedError:
        where = f"{self._tp.topic} partition {self._tp.partition}"
        return RefusedError(f"somebody else writes to {where}: stop all nodes, and repeat this", partition=where)

    def _give(self, datas: list[bytes], tail: Tail) -> None:
        """Append these, and read up to the last of them."""
        if not datas:
            return
        last = self._appended(datas)
        for entry in entries(self._log, self._tp, self._offset, last + 1):
            record = records.read(entry)
            before = self._chain.state.lsn
            self._chain.read(record, digest(entry.value))
            if self._chain.state.lsn > before and isinstance(record, records.Commit):
                tail.accepted(record)
        self._offset = last + 1

    def _appended(self, datas: list[bytes]) -> int:
        """Append these, and return the offset of the last."""
        done: list[tuple[int | None, str | None]] = []
        session = self._log.session()
        try:
            for data in datas:
                session.append(self._tp, data, lambda offset, why: done.append((offset, why)))
            until = time.monotonic() + ANSWER_S
            while len(done) < len(datas):
                session.poll(0.05)
                if time.monotonic() > until:
                    raise DeadlineError(f"the log takes nothing in {self._tp.topic}/{self._tp.partition}")
        finally:
            session.abandon()
        failed = next((why for offset, why in done if offset is None), None)
        if failed is not None:
            raise LogError(f"{self._tp.topic}/{self._tp.partition} does not take what stores hold: {failed}")
        last = done[-1][0]
        assert last is not None
        return last
