"""Mutants of transactions over several partitions (T1-T7). Only the histories of a bank can notice, and for two traces
also the scenario that tells them.
"""

from __future__ import annotations

from typing import Any

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.discards import Discards
from halog.core.commit.participant import NOT_PREPARED, Participant
from halog.core.log import records
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import (
    Applied,
    DecidedTransaction,
    Decision,
    Ledger,
    Locks,
    PreparedTransaction,
    UndecidedTransaction,
)
from halog.runtime.topics import ledger_rows
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.scenarios import test_spanning_traces
from tests.sim import bank, belated, trimmed
from tests.unit.core.commit import test_participant as test_voting

SEEDS = bank.SEEDS[:2_000]
FORGETFUL = belated.SEEDS[:2_000]
"""Of these, those in which what is decided and confirmed is forgotten at once."""
TRIMMED = trimmed.SEEDS[:2_000]
"""Those in which nodes start from snapshots."""


def told(seed: int) -> str:
    """By the scenarios."""
    return failure(test_spanning_traces)


def refused(seed: int) -> str:
    """By a participant that is asked. On the bank whoever is told of a commit has its vote, or had it."""
    try:
        test_voting.test_a_commit_without_a_vote_here_is_not_confirmed()
    except AssertionError as error:
        return repr(error)
    return ""


