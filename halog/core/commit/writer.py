"""This module is the writer of one opened epoch. It validates, numbers and appends commits, and believes
acknowledgements only in order.

Law: an lsn is given only after size and versions were checked (W2). An acknowledgement counts only for the head of the
queue and only at the expected offset (W3); the caller turns anything else into a verification or the end of the epoch
(W4). A commit is logged first, then visible, then answered; the answer also waits for every member of the wait set.
Where the policy does not wait for the log, the wait set alone makes it visible and answered. The same holds for a
transaction that asks for that, once everything before it is in the log or answered (decision 14). This module never
decides which node is active, and never touches the coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit import size_limits as sizes
from halog.core.commit.demands import BACKED_MS, Demands
from halog.core.durability import Durability
from halog.core.ids import ABSENT, NO_TX, Member, barrier_id, digest
from halog.core.log import records
from halog.core.log.chain import Chain
from halog.core.log.outcomes import Outcomes
from halog.core.log.provisional import EARLY, as_logged
from halog.core.log.transactions import Applied, Locks
from halog.core.settings import Settings

NOBODY: Final = 0
"""The token of what no caller waits for."""

Asks = TypeVar("Asks", ev.Submitted, ev.PrepareAsked)


class InFlight(msgspec.Struct, eq=False, gc=False):  # gc: no cycles possible
    """An `InFlight` is a record that was given to the log and is not yet known to be in it."""

    tag: int
    record: records.Record
    digest: bytes
    since_ms: int
    tokens: list[int]
    size: int
    lsn: int
    tx: bytes
    answered: bool = False
    """Whether it was acknowledged before the log had it."""
    early: bool = False
    """Whether it may be acknowledged before the log has it, whatever the policy says."""
    vote: bool = False
    """Whether it is of a transaction over several partitions. Such a record, and all behind it, wait for the log."""


VoteLogged = Callable[[InFlight, int, int, list[fx.Effect]], Applied]


class Writer:
    """A `Writer` keeps the state of one epoch's writing. Methods append effects to `out`."""

    def __init__(self, chain: Chain, outcomes: Outcomes, settings: Settings, expected: int, tag: int) -> None:
        self.chain = chain
        self.outcomes = outcomes
        self.settings = settings
        self._small = sizes.harmless_bytes(settings)
        self.expected = expected
        self.tag = tag
        self.last_lsn = chain.state.lsn
        self.last_hash = chain.state.hash
        self.queue: deque[InFlight] = deque()
        self.flying = 0
        """The number of bytes of the records in `queue`."""
        self.by_tx: dict[bytes, InFlight] = {}
        self.overlay: dict[bytes, int] = {}
        self.overlay_lsn: dict[bytes, int] = {}
        self.waiting: deque[tuple[int, list[int]]] = deque()
        self.acks: dict[Member, int] = {}
        self.wait_set: frozenset[Member] = frozenset()
        self.counted: frozenset[Member] = frozenset()
        """The members whose acknowledgements count for a quorum."""
        self.quorum = 0
        """How many of them must have a commit (R7)."""
        self.early = False
        """Whether a commit is acknowledged once the members it waits for have it, in the log or not."""
        self.backed = False
        """Whether every sync set the znode may hold names a member."""
        self.demands = Demands()
        self.asked = False
        """Whether there is a demand that is not met yet."""
        self.shown = 0
        """How many records at the head of `queue` are answered and visible."""
        self.short: res.Shortage | None = None
        """What a new commit is told while too few members are there."""
        self.closed: res.Result | None = None
        """What a new commit that changes something is told: the same, or that the partition is disabled on its only
        node (P7)."""
        self.flying_votes = 0
        """How many records in `queue` are not commits of one partition."""
        self.locks = Locks()
        """What transactions over several partitions hold, from when their `Prepare` was appended."""
        self.mapping = 0
        """The mapping's version that is served, from when its `MapperChanged` was appended (T8)."""
        self.level = 1
        """The level of what this epoch appends, from when its `LevelStated` was appended (U1)."""
        self.vote_sent: Callable[[list[fx.Effect]], None] = lambda out: None
        """Called after each such record was appended."""
        self.vote_logged: VoteLogged = lambda item, offset, now, out: item.record
        """Called when the log has such a record, at `offset`; returns what the record means."""
        self.answers_early: Callable[[], None] = lambda: None
        """Called before something is answered that the log may lack."""

    # --- commits ---

    def submit(self, e: ev.Submitted, now: int, out: list[fx.Effect]) -> None:
        """Validate and append, or answer at once."""
        refusal = self._known(e) or self._closed_to(e) or self._conflict(e)
        if type(refusal) is res.VersionConflict and refusal.expected >= EARLY:
            e = self.as_read(e)
            refusal = self._conflict(e)
        if self.locks and refusal is None:
            refusal = self.locks.against(e.reads, e.changes)
        if (refusal := refusal or self.full()) is not None:
            if not isinstance(refusal, _JoinedAttempt):
                out.append(fx.Reply(e.token, refusal))
            return
        header = self.header(e.tx)
        record = records.Commit(header, tuple(e.changes))
        data = self.encoded(record, e.token, out)
        if data is None:
            return
        asked = e.durability
        patient = (self.early if asked is None else self.backed and asked.early) and self.settings.pushes
        self._append(record, data, now, [e.token], out, patience_ms=BACKED_MS if patient else 0)
        for c in e.changes:
            self.overlay[c.key] = ABSENT if c.op == records.DELETE else header.lsn
            self.overlay_lsn[c.key] = header.lsn

    def encoded(
        self, record: records.Commit | records.Prepare, token: int, out: list[fx.Effect], *, moves: bool = False
    ) -> bytes | None:
        """Return the record's bytes. None: the record is too large, or leaves an object that is, and `token` was
        answered so."""
        data, limit = records.encode(record), self.settings.max_record_bytes
        if len(data) <= self._small:
            return data
        large = None if moves else sizes.too_large(record.changes, self.settings)
        if large is None and len(data) > limit:
            limit = sizes.record_limit(record.changes, self.settings, moves=moves)
            large = res.OversizedRecord(len(data), limit) if len(data) > limit else None
        if large is not None:
            out.append(fx.Reply(token, large))
        return data if large is None else None

    def asks(self, durability: Durability) -> None:
        """Note that the commit just appended waits for less than the policy says, or for more."""
        item = self.queue[-1]
        self.asked = True
        if durability.early:
            item.early, self.demands.early = True, item.lsn
        if durability.flushed:
            self.demands.want(item.lsn, durability.flushed, *item.tokens)
            item.tokens.clear()

    def header(self, tx: bytes = NO_TX) -> records.Header:
        """Return the header of the next record."""
        state = self.chain.state
        return records.Header(state.log_id, state.epoch, self.last_lsn + 1, self.last_hash, tx)

    def refused(self, e: ev.PrepareAsked) -> res.Result | None:
        """Return why these objects cannot be locked now."""
        e = self.as_read(e)
        return self._closed_to(e) or self._conflict(e) or self.locks.against(e.reads, e.changes) or self.full()

    def _closed_to(self, e: Asks) -> res.Result | None:
        return self.closed if e.changes else self.short  # it can be read, also if the caller writes elsewhere

    def as_read(self, e: Asks) -> Asks:
        """Return the request with versions as they are now. It read what the log did not have then: versions of this
        epoch are lsns now, or in flight."""
        number = self.chain.state.epoch.number
        reads = [(key, as_logged(version, number)) for key, version in e.reads]
        changes = [msgspec.structs.replace(c, replaced=as_logged(c.replaced, number)) for c in e.changes]
        return msgspec.structs.replace(e, reads=reads, changes=changes)

    def full(self) -> res.Busy | None:
        """Return what a new commit is told while too much is in flight."""
        if len(self.queue) + len(self.waiting) >= self.settings.max_in_flight:
            return res.Busy(self.settings.max_in_flight)
        if self.flying >= self.settings.max_in_flight_bytes:
            return res.Busy(self.settings.max_in_flight_bytes, "bytes")
        return None

    def append(self, record: records.Record, now: int, out: list[fx.Effect]) -> None:
        """Append a record of the protocol's own (it continues the chain)."""
        self._append(record, records.encode(record), now, [], out)

    def append_vote(
        self, record: records.Record, data: bytes, now: int, token: int, out: list[fx.Effect], *, patience_ms: int = 0
    ) -> InFlight:
        """Append a record of a transaction over several partitions; `token` waits like that of a commit."""
        self._append(record, data, now, [], out, patience_ms=patience_ms)
        item = self.queue[-1]
        item.vote, item.tokens = True, [token] if token else []
        self.flying_votes += 1
        self.vote_sent(out)
        return item

    def append_nothing(self, now: int, out: list[fx.Effect]) -> None:
        """Append a commit that changes nothing and that nobody waits for (`halog.core.active.read_barriers`)."""
        record = records.Commit(self.header(barrier_id(self.last_lsn + 1)), ())
        self._append(record, records.encode(record), now, [NOBODY], out)
        self.queue[-1].early = True  # it changes nothing: commits that do not wait for the log do not wait for it

    def _append(
        self,
        record: records.Record,
        data: bytes,
        now: int,
        tokens: list[int],
        out: list[fx.Effect],
        *,
        patience_ms: int = 0,
    ) -> None:
        self.tag += 1
        head = record.header
        item = InFlight(self.tag, record, digest(data), now, tokens, len(data), head.lsn, head.tx)
        self.flying += item.size
        self.last_lsn = item.lsn
        self.last_hash = item.digest
        self.queue.append(item)
        if tokens:
            self.by_tx[item.tx] = item
        out.append(fx.Append(item.tag, data, patience_ms))

    def _known(self, e: ev.Submitted) -> res.Result | _JoinedAttempt | None:
        """Return what is already known of this transaction id (W6)."""
        joined = self.by_tx.get(e.tx)
        if joined is not None:
            return self._join(joined, e)
        lsn = self.outcomes.get(e.tx)
        if lsn is not None:
            replicas = self.demands.of(lsn, e.durability)
            done = lsn <= self.acknowledged()
            if done and (not replicas or self.demands.had(lsn, replicas)):
                return res.Success(lsn)
            if replicas:
                self._want(lsn, replicas, e.token)
            else:
                self.park(lsn, e.token)
            return _JOINED
        return res.ExpiredId(self.outcomes.horizon) if self.outcomes.expired(e.tx) else None

    def _join(self, item: InFlight, e: ev.Submitted) -> res.Result | _JoinedAttempt:
        """Join the same transaction's earlier attempt. Both then wait for what either waits for, unless it was
        answered."""
        replicas = self.demands.of(item.lsn, e.durability)
        if item.answered and not replicas:
            return res.Success(item.lsn)
        item.early = item.early and e.durability is not None and e.durability.early
        if replicas:
            self._want(item.lsn, replicas, e.token)
        else:
            item.tokens.append(e.token)
        return _JOINED

    def _want(self, lsn: int, replicas: int, token: int) -> None:
        self.asked = True
        self.demands.want(lsn, replicas, token)

    def park(self, lsn: int, token: int) -> None:
        """Let `token` wait for `lsn`: it is answered once the replicas have it. `waiting` stays in order of lsn."""
        for i, (at, tokens) in enumerate(self.waiting):
            if at == lsn:
                tokens.append(token)
                return
            if at > lsn:
                self.waiting.insert(i, (lsn, [token]))
                return
        self.waiting.append((lsn, [token]))

    def _conflict(self, e: ev.Submitted | ev.PrepareAsked) -> res.Result | None:
        """Check versions against committed and in-flight changes. A duplicate is told only if all versions hold."""
        overlay, found, duplicate = self.overlay, e.found, None
        for key, version in e.reads:
            now = overlay.get(key)
            if now is None:
                now = found.get(key, ABSENT)
            if now != version:
                return res.VersionConflict(key, version, now, self.overlay_lsn.get(key, 0))
        own: dict[bytes, int] = {}
        """What this transaction's earlier changes leave under a key: delete and create of one key make a new
        instance."""
        for c in e.changes:
            now = own.get(c.key, overlay.get(c.key))
            settled = 0 if now is None or c.key in own else self.overlay_lsn[c.key]
            if now is None:
                now = found.get(c.key, ABSENT)
            own[c.key] = ABSENT if c.op == records.DELETE else self.last_lsn + 1
            if now != c.replaced and (c.replaced != ABSENT or settled):
                return res.VersionConflict(c.key, c.replaced, now, settled)
            if now != c.replaced and duplicate is None:
                holder = self.locks.writer(c.key)  # in doubt here, and perhaps decided: it may have deleted this one
                duplicate = res.DuplicateKey(c.key) if holder is None else res.LockConflict(c.key, holder)
        return duplicate

    # --- acknowledgements ---

    def head(self) -> InFlight | None:
        return self.queue[0] if self.queue else None

    def knows(self, tx: bytes) -> bool:
        """Say whether `tx` is in flight here."""
        return tx in self.by_tx

    def answered(self, tx: bytes) -> int:
        """Return the lsn of `tx` if it was acknowledged before the log had it; else 0."""
        item = self.by_tx.get(tx)
        return item.lsn if item is not None and item.answered else 0

    @property
    def visible(self) -> int:
        """Return the last lsn that is logged, or was acknowledged before."""
        return self.queue[self.shown - 1].lsn if self.shown else self.chain.state.lsn

    def logged(self, next_offset: int, out: list[fx.Effect], now: int = 0, *, own: bool = True) -> InFlight:
        """Take the head of the queue into the history: the log has it. It is visible, and answered once the replicas
        have it. If `own`, extend the chain here (not when the chain itself read the record)."""
        item = self.queue.popleft()
        self.flying -= item.size
        self.shown -= self.shown > 0
        if own:
            self.chain.accept(item.record, item.digest)
        self.expected = next_offset
        meant: Applied = item.record
        if item.tx in self.by_tx:
            self._remember(item, item.record)
        elif item.vote:
            self.flying_votes -= 1
            meant = self.vote_logged(item, next_offset - 1, now, out)
        out.append(fx.Apply([meant], self.chain.state, next_offset))
        return item

    def logged_run(self, count: int, next_offset: int, out: list[fx.Effect]) -> None:
        """Take so many commits into the history at once; only the last one's place in the chain need be known."""
        items = [self.queue.popleft() for _ in range(count)]
        self.shown = max(0, self.shown - count)
        for item in items:
            self.flying -= item.size
            self._remember(item, item.record)
        self.chain.accept(items[-1].record, items[-1].digest)
        self.expected = next_offset
        out.append(fx.Apply([item.record for item in items], self.chain.state, next_offset))

    def _remember(self, item: InFlight, record: records.Record) -> None:
        del self.by_tx[item.tx]
        self.outcomes.add(item.tx, item.lsn)
        if isinstance(record, records.Commit):
            for c in record.changes:
                if self.overlay_lsn.get(c.key) == item.lsn:
                    del self.overlay[c.key], self.overlay_lsn[c.key]
        if not item.answered:
            self.waiting.append((item.lsn, item.tokens))

    def acknowledged(self) -> int:
        """Return the highest lsn that the log, every member of the wait set and a quorum have. The log is left out
        where commits do not wait for it, unless no other member is to have them."""
        return self._held(self.last_lsn if self.early else self.chain.state.lsn)

    def _held(self, lsn: int) -> int:
        """Return how far, up to `lsn`, every member of the wait set and a quorum have everything."""
        for m in self.wait_set:
            lsn = min(lsn, self.acks.get(m, 0))
        if self.quorum:
            held = sorted((self.acks.get(m, 0) for m in self.counted), reverse=True)
            lsn = min(lsn, held[self.quorum - 1] if len(held) >= self.quorum else 0)
        return lsn

    def settle(self, out: list[fx.Effect]) -> None:
        """Tell callers of commits that are logged and held by all of the wait set."""
        if not (self.waiting or self.asked or (self.early and self.queue)):
            return
        upto = self._held(self.last_lsn if self.early else self.chain.state.lsn)
        while self.waiting and self.waiting[0][0] <= upto:
            lsn, tokens = self.waiting.popleft()
            out.extend(fx.Reply(t, res.Success(lsn)) for t in tokens)
        if self.asked:
            self._settle_asked(upto, out)
        elif upto > self.chain.state.lsn:
            self._settle_early(upto, out)

    def _settle_asked(self, upto: int, out: list[fx.Effect]) -> None:
        """Tell callers that asked for less than the policy early, and those that asked for more once their commits have
        that too."""
        logged, demands = self.chain.state.lsn, self.demands
        is_early = demands.early > logged and self.backed
        self._settle_early(self._held(self.last_lsn) if is_early else upto, out)
        demands.count(self.wait_set)
        for lsn, tokens in demands.granted(upto):
            out.extend(fx.Reply(t, res.Success(lsn)) for t in tokens)
        self.asked = bool(demands.wanted) or demands.early > logged

    def _settle_early(self, upto: int, out: list[fx.Effect]) -> None:
        """Show what the replicas have, then acknowledge it (W7); the log will have it. Behind a record that waits for
        the log all wait."""
        items: list[InFlight] = []
        for item in islice(self.queue, self.shown, None):
            if item.lsn > upto or item.vote or not (self.early or item.early):
                break
            items.append(item)
        self.shown += len(items)
        commits = [item for item in items if item.tx in self.by_tx]
        if commits:
            self.answers_early()
            out.append(fx.Show([item.record for item in commits]))
        for item in commits:
            item.answered = True
            out.extend(fx.Reply(t, res.Success(item.lsn)) for t in item.tokens)

    @property
    def unlogged(self) -> bool:
        """Say whether anything was acknowledged that the log is not known to have."""
        return self.shown > 0

    def overdue(self, now: int) -> bool:
        """Say whether the oldest append has gone unanswered for too long."""
        return bool(self.queue) and now - self.queue[0].since_ms > self.settings.commit_deadline_ms

    def unanswered_since(self, now: int) -> int:
        """Return when the oldest unanswered append was given to the log; `now`: there is none."""
        return self.queue[0].since_ms if self.queue else now

    def abandon(self, why: str, out: list[fx.Effect]) -> None:
        """Tell all callers that still wait that the outcome is unknown: the epoch is over."""
        tokens: Iterable[int] = [
            *(t for _, ts in self.waiting for t in ts),
            *(t for item in self.queue if not item.answered for t in item.tokens),
            *(t for ts in self.demands.given_up().values() for t in ts),
        ]
        out.extend(fx.Reply(t, res.Unknown(why)) for t in tokens)
        for given_up in (self.queue, self.waiting, self.by_tx):
            given_up.clear()


class _JoinedAttempt:
    """Says that the token now waits with an earlier attempt of the same transaction."""


_JOINED = _JoinedAttempt()
