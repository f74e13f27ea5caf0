"""This module has the transactions over several partitions, as one partition's accepted history tells them (T1-T8).

A `Prepare` locks what it read and would change, until an `Outcome` of its id. The changes are made where the outcome
stands. Law: every reader gives every record the same meaning, from the records before it alone. A `Prepare` counts if
its id is above the horizon, and neither prepared nor decided. `Outcome(commit)` counts if it follows an undecided
`Prepare` of its id. `Outcome(abort)` counts if the id is not decided and above the horizon (a tombstone where nothing
was prepared). Everything else is void: it changes nothing but the position. `MapperChanged` raises the version of the
mapping that is served from there on; it never falls. This module knows no roles and no other partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from halog.core.log import records
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.outcomes import STAMP_BYTES
from halog.core.results import LockConflict


class UndecidedTransaction(msgspec.Struct, frozen=True):
    """An `UndecidedTransaction` is a transaction in doubt: its `Prepare`, and the offset of that in the log."""

    prepare: records.Prepare
    offset: int

    @property
    def tx(self) -> bytes:
        return self.prepare.header.tx


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """A `Decision` says how a transaction ended; `participants` are known where it was prepared."""

    commit: bool
    lsn: int
    offset: int
    first: str = ""
    participants: tuple[str, ...] = ()


class PreparedTransaction(msgspec.Struct, frozen=True):
    """A `PreparedTransaction` is a `Prepare` that counts: its objects are locked from here on."""

    header: records.Header
    undecided: UndecidedTransaction


class DecidedTransaction(msgspec.Struct, frozen=True):
    """A `DecidedTransaction` is an `Outcome` that counts. `commit` holds what it changes, as if it had been committed
    here; None: nothing."""

    header: records.Header
    decision: Decision
    commit: records.Commit | None


class ForgottenDecisions(msgspec.Struct, frozen=True):
    """A `ForgottenDecisions` names decisions that are remembered no more; what is at or below `horizon` has expired."""

    header: records.Header
    horizon: bytes
    ids: tuple[bytes, ...]


Applied = records.Record | PreparedTransaction | DecidedTransaction | ForgottenDecisions | AppliedMerge
"""What a record of the history means to the keeper of the objects. A plain record speaks for itself."""


class Locks(dict[bytes, dict[bytes, bool]]):
    """`Locks` maps an index key to the transactions in doubt that hold it, and says whether each would change it."""

    def take(self, prepare: records.Prepare) -> None:
        tx = prepare.header.tx
        for key, _ in prepare.reads:
            self.setdefault(key, {}).setdefault(tx, False)
        for c in prepare.changes:
            self.setdefault(c.key, {})[tx] = True

    def release(self, prepare: records.Prepare) -> None:
        tx = prepare.header.tx
        for key in {key for key, _ in prepare.reads} | {c.key for c in prepare.changes}:
            holders = self.get(key)
            if holders is not None:
                holders.pop(tx, None)
                if not holders:
                    del self[key]

    def against(self, reads: Iterable[tuple[bytes, int]], changes: Iterable[records.Change]) -> LockConflict | None:
        """Return what speaks against reading and changing these. Nobody may read what such a transaction would change,
        nor change what it rests on."""
        for key, _ in reads:
            if (holder := self.writer(key)) is not None:
                return LockConflict(key, holder)
        for c in changes:
            if holders := self.get(c.key):
                return LockConflict(c.key, next(iter(holders)))
        return None

    def writer(self, key: bytes) -> bytes | None:
        """Return a transaction that would change the object, if there is one."""
        return next(iter(self.writers(key)), None)

    def writers(self, key: bytes) -> list[bytes]:
        """Return all transactions that would change the object."""
        return [tx for tx, writes in list(self.get(key, _NONE).items()) if writes]


_NONE: dict[bytes, bool] = {}


class Ledger:
    """A `Ledger` keeps the transactions over several partitions that one copy knows."""

    __slots__ = ("awaited", "decided", "horizon", "locks", "mapping", "undecided")

    def __init__(
        self,
        undecided: Sequence[UndecidedTransaction] = (),
        decided: Iterable[tuple[bytes, Decision]] = (),
        horizon: bytes = b"",
        mapping: int = 0,
    ) -> None:
        self.undecided = {u.tx: u for u in undecided}
        self.decided = dict(decided)
        self.horizon = horizon
        """The stamp up to which everything is settled and forgotten; b"": none."""
        self.mapping = mapping
        """The version of the mapping that is served here. A request that was routed by an older one is refused (T8)."""
        self.locks = Locks()
        for u in undecided:
            self.locks.take(u.prepare)
        self.awaited: dict[bytes, Any] = {}
        """The same as in `Outcomes`. A transaction that is voted on or committed here is taken out."""

    def older(self, version: int) -> int:
        """Count the transactions in doubt that were routed by a mapping before `version`: they may still change what it
        has passed."""
        return sum(u.prepare.mapper_version < version for u in self.undecided.values())

    def expired(self, tx: bytes) -> bool:
        """Say whether the id is at or below the horizon."""
        return tx[:STAMP_BYTES] <= self.horizon

    def voted(self, tx: bytes) -> bool:
        """Say whether a vote on it counts here, or may have counted. An abort without a vote says nothing about
        that."""
        d = self.decided.get(tx)
        return tx in self.undecided or self.expired(tx) or (d is not None and (d.commit or bool(d.participants)))

    def accepted(self, record: records.Record, offset: int) -> Applied:
        """Return what the next record of the history means. Commits need not be passed in."""
        if type(record) is records.Prepare:
            return self._prepared(record, offset)
        if type(record) is records.Outcome:
            return self._decided(record, offset)
        if type(record) is records.Horizon:
            return self._forgotten(record)
        if type(record) is records.MapperChanged:
            self.mapping = max(self.mapping, record.mapper_version)
        return record

    def _prepared(self, record: records.Prepare, offset: int) -> Applied:
        tx = record.header.tx
        if self.expired(tx) or tx in self.decided or tx in self.undecided:
            return record
        undecided = self.undecided[tx] = UndecidedTransaction(record, offset)
        self.locks.take(record)
        self.awaited.pop(tx, None)
        return PreparedTransaction(record.header, undecided)

    def _decided(self, record: records.Outcome, offset: int) -> Applied:
        header = record.header
        tx = header.tx
        if self.expired(tx) or tx in self.decided or (record.commit and tx not in self.undecided):
            return record
        undecided = self.undecided.pop(tx, None)
        decision, commit = Decision(record.commit, header.lsn, offset), None
        if undecided is not None:
            prepare = undecided.prepare
            self.locks.release(prepare)
            decision = Decision(record.commit, header.lsn, offset, prepare.first, prepare.participants)
            commit = records.Commit(header, prepare.changes) if record.commit else None
        self.decided[tx] = decision
        return DecidedTransaction(header, decision, commit)

    def _forgotten(self, record: records.Horizon) -> Applied:
        self.horizon = max(self.horizon, record.stamp.to_bytes(STAMP_BYTES, "big"))
        ids = tuple(tx for tx in self.decided if self.expired(tx))
        for tx in ids:
            del self.decided[tx]
        return ForgottenDecisions(record.header, self.horizon, ids)

    def merged(self, m: AppliedMerge, offset: int) -> AppliedMerge:
        """Take a merge of branches: everything that any branch had in doubt is decided, and every reader knows the
        same."""
        gone = tuple({*self.undecided, *self.decided})
        self.undecided.clear()
        self.locks.clear()
        self.horizon = m.horizon.to_bytes(STAMP_BYTES, "big") if m.horizon else b""
        self.mapping = m.mapper_version
        self.decided = {tx: Decision(commit, m.header.lsn, offset) for tx, commit in m.decided}
        for tx, commit in m.decided:
            if commit:
                self.awaited.pop(tx, None)
        return msgspec.structs.replace(m, offset=offset, forgotten=tuple(tx for tx in gone if tx not in self.decided))