@mutant("T1", SEEDS)
def prepared_before_the_log_has_it() -> None:
    """The vote is answered when its record is sent."""

    def prepare(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> None:
        real(self, e, now, out)
        if e.tx in self.preparing:
            out.append(fx.Reply(e.token, res.Success(0)))

    real = patch(Participant, "prepare", prepare)


@mutant("T2", SEEDS)
def the_last_outcome_decides() -> None:
    """An abort behind a commit counts."""

    def stands(self: Participant, e: ev.DecideAsked, decision: Decision, out: list[fx.Effect]) -> None:
        if decision.commit == e.commit:
            real(self, e, decision, out)
        else:
            self._decide(e.tx, e.token, 0, out, commit=e.commit)

    def decided(self: Ledger, record: records.Outcome, offset: int) -> Applied:
        self.decided.pop(record.header.tx, None)
        return accepted(self, record, offset)

    real = patch(Participant, "_stands", stands)
    accepted = patch(Ledger, "_decided", decided)


@mutant("T2", SEEDS)
def a_prepare_behind_its_tombstone_locks() -> None:
    """Trace 31."""

    def prepared(self: Ledger, record: records.Prepare, offset: int) -> Applied:
        self.decided.pop(record.header.tx, None)
        return real(self, record, offset)

    real = patch(Ledger, "_prepared", prepared)
    _forget_what_was_asked()


def _forget_what_was_asked() -> None:
    def known(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> bool:
        return e.tx not in self.ledger.decided and bool(real(self, e, now, out))

    real = patch(Participant, "_known", known)


@mutant("T2", SEEDS)
def a_last_vote_asked_for_again_is_a_vote() -> None:
    """Answered when it stands, decided or not."""
    patch(Participant, "_voted", lambda self, e: False)


@mutant("T3", SEEDS)
def a_last_vote_passes_over_a_tombstone() -> None:
    """Somebody in doubt was told that it was aborted."""

    def prepare(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> None:
        decision = self.ledger.decided.get(e.tx)
        if e.last and decision is not None and not decision.commit:
            out.append(fx.Reply(e.token, res.Success(decision.lsn)))
        else:
            real(self, e, now, out)

    real = patch(Participant, "prepare", prepare)


@mutant("T3", SEEDS)
def in_doubt_decided_by_oneself() -> None:
    """Trace 9: a participant that has waited long enough aborts."""

    def doubt(self: Participant, now: int, out: list[fx.Effect]) -> None:
        for tx in list(self.ledger.undecided):
            if now - self._since[tx] >= self.settings.doubt_ms and tx not in self.deciding:
                self._since[tx] = now
                self._decide(tx, 0, now, out, commit=False)

    patch(Participant, "_doubt", doubt)


@mutant("T3", SEEDS)
def answered_from_what_is_in_flight() -> None:
    """The outcome is told when it is sent."""

    def decide(self: Participant, tx: bytes, token: int, *args: Any, **how: Any) -> None:
        real(self, tx, token, *args, **how)
        args[1].append(fx.Reply(token, res.Success(0)))

    real = patch(Participant, "_decide", decide)


@mutant("D5", SEEDS)
def nobody_doubts() -> None:
    """A dead initiator's locks stay."""
    patch(Participant, "_doubt", lambda self, now, out: None)


@mutant("T4", SEEDS)
def locks_die_with_the_active() -> None:
    """Trace 27: whoever takes over knows of no Prepare."""

    def init(self: Participant, writer: Any, ledger: Ledger, *args: Any) -> None:
        for u in list(ledger.undecided.values()):
            ledger.locks.release(u.prepare)
        ledger.undecided.clear()
        real(self, writer, ledger, *args)

    real = patch(Participant, "__init__", init)


@mutant("T4", SEEDS)
def a_restart_forgets_what_is_undecided() -> None:
    """Trace 32, of a store: it has the objects, and not the Prepares."""
    from tests.sim.store import Disk

    patch(Disk, "ledger", property(lambda self: Ledger((), self.decided.items(), self.horizon)))


def nothing_in_doubt_is_written() -> None:
    real: Any = patch(ledger_rows, "rows", lambda ledger: real(Ledger((), ledger.decided.items())))


@mutant("T4", TRIMMED)
def a_snapshot_leaves_out_what_is_in_doubt() -> None:
    """Trace 32: the Prepare is behind the marker, and nobody who starts from it knows what the Outcome is about."""
    nothing_in_doubt_is_written()


@mutant("T4", range(1), told)
def a_snapshot_leaves_out_what_is_in_doubt_and_the_trace_tells() -> None:
    """The same."""
    nothing_in_doubt_is_written()


@mutant("T6", TRIMMED)
def a_snapshot_leaves_out_what_was_decided() -> None:
    """Who starts from it takes it for never seen."""
    real: Any = patch(ledger_rows, "rows", lambda ledger: real(Ledger(list(ledger.undecided.values()))))


@mutant("W2", SEEDS)
def locks_begin_with_the_log() -> None:
    """What is prepared in flight holds nothing yet."""

    def prepare(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> None:
        real(self, e, now, out)
        item = self.preparing.get(e.tx)
        if item is not None:
            assert isinstance(item.record, records.Prepare)
            self.writer.locks.release(item.record)

    def logged(self: Participant, *args: Any) -> Applied:
        meant: Applied = really(self, *args)
        if type(meant) is PreparedTransaction:
            self.writer.locks.take(meant.undecided.prepare)
        return meant

    real = patch(Participant, "prepare", prepare)
    really = patch(Participant, "logged", logged)


@mutant("T4", SEEDS)
def commits_pass_over_locks() -> None:
    """What is prepared may be changed by others."""
    patch(Locks, "against", lambda self, reads, changes: None)


@mutant("D4", SEEDS)
def what_was_read_is_not_held() -> None:
    """Only what would be changed is locked."""

    def take(self: Locks, prepare: records.Prepare) -> None:
        for c in prepare.changes:
            self.setdefault(c.key, {})[prepare.header.tx] = True

    patch(Locks, "take", take)


@mutant("T6", SEEDS)
def the_horizon_passes_what_is_undecided() -> None:
    """The oldest is forgotten, whatever it waits for."""
    patch(Participant, "_open", lambda self: iter(()))


@mutant("T6", SEEDS)
def forgotten_taken_for_never_seen() -> None:
    """Trace 29: what is below the horizon may be prepared again."""
    patch(Ledger, "expired", lambda self, tx: False)
    patch(Participant, "_expired", lambda self, tx: False)

    def forgotten(self: Ledger, record: records.Horizon) -> Applied:
        keep, stamp = {}, record.stamp.to_bytes(8, "big")
        for tx, decision in self.decided.items():
            if tx[:8] > stamp:
                keep[tx] = decision
        meant = real(self, record)
        self.decided = keep
        return meant

    real = patch(Ledger, "_forgotten", forgotten)


@mutant("T2", FORGETFUL)
def an_outcome_behind_the_horizon_counts() -> None:
    """Trace 30: whoever reads it remembers a decision that was taken, and forgotten."""

    def decided(self: Ledger, record: records.Outcome, offset: int) -> Applied:
        horizon = self.horizon
        self.horizon = b""
        try:
            return real(self, record, offset)
        finally:
            self.horizon = horizon

    real = patch(Ledger, "_decided", decided)


@mutant("T6", range(1), refused)
def a_commit_confirmed_without_a_record() -> None:
    """A participant that does not know it, or replaced does not know it yet, says that it has it."""

    def undecidable(self: Participant, e: ev.DecideAsked) -> res.Result | None:
        refusal = real(self, e)
        unknown = e.commit and not e.decides and e.tx not in self.ledger.undecided
        return res.Success(0) if unknown and refusal is not None else refusal

    real = patch(Participant, "_undecidable", undecidable)


def an_abort_is_confirmed_without_a_record() -> None:
    """And for whoever confirmed it the matter is settled, whatever comes."""

    def undecidable(self: Participant, e: ev.DecideAsked) -> res.Result | None:
        refusal = real(self, e)
        if e.commit or refusal != NOT_PREPARED:
            return refusal
        settled.add((self.name, e.tx))
        return res.Success(0)

    def doubt(self: Participant, now: int, out: list[fx.Effect]) -> None:
        self._since |= {tx: now for tx in self.ledger.undecided if (self.name, tx) in settled}
        really(self, now, out)

    settled: set[tuple[str, bytes]] = set()
    real = patch(Participant, "_undecidable", undecidable)
    really = patch(Participant, "_doubt", doubt)


@mutant("T3", SEEDS)
def a_participant_confirms_an_abort_with_no_record() -> None:
    """Trace 28: its Prepare lands, and holds its objects for ever."""
    an_abort_is_confirmed_without_a_record()


@mutant("T3", range(1), told)
def a_participant_confirms_an_abort_with_no_record_and_the_trace_tells() -> None:
    """The same."""
    an_abort_is_confirmed_without_a_record()


@mutant("T6", SEEDS)
def a_commit_is_told_once() -> None:
    """Whether or not the others confirm, and nobody in doubt asks."""

    def decided(self: Participant, tx: bytes, meant: DecidedTransaction, out: list[fx.Effect]) -> None:
        real(self, tx, meant, out)
        self.unconfirmed.clear()

    real = patch(Participant, "_decided", decided)
    patch(Participant, "_others", lambda self, d: set())


@mutant("T6", SEEDS)
def spread_to_nobody() -> None:
    """Participants find out by doubting, or never."""

    def decided(self: Participant, tx: bytes, meant: DecidedTransaction, out: list[fx.Effect]) -> None:
        pass

    patch(Participant, "_decided", decided)


@mutant("T4", SEEDS)
def a_commit_that_changes_nothing() -> None:
    """A copied outcome frees the objects, and forgets what was to become of them."""

    def decided(self: Ledger, record: records.Outcome, offset: int) -> Applied:
        u = self.undecided.get(record.header.tx)
        if u is not None and u.prepare.first != u.prepare.participants[-1]:
            bare = records.Prepare(u.prepare.header, u.prepare.first, u.prepare.participants, 0, b"", ())
            self.locks.release(u.prepare)
            self.undecided[record.header.tx] = UndecidedTransaction(bare, u.offset)
        return real(self, record, offset)

    real = patch(Ledger, "_decided", decided)


@mutant("Q4", SEEDS)
def a_lost_vote_is_told_though_it_was_given_again() -> None:
    """Whatever is prepared, or in doubt, of its transaction now."""

    def init(self: Discards, outcomes: Outcomes, ledger: Ledger) -> None:
        real(self, outcomes, Ledger())

    real = patch(Discards, "__init__", init)
