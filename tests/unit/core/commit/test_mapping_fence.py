"""What a partition does with requests that were routed by another mapping than the one it serves (T8)."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.participant import Participant
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.settings import Settings

pytestmark = pytest.mark.feature("P6", "D4")


class Epoch:
    """A writer whose log takes everything when told to."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        chain = Chain(ChainState(bytes(16), "home", EpochId(1, "home", 1), opened=True, led=1))
        self.ledger = ledger or Ledger()
        self.writer = Writer(chain, Outcomes(), Settings(), 0, 0)
        self.votes = Participant(self.writer, self.ledger, "p", 0)
        self.offset = 0

    def submit(self, n: int, mapping: int, key: bytes = b"k") -> list[fx.Effect]:
        """As `Leader.submit` does it."""
        out: list[fx.Effect] = []
        change = records.Change(records.CREATE, bytes(24), key, b"v", -1)
        e = ev.Submitted(n, n.to_bytes(16, "big"), [], [change], {}, mapping=mapping)
        if e.mapping == self.writer.mapping or self.votes.admits(e, 0, out):
            self.writer.submit(e, 0, out)
        return out

    def prepare(self, n: int, mapping: int) -> list[fx.Effect]:
        out: list[fx.Effect] = []
        tx = n.to_bytes(8, "big") + bytes(8)
        self.votes.prepare(ev.PrepareAsked(n, tx, "p", ("p", "q"), b"", [], [], {}, mapping=mapping), 0, out)
        return out

    def land(self) -> list[fx.Effect]:
        out: list[fx.Effect] = []
        while self.writer.queue:
            self.offset += 1
            self.writer.logged(self.offset, out)
            self.writer.settle(out)
        return out


def kinds(out: list[fx.Effect]) -> list[str]:
    return [type(records.decode(e.data)).__name__ for e in out if isinstance(e, fx.Append)]


def results(out: list[fx.Effect]) -> list[res.Result]:
    return [e.result for e in out if isinstance(e, fx.Reply)]


def test_before_the_first_request_by_a_newer_mapping_the_log_says_so() -> None:
    epoch = Epoch()
    assert kinds(epoch.submit(1, 0)) == ["Commit"]
    assert kinds(epoch.submit(2, 3, b"l")) == ["MapperChanged", "Commit"]
    assert epoch.ledger.mapping == 0, "not before the log has it"
    epoch.land()
    assert epoch.ledger.mapping == 3
    assert kinds(epoch.submit(3, 3, b"m")) == ["Commit"]


def test_an_older_request_is_refused_as_soon_as_the_change_is_on_its_way() -> None:
    epoch = Epoch()
    epoch.submit(1, 2)
    assert results(epoch.submit(2, 1, b"l")) == [res.StaleMapping(2)]
    assert results(epoch.prepare(9, 1)) == [res.StaleMapping(2)]
    epoch.land()
    assert results(epoch.submit(3, 1, b"m")) == [res.StaleMapping(2)]


def test_what_is_known_of_an_id_is_told_whatever_it_was_routed_by() -> None:
    """A repeated attempt of what has happened has happened (W6)."""
    epoch = Epoch()
    epoch.submit(1, 0)
    epoch.submit(2, 1, b"l")
    assert results(epoch.submit(1, 0)) == [], "it joins the one in flight"
    epoch.land()
    assert results(epoch.submit(1, 0)) == [res.Success(1)]


def test_a_vote_names_the_mapping_and_counts_as_older_once_that_is_passed() -> None:
    epoch = Epoch()
    assert kinds(epoch.prepare(1, 1)) == ["MapperChanged", "Prepare"]
    epoch.land()
    assert [u.prepare.mapper_version for u in epoch.ledger.undecided.values()] == [1]
    assert (epoch.ledger.older(1), epoch.ledger.older(2)) == (0, 1)


def test_a_new_epoch_goes_on_from_what_the_log_has_said() -> None:
    epoch = Epoch(Ledger(mapping=4))
    assert results(epoch.submit(1, 3)) == [res.StaleMapping(4)]
    assert kinds(epoch.submit(2, 4)) == ["Commit"]


def test_whoever_asks_for_a_mapping_hears_when_it_is_served() -> None:
    epoch, out = Epoch(), list[fx.Effect]()
    epoch.votes.remap(1, 7, 0, out)
    epoch.votes.remap(1, 8, 0, out)
    assert (kinds(out), results(out)) == (["MapperChanged"], [])
    assert results(epoch.land()) == [res.Success(1), res.Success(1)]
    epoch.votes.remap(1, 9, 0, out)
    assert results(out) == [res.Success(1)]


def test_the_version_never_falls() -> None:
    ledger = Ledger(mapping=5)
    header = records.Header(bytes(16), EpochId(1, "home", 1), 1)
    ledger.accepted(records.MapperChanged(header, 4), 0)
    assert ledger.mapping == 5
