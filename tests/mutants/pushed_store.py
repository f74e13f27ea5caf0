"""Mutants of what replicas store of what they are pushed (R6, decision 38). Only the histories that play it can notice.

Some rules only tell in stories too long for chance: `tests/scenarios/test_pushed_store_traces.py` tells them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from halog.core import effects as fx, events as ev
from halog.core.election import campaign as candidate, positions
from halog.core.election.campaign import Campaign
from halog.core.ids import Member
from halog.core.log.chain import ChainState
from halog.core.replica.pushed_store import PushedStore
from halog.core.roles import LEADING
from halog.core.settings import Sync
from halog.core.state.held import HeldRun
from halog.core.state.tail import Tail
from tests.mutants.first_traces import ONCE
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import failure
from tests.scenarios import test_pushed_store_traces
from tests.sim.pushed_store import SEEDS as ALL

SEEDS = ALL[:2_000]


def told(seed: int) -> str:
    """By its stories."""
    return failure(test_pushed_store_traces)


@mutant("E2", ONCE, told)
def a_claimant_that_is_a_holder_by_its_store_is_none() -> None:
    """It dies before it has appended that again, and nobody takes its next incarnation's word."""

    def claims(self: PushedStore, holders: Collection[Member], *, lossy: bool) -> None:
        self.withdraw()

    patch(PushedStore, "claims", claims)


@mutant("R6", SEEDS)
def told_before_it_is_stored() -> None:
    """A replica acknowledges what is in its memory."""

    def store(self: PushedStore) -> int:
        real(self)
        self._copy.out[:] = [e for e in self._copy.out if not isinstance(e, fx.StorePushed)]
        return self._copy.held.tip(self._copy.chain.state)

    real = patch(PushedStore, "store", store)


@mutant("R6", SEEDS)
def told_before_it_is_flushed() -> None:
    """The operating system has it, where SYNC is asked for."""

    def store(self: PushedStore) -> int:
        flushed = real(self)
        return self._stored if self._copy.settings.remote_sync is Sync.SYNC and self._flushing else flushed

    real = patch(PushedStore, "store", store)


@mutant("R6", SEEDS)
def one_flush_for_what_came_since() -> None:
    """What is stored while a flush is under way counts as flushed with it."""

    def marked(self: PushedStore, e: ev.PushedFlushed) -> None:
        real(self, e)
        self._flushed = self._copy.held.tip(self._copy.chain.state)

    real = patch(PushedStore, "flushed", marked)


@mutant("E2", SEEDS)
def who_answers_early_stands_by_its_store() -> None:
    """It acknowledges what is in its memory only, and its next incarnation says that it has all of it."""

    def withdraw(self: PushedStore) -> None:
        if self._copy.role not in LEADING:
            real(self)

    real = patch(PushedStore, "withdraw", withdraw)


@mutant("E2", ONCE, told)
def who_claims_without_being_a_holder_stands() -> None:
    """The tails of the holders are in its memory only."""

    def claims(self: PushedStore, holders: Collection[Member], *, lossy: bool) -> None:
        self.stand()

    patch(PushedStore, "claims", claims)


@mutant("E2", ONCE, told)
def given_up_while_a_holder_withholds_it() -> None:
    """A node that was started anew claims, and another one hears no tail from it."""

    def whole(self: Campaign) -> bool:
        self.answers.withheld.clear()
        return bool(real(self))

    real = patch(Campaign, "_whole", whole)


@mutant("E3", SEEDS)
def what_was_pushed_is_not_brought_along() -> None:
    """The store stands for it, and nobody reads what it has."""

    def adopt(self: Tail, datas: Sequence[bytes], state: ChainState) -> None:
        if self.run or not self.stood:
            real(self, datas, state)

    real = patch(Tail, "adopt", adopt)


@mutant("R6", SEEDS)
def stored_without_what_came_before() -> None:
    """Of what is held only the last record is stored."""
    real: Any = patch(HeldRun, "beyond", lambda self, lsn: real(self, lsn)[-1:])


@mutant("E2", ONCE, told)
def a_store_that_was_set_aside_is_forgotten_by_its_own_node() -> None:
    """As a candidate it takes itself for one that has nothing, and gives up what it cannot tell."""
    patch(candidate, "lacking_holders", lambda copy: ())


@mutant("E2", ONCE, told)
def a_store_that_was_set_aside_is_told_nobody_of() -> None:
    """Its node answers others as one that never held anything."""
    patch(positions, "lacking_holders", lambda copy: ())
