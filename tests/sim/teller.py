"""A teller: one deal after the other, each as an initiator drives it, until it dies at some step of it.

A transfer reads its accounts where somebody believes to be active, asks all participants but the first to prepare, then
the first to vote and commit in one go, or, as a halog of before, one after the other; whatever is unanswered is asked
again under the same id. An audit reads all accounts behind barriers
and looks behind others whether they still hold. A deal remembers what was said of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev, results as res
from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, UPDATE, Change
from tests.sim import counts
from tests.sim.bank_world import ACCOUNTS, BALANCE, REF, Bank, Heard, digest_of

if TYPE_CHECKING:
    from tests.sim.node import Process

PATIENCE_MS = 120.0
PAUSE_MS = 10.0
LATE, LATE_MS, IMPATIENT_MS = 0.2, 300.0, 10.0
"""How likely the first request for a last vote is slow, how slow it may be, and how soon it is sent again."""
UNTOLD = 0.3
"""How likely an initiator dies when it has said that nothing happened, before the first partition hears of it."""
DEATH = 0.04
"""How likely an initiator dies at a step."""
NOT_NOW = (res.InactiveCopy, res.Busy, res.Shortage, res.Unknown)
Account = tuple[str, bytes]
Seen = dict[Account, tuple[int, bytes | None]]


class Deal:
    """One transaction and all that was said about it."""

    def __init__(self, id_: bytes, name: str, kind: str) -> None:
        self.id = id_
        self.name = name
        self.kind = kind
        self.reads: dict[str, list[tuple[bytes, int]]] = {}
        self.changes: dict[str, list[Change]] = {}
        self.attempt: dict[str, int] = {}
        self.apart = id_[7] % 8 == 0
        """Is the first asked to vote like the others, and to commit afterwards?"""
        self.prepared: set[str] = set()
        self.asked = False
        """Was the first asked to commit?"""
        self.step = 0
        """Answers to earlier steps are not heard."""
        self.told: bool | None = None
        """Said to have happened, or not; None: nobody said."""
        self.seen: Seen = {}

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(sorted({*self.reads, *self.changes}))

    @property
    def first(self) -> str:
        return self.parts[0]

    @property
    def voters(self) -> tuple[str, ...]:
        """Who has to have voted before the first is asked to commit."""
        return self.parts if self.apart else self.parts[1:]

    @property
    def all_voted(self) -> bool:
        return len(self.prepared) == len(self.voters)

    @property
    def digest(self) -> bytes:
        return digest_of(self.parts, self.reads, self.changes)


class Teller:
    """At most one deal at a time."""

    def __init__(self, bank: Bank, name: str, *, quota: int) -> None:
        self.bank = bank
        self.name = name
        self.quota = quota
        self.rng = bank.engine.rng
        self.deal: Deal | None = None
        self.done: list[Deal] = []
        self._count = 0

    def later(self, fn: object, ms: float = PAUSE_MS) -> None:
        assert callable(fn)
        self.bank.engine.at(self.rng.random() * ms * 2, fn)

    def make(self, kind: str) -> Deal:
        self._count += 1
        number = self._count * 100 + int(self.name[-1])
        return Deal(
            int(self.bank.engine.now * 1000).to_bytes(8, "big") + number.to_bytes(8, "big"),
            f"{self.name}#{self._count}",
            kind,
        )

    def begin(self) -> None:
        """The next deal, if any is left to do."""
        if self.deal is not None or self.quota <= 0:
            return
        kind = self.rng.choices(("spread", "within", "audit"), (6, 2, 2))[0]
        if kind == "spread" and len(self.bank.names) == 1:
            kind = "within"
        deal = self.make(kind)
        if kind == "audit":
            self.quota -= 1
            self.deal = deal
            self._look(deal, {})
        elif self._transfer(deal, within=kind == "within"):
            self.quota -= 1
            self.deal = deal
            self.done.append(deal)
            self._single(deal) if len(deal.parts) == 1 else self._prepare(deal)
        else:
            self.later(self.begin)

    def _transfer(self, deal: Deal, *, within: bool) -> bool:
        """Some money from one account to others; False: nobody to read from."""
        names = list(self.bank.names)
        homes = [self.rng.choice(names)] if within else self.rng.sample(names, self.rng.randint(2, len(names)))
        accounts = [(h, self.rng.choice(ACCOUNTS)) for h in homes]
        if within:
            accounts = [(homes[0], key) for key in self.rng.sample(ACCOUNTS, 2)]
        found = []
        for home, key in accounts:
            source = self.bank.target(home)
            if source is None:
                return False
            found.append((home, key, source.version(key), source.value(key)))
        fresh = [f for f in found if f[2] == ABSENT]
        if fresh:  # opens the accounts of a whole partition; of all that it meets where there are dozens
            for home, *_ in fresh if counts.is_many(len(names)) else fresh[:1]:
                deal.changes[home] = [Change(CREATE, REF, key, b"%d" % BALANCE, ABSENT) for key in ACCOUNTS]
            return True
        amount = self.rng.randint(1, 9)
        for i, (home, key, version, value) in enumerate(found):
            if i == 2 or (i > 2 and i % 2 and i + 1 == len(found)):  # a third one, or a last odd one, is only looked at
                deal.reads.setdefault(home, []).append((key, version))
                continue
            assert value is not None
            gives = i == 0 or (i > 2 and i % 2 == 1)
            new = int(value) + (-amount if gives else amount)
            deal.changes.setdefault(home, []).append(Change(UPDATE, REF, key, b"%d" % new, version))
            if self.rng.random() < 0.5:
                deal.reads.setdefault(home, []).append((key, version))
        return True

    def _end(self, deal: Deal, told: bool | None) -> None:
        if self.deal is deal:
            deal.told = told
            deal.step = deal.step + 1
            self.deal = None
            self.bank.cover.hit(f"{deal.kind} {told}")
            self.later(self.begin)

    def _dies(self, deal: Deal) -> bool:
        """From now on nobody drives it."""
        if not self.bank.healed and self.rng.random() < DEATH:
            self.bank.cover.hit(f"initiator died {'deciding' if deal.all_voted else 'preparing'}")
            self._end(deal, None)
            return True
        return False

    # --- within one partition ---

    def _single(self, deal: Deal) -> None:
        home, step = deal.first, self._next(deal)
        target = self.bank.target(home, deal.attempt.get(home, 0))
        if target is not None:
            request = ev.Submitted(
                self.bank.token(home, lambda r, p: self._heard_single(deal, step, r)),
                deal.id,
                deal.reads.get(home, []),
                deal.changes[home],
                {},
            )
            self._submit(deal, home, request, target)
        self._again(deal, step, self._single)

    def _submit(
        self, deal: Deal, home: str, request: ev.Submitted | ev.PrepareAsked, target: Process, late_ms: float = 0.0
    ) -> None:
        epoch = target.partition.state.chain.state.led
        deal.attempt[home] = max(deal.attempt.get(home, 0), epoch)
        self.bank.engine.at(late_ms, self.bank.worlds[home].to_server, self.name, target, request, epoch)

    def _next(self, deal: Deal) -> int:
        deal.step += 1
        return deal.step

    def _again(self, deal: Deal, step: int, fn: object, after_ms: float = PATIENCE_MS) -> None:
        assert callable(fn)

        def look() -> None:
            if deal.step == step and self.deal is deal:
                fn(deal)

        self.bank.engine.at(after_ms, look)

    def _heard_single(self, deal: Deal, step: int, result: res.Result) -> None:
        if self.deal is not deal:
            return
        if isinstance(result, res.Success):
            self._end(deal, True)
        elif step == deal.step and isinstance(result, res.ExpiredId):
            self._end(deal, None)
        elif step == deal.step and not isinstance(result, NOT_NOW):
            self.bank.cover.hit(f"single {type(result).__name__}")
            self._end(deal, False)

    # --- over several ---

    def _prepare(self, deal: Deal) -> None:
        step = self._next(deal)
        for home in deal.voters:
            if home not in deal.prepared:
                self._ask_vote(deal, home, lambda r, p, home=home: self._voted(deal, home, r))  # type: ignore[misc]
        self._again(deal, step, self._prepare)

    def _ask_vote(self, deal: Deal, home: str, heard: Heard, *, last: bool = False, late_ms: float = 0.0) -> None:
        target = self.bank.target(home, deal.attempt.get(home, 0))
        if target is not None:
            request = ev.PrepareAsked(
                self.bank.token(home, heard),
                deal.id,
                deal.first,
                deal.parts,
                deal.digest,
                deal.reads.get(home, []),
                deal.changes.get(home, []),
                {},
                deal.attempt.get(home, 0),
                last=last,
            )
            self._submit(deal, home, request, target, late_ms)

    def _voted(self, deal: Deal, home: str, result: res.Result) -> None:
        if self.deal is not deal or home in deal.prepared or isinstance(result, NOT_NOW):
            return
        if deal.all_voted or self._dies(deal):
            return
        if not isinstance(result, res.Success):
            self.bank.cover.hit(f"vote {type(result).__name__}")
            self._abort(deal)
            return
        deal.prepared.add(home)
        if deal.all_voted:
            self._decide(deal)

    def _abort(self, deal: Deal) -> None:
        """Nobody asks to commit it: it will not happen, whether the first partition hears of it or not."""
        self._end(deal, False)
        target = self.bank.target(deal.first)
        if target is not None and (self.bank.healed or self.rng.random() >= UNTOLD):
            token = self.bank.token(deal.first, lambda r, p: None)
            self.bank.send(deal.first, ev.DecideAsked(token, deal.id, False, True, deal.parts), target)

    def _decide(self, deal: Deal) -> None:
        if self._dies(deal):
            return
        step, again = self._next(deal), deal.asked
        late = not again and not self.bank.healed and self.rng.random() < LATE
        deal.asked = True
        if deal.apart:
            target = self.bank.target(deal.first)
            if target is not None:
                token = self.bank.token(deal.first, lambda r, p: self._is_decided(deal, r))
                self.bank.send(deal.first, ev.DecideAsked(token, deal.id, True, True), target)
        else:
            self._ask_vote(
                deal,
                deal.first,
                lambda r, p: self._is_decided(deal, r) or self._is_refused(deal, r, again),
                last=True,
                late_ms=self.rng.random() * LATE_MS if late else 0.0,
            )
        self._again(deal, step, self._decide, IMPATIENT_MS if late else PATIENCE_MS)

    def _is_decided(self, deal: Deal, result: res.Result) -> None:
        if self.deal is not deal:
            return
        if isinstance(result, res.Success | res.OppositeDecision):
            self._end(deal, isinstance(result, res.Success))
        elif isinstance(result, res.ExpiredId):
            self._end(deal, None)

    def _is_refused(self, deal: Deal, result: res.Result, again: bool) -> None:
        """The last vote: nothing has happened, unless an earlier request may still be on its way; then the first is
        asked to abort until it says how it stands."""
        if self.deal is not deal or isinstance(result, NOT_NOW):
            return
        self.bank.cover.hit(f"last vote {type(result).__name__}{' again' if again else ''}")
        if not again:
            self._abort(deal)
        else:
            self._give_up(deal)

    def _give_up(self, deal: Deal) -> None:
        step = self._next(deal)
        target = self.bank.target(deal.first)
        if target is not None:
            token = self.bank.token(deal.first, lambda r, p: self._is_given_up(deal, r))
            self.bank.send(deal.first, ev.DecideAsked(token, deal.id, False, True, deal.parts), target)
        self._again(deal, step, self._give_up)

    def _is_given_up(self, deal: Deal, result: res.Result) -> None:
        if self.deal is not deal:
            return
        if isinstance(result, res.Success | res.OppositeDecision):
            self._end(deal, isinstance(result, res.OppositeDecision))
        elif isinstance(result, res.ExpiredId):
            self._end(deal, None)

    # --- audits ---

    def _look(self, deal: Deal, before: Seen, names: tuple[str, ...] | None = None) -> None:
        """Partition by partition, behind a barrier each."""
        left = self.bank.names if names is None else names
        step = self._next(deal)
        if not left:
            self._looked(deal, before)
            return
        target = self.bank.target(left[0])
        if target is not None:
            token = self.bank.token(left[0], lambda r, p: self._shown(deal, step, before, left, r, p))
            self.bank.send(left[0], ev.BarrierAsked(token), target)
        self._again(deal, step, lambda deal: self._look(deal, before, left))

    def _shown(
        self, deal: Deal, step: int, before: Seen, left: tuple[str, ...], result: res.Result, p: Process
    ) -> None:
        """Its answer is read at once from whoever gave it, if that has it still."""
        held = (
            isinstance(result, res.Success)
            and p.partition.state.chain.state.lsn >= result.lsn
            and p.alive
            and not p.paused
        )
        if self.deal is not deal or deal.step != step or not held:
            return
        if any(p.partition.state.ledger.locks.writer(key) is not None for key in ACCOUNTS):
            return  # in doubt: it is asked again
        deal.seen |= {(left[0], key): (p.version(key), p.value(key)) for key in ACCOUNTS}
        self._look(deal, before, left[1:])

    def _looked(self, deal: Deal, before: Seen) -> None:
        if not before:
            deal.seen, seen = {}, deal.seen
            self._look(deal, seen)
        elif before != deal.seen:
            self._end(deal, False)
        else:
            self.bank.audits.append(deal.seen)
            self._end(deal, True)
