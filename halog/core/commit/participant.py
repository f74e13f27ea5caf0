"""This module takes part in transactions over several partitions, on the active node of one epoch (T1-T8).

Law:

- An outcome is answered from the accepted history, never from what is in flight.
- A `Prepare` is appended only where versions hold and no other transaction holds its objects. Its own are held from
  that moment, before the log has it.
- Only the first partition decides, by the first valid `Outcome` in its log; the others copy it.
- A participant that is in doubt for too long, and has not been asked for its vote again for as long, asks the first to
  abort. The first aborts what it is in doubt of itself. So asking finds the decision, or makes sure that there is one.
- A commit is spread until every participant has confirmed it; one of an earlier epoch as soon as this one serves. An
  abort is spread once. A vote that it overtakes is followed by the abort (unless too much is in flight) or refused.
- The horizon never passes what is undecided, in flight or unconfirmed.
- A request that was routed by an older mapping than the served one is refused. Before one of a newer mapping is served,
  `MapperChanged` stands in the chain.
- Records of this kind wait for the log, whatever the policy says.
"""

from __future__ import annotations

from collections.abc import Iterator

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.writer import NOBODY, InFlight, Writer
from halog.core.log import records
from halog.core.log.outcomes import STAMP_BYTES
from halog.core.log.transactions import Applied, DecidedTransaction, Decision, Ledger, Locks

SPREAD_AT_ONCE = 200
"""So many unconfirmed commits are spread again at once. After a failover there may be thousands, nearly all confirmed
before."""


FOLLOWED_MS = 10
"""A record that the next one follows at once may wait for so long to leave with that one; in fact it never does."""

TOLD_MS = 1
"""For so long the record of a transaction that is answered may wait; its objects are locked here until the log has it.
The next transaction of the same client over the same partitions comes within that time and shares a request with it. So
broker and client have one request less, and the next one does not wait for this one."""

NOT_PREPARED = res.Refusal("it is not prepared")


class Participant:
    """Takes part for partition `name` in one epoch. Methods append effects to `out`."""

    def __init__(self, writer: Writer, ledger: Ledger, name: str, now: int) -> None:
        self.writer = writer
        self.ledger = ledger
        self.name = name
        self.settings = writer.settings
        self.preparing: dict[bytes, InFlight] = {}
        self.deciding: dict[bytes, InFlight] = {}
        """The records in flight, by transaction id."""
        self._ahead = b""
        """The horizon that is on its way to the log."""
        self._since = dict.fromkeys(ledger.undecided, now)
        """For each undecided transaction: when this epoch first knew of it, last asked about it, or was last asked for
        its vote."""
        self.unconfirmed = {
            tx: set(others) for tx, d in reversed(ledger.decided.items()) if (others := self._others(d))
        }
        """Commits decided here → the participants that may not have them. Of those of an earlier epoch the latest come
        first: the node that decided them may have died before it told anybody, and their objects are held until the
        participants are told."""
        self._spread_at = now - self.settings.doubt_ms
        self._looked_at = now - self.settings.doubt_ms
        """When moving the horizon was last considered: with thousands of decisions that costs time."""
        self._remapping: InFlight | None = None
        """The last `MapperChanged` on its way to the log."""
        self._asked: dict[bytes, tuple[str, ...]] = {}
        """The participants that may have been asked to prepare, of what is being aborted here without being known."""
        self._given_up: dict[bytes, int] = {}
        """Aborts that this one was told of before it was asked to prepare, and when: a request may still be on its
        way."""
        self.closed = False
        """Whether nothing new may be voted on: the epoch ends soon, with nothing in doubt."""
        writer.vote_logged = self.logged
        writer.mapping = ledger.mapping
        writer.locks = Locks()
        for u in ledger.undecided.values():
            writer.locks.take(u.prepare)

    @property
    def unsettled(self) -> int:
        """Return how many transactions are in doubt here, or not known to have been confirmed."""
        return len(self.ledger.undecided) + len(self.preparing) + len(self.deciding) + len(self.unconfirmed)

    def _others(self, d: Decision) -> set[str]:
        return set(d.participants) - {self.name} if d.commit and d.first == self.name else set()

    def asked(self, e: ev.PrepareAsked | ev.DecideAsked | ev.MappingAsked, now: int, out: list[fx.Effect]) -> None:
        """Take a question. It is answered through `Writer.settle`, once the log and the replicas have its record."""
        if isinstance(e, ev.PrepareAsked):
            self.prepare(e, now, out)
        elif isinstance(e, ev.DecideAsked):
            self.decide(e, now, out)
        else:
            self.remap(e.version, e.token, now, out)

    # --- the mapping (T8) ---

    def admits(self, e: ev.Submitted, now: int, out: list[fx.Effect]) -> bool:
        """Say whether a commit that was routed by another mapping than the served one may go on. What is known of its
        id is told whatever mapping it was routed by (W6)."""
        writer = self.writer
        if e.mapping > writer.mapping:
            self.remap(e.mapping, NOBODY, now, out)
            return True
        known = e.tx in writer.by_tx or writer.outcomes.get(e.tx) is not None or writer.outcomes.expired(e.tx)
        if not known:
            out.append(fx.Reply(e.token, res.StaleMapping(writer.mapping)))
        return known

    def remap(self, version: int, token: int, now: int, out: list[fx.Effect]) -> None:
        """Say in the log that `version` is served from here on, unless it says so already. `token` waits for it."""
        writer = self.writer
        if version > writer.mapping:
            record = records.MapperChanged(writer.header(), version)
            self._remapping = writer.append_vote(record, records.encode(record), now, token, out)
            writer.mapping = version
        elif token and version > self.ledger.mapping and self._remapping is not None:
            self._remapping.tokens.append(token)
        elif token:
            self._when_held(writer.chain.state.lsn, token, out)

    def state_level(self, level: int, now: int, out: list[fx.Effect]) -> None:
        """Say in the log that what follows may be of this level (U1)."""
        record = records.LevelStated(self.writer.header(), level)
        self.writer.append_vote(record, records.encode(record), now, NOBODY, out)
        self.writer.level = level

    def _expired(self, tx: bytes) -> bool:
        """Say whether the id is at or below the horizon, or the one on its way."""
        return self.ledger.expired(tx) or tx[:STAMP_BYTES] <= self._ahead

    # --- prepare ---

    def prepare(self, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> None:
        """Validate and append, or answer at once. The outcome of the last vote is appended right behind it. What it
        needs is there whenever it is: a `Prepare` before it in this log, and all other votes."""
        if self._known(e, now, out):
            return
        writer = self.writer
        if e.mapping > writer.mapping:
            self.remap(e.mapping, NOBODY, now, out)
        refusal = res.StaleMapping(writer.mapping) if e.mapping < writer.mapping else writer.refused(e)
        if self.closed:
            refusal = res.InactiveCopy(None)
        if e.last and e.first != self.name:
            refusal = res.Refusal(f"its first partition is {e.first}")
        if refusal is not None:
            out.append(fx.Reply(e.token, refusal))
            return
        e = writer.as_read(e)
        reads, changes = tuple((key, version) for key, version in e.reads), tuple(e.changes)
        record = records.Prepare(writer.header(e.tx), e.first, e.participants, e.mapping, e.digest, changes, reads)
        data = writer.encoded(record, e.token, out, moves=e.moves)
        if data is None:
            return
        token, patience_ms = (NOBODY, FOLLOWED_MS) if e.last else (e.token, 0)
        self.preparing[e.tx] = writer.append_vote(record, data, now, token, out, patience_ms=patience_ms)
        writer.locks.take(record)
        if e.last:
            self._decide(e.tx, e.token, now, out, commit=True)

    def _known(self, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> bool:
        """Say whether the id is known, and answer it if so (T1, W6)."""
        tx = e.tx
        if e.last and self._voted(e):
            self.decide(ev.DecideAsked(e.token, tx, commit=True, decides=True), now, out)
            return True
        if (item := self.preparing.get(tx)) is not None:
            assert isinstance(item.record, records.Prepare)
            if item.record.digest == e.digest:
                item.tokens.append(e.token)
                return True
            result: res.Result = _other()
        elif (undecided := self.ledger.undecided.get(tx)) is not None:
            if undecided.prepare.digest == e.digest:
                self._since[tx] = now  # its initiator lives
                self._when_held(undecided.prepare.header.lsn, e.token, out)
                return True
            result = _other()
        elif (decision := self.ledger.decided.get(tx)) is not None:
            result = res.Success(decision.lsn) if decision.commit else res.OppositeDecision(decision.lsn)
        elif tx in self.deciding:
            result = res.Unknown("it is being decided")
        elif tx in self._given_up:
            result = res.OppositeDecision(0)
        elif self._expired(tx):
            result = res.ExpiredId(max(self.ledger.horizon, self._ahead))
        else:
            return False
        out.append(fx.Reply(e.token, result))
        return True

    def _voted(self, e: ev.PrepareAsked) -> bool:
        """Say whether this partition has voted on it, has decided it, or is about to."""
        vote = self._vote(e.tx)
        known = e.tx in self.ledger.decided or e.tx in self.deciding
        return known if vote is None else vote.digest == e.digest

    def _when_held(self, lsn: int, token: int, out: list[fx.Effect]) -> None:
        """Tell the caller that it happened, once the replicas have what the log has."""
        if lsn <= self.writer.acknowledged():
            out.append(fx.Reply(token, res.Success(lsn)))
        else:
            self.writer.park(lsn, token)

    # --- decide ---

    def decide(self, e: ev.DecideAsked, now: int, out: list[fx.Effect]) -> None:
        """Append the outcome, or say what the outcome is."""
        decision, item = self.ledger.decided.get(e.tx), self.deciding.get(e.tx)
        if decision is not None:
            self._stands(e, decision, out)
        elif item is not None:
            assert isinstance(item.record, records.Outcome)
            if item.record.commit == e.commit:
                item.tokens.append(e.token)
            else:
                out.append(fx.Reply(e.token, res.Unknown("it is being decided")))
        elif (refusal := self._undecidable(e)) is not None:
            if not e.commit and refusal == NOT_PREPARED:
                self._given_up.setdefault(e.tx, now)
                if len(self._given_up) > self.settings.max_outcomes:
                    del self._given_up[next(iter(self._given_up))]
            out.append(fx.Reply(e.token, refusal))
        else:
            self._asked[e.tx] = e.participants
            self._decide(e.tx, e.token, now, out, commit=e.commit, patience_ms=TOLD_MS if e.patient else 0)

    def _stands(self, e: ev.DecideAsked, decision: Decision, out: list[fx.Effect]) -> None:
        if decision.commit == e.commit:
            self._when_held(decision.lsn, e.token, out)
        elif decision.lsn <= self.writer.acknowledged():
            out.append(fx.Reply(e.token, res.OppositeDecision(decision.lsn)))
        else:
            out.append(fx.Reply(e.token, res.Unknown("it is decided, and not with all replicas yet")))

    def _undecidable(self, e: ev.DecideAsked) -> res.Result | None:
        if self.ledger.expired(e.tx):
            return res.ExpiredId(self.ledger.horizon)
        if e.tx[:STAMP_BYTES] <= self._ahead:  # behind it an outcome would be void; and it may never get there
            return res.Unknown("the horizon is on its way to the log")
        if e.commit and e.tx in self.preparing:
            return res.Unknown("it is being prepared")
        vote = self._vote(e.tx)
        if vote is None and (e.commit or not e.decides):
            return NOT_PREPARED
        if vote is not None and (vote.first == self.name) is not e.decides:
            return res.Refusal(f"its first partition is {vote.first}")
        return self.writer.short or self.writer.full()

    def _vote(self, tx: bytes) -> records.Prepare | None:
        """Return the vote, in the log or on its way there: an abort can follow it."""
        if (item := self.preparing.get(tx)) is not None:
            assert isinstance(item.record, records.Prepare)
            return item.record
        undecided = self.ledger.undecided.get(tx)
        return None if undecided is None else undecided.prepare

    def _decide(
        self, tx: bytes, token: int, now: int, out: list[fx.Effect], *, commit: bool, patience_ms: int = 0
    ) -> None:
        record = records.Outcome(self.writer.header(tx), commit)
        data = records.encode(record)
        self.deciding[tx] = self.writer.append_vote(record, data, now, token, out, patience_ms=patience_ms)

    # --- the log ---

    def logged(self, item: InFlight, offset: int, now: int, out: list[fx.Effect]) -> Applied:
        """Take the head of the queue, which is no commit and is in the log now. Return what it means."""
        undecided = self.ledger.undecided.get(item.tx)
        meant = self.ledger.accepted(item.record, offset)
        if item.tokens:
            self.writer.waiting.append((item.lsn, item.tokens))
        if type(item.record) is records.Prepare:
            del self.preparing[item.tx]
            self._since[item.tx] = now
        elif type(item.record) is records.Outcome:
            del self.deciding[item.tx]
            self._since.pop(item.tx, None)
        elif type(item.record) is records.Horizon:
            self._ahead = b""
        if type(meant) is DecidedTransaction:
            if undecided is not None:
                self.writer.locks.release(undecided.prepare)
            self._decided(item.tx, meant, out)
        return meant

    def _decided(self, tx: bytes, meant: DecidedTransaction, out: list[fx.Effect]) -> None:
        decision, asked = meant.decision, self._asked.pop(tx, ())
        if decision.commit:
            self.writer.outcomes.add(tx, decision.lsn)
        to = set(decision.participants or asked) - {self.name}
        if decision.participants and decision.first != self.name:
            return
        if decision.commit and to:
            self.unconfirmed[tx] = set(to)
        if to:
            out.append(fx.Spread(tx, decision.commit, tuple(sorted(to))))

    def confirmed(self, e: ev.Confirmed) -> None:
        """Note that a participant has the commit (T6)."""
        waits_for = self.unconfirmed.get(e.tx)
        if waits_for is not None:
            waits_for.discard(e.participant)
            if not waits_for:
                del self.unconfirmed[e.tx]

    # --- time ---

    def ticked(self, now: int, out: list[fx.Effect], *, serving: bool) -> None:
        if not serving:
            return
        while self._given_up and now - next(iter(self._given_up.values())) >= self.settings.doubt_ms:
            del self._given_up[next(iter(self._given_up))]
        if self.ledger.undecided:
            self._doubt(now, out)
        if self.unconfirmed and now - self._spread_at >= self.settings.doubt_ms:
            self._spread_at = now
            for tx in list(self.unconfirmed)[:SPREAD_AT_ONCE]:
                others = self.unconfirmed[tx] = self.unconfirmed.pop(tx)  # behind those that had no turn
                out.append(fx.Spread(tx, True, tuple(sorted(others))))
        too_many = len(self.ledger.decided) > self.settings.max_outcomes * 11 // 10
        if too_many and now - self._looked_at >= self.settings.doubt_ms:
            self._looked_at = now
            self._move_horizon(now, out)

    def _doubt(self, now: int, out: list[fx.Effect]) -> None:
        """Ask about, or abort, what is in doubt for too long: its initiator may be dead (D5)."""
        for tx, u in list(self.ledger.undecided.items()):
            if now - self._since[tx] < self.settings.doubt_ms or tx in self.deciding:
                continue
            self._since[tx] = now
            if u.prepare.first != self.name:
                out.append(fx.AskDecision(tx, u.prepare.first))
            elif (self.writer.short or self.writer.full()) is None:
                self._decide(tx, NOBODY, now, out, commit=False)

    def _move_horizon(self, now: int, out: list[fx.Effect]) -> None:
        """Forget the oldest (T6)."""
        ledger, writer = self.ledger, self.writer
        if self._ahead or writer.full() is not None:
            return
        horizon = int.from_bytes(ledger.horizon, "big")
        limit = min((_stamp(tx) - 1 for tx in self._open()), default=None)
        if limit is not None and limit <= horizon:
            return
        wanted = sorted(_stamp(tx) for tx in ledger.decided)[-self.settings.max_outcomes - 1]
        stamp = wanted if limit is None else min(wanted, limit)
        if stamp > horizon:
            record = records.Horizon(writer.header(), stamp)
            writer.append_vote(record, records.encode(record), now, NOBODY, out)
            self._ahead = stamp.to_bytes(STAMP_BYTES, "big")

    def _open(self) -> Iterator[bytes]:
        """Return what the horizon must not pass."""
        yield from self.ledger.undecided
        yield from self.preparing
        yield from self.deciding
        yield from self.unconfirmed


def _stamp(tx: bytes) -> int:
    return int.from_bytes(tx[:STAMP_BYTES], "big")


def _other() -> res.Refusal:
    return res.Refusal("another transaction has this id")
