"""The traces of two sites (20 to 26), as what must notice a mutant; and mutants of the first three of them: a mirror, a
take-over or a return is what they break.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import msgspec
import pytest

from halog.core.log.chain import Chain, Verdict
from halog.core.log.records import EpochStarted, Record, SiteSwitched
from halog.metadata.restore_requests import ClosedBranch
from halog.ports import TopicPartition
from halog.runtime.merge import closed_branch
from halog.runtime.sites.relinquish import Relinquishment
from halog.runtime.support.adapters import SiteAccess
from restore.branch import Side
from tests.mutants.registry import mutant, patch, simulated
from tests.scenarios import test_merge_traces, test_mirror_traces
from tests.sim.abroad import pair

FILES = test_merge_traces, test_mirror_traces
SIMULATED = pair.SEEDS[:2_000]


def of_a_merge(seed: int) -> str:
    """The traces of merges."""
    return failure(test_merge_traces)


def of_a_mirror(seed: int) -> str:
    """The others."""
    return failure(test_mirror_traces)


def failure(*files: ModuleType) -> str:
    """What goes wrong in them first; "": nothing."""
    for name, play in plays(*files):
        try:
            play()
        except (Exception, pytest.fail.Exception) as error:
            return f"{name}: {type(error).__name__}: {error}"[:500]
    return ""


def plays(*files: ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every scenario of these, with each set of values that it is to be told with."""
    for file in files:
        for name, test in vars(file).items():
            if name.startswith("test_"):
                for given in told_with(test):
                    yield f"{name}{given or ''}", partial(test, **given)  # type: ignore[misc]


def told_with(test: Any) -> list[dict[str, Any]]:
    """As pytest reads it: each `parametrize`, times the others."""
    choices = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args
            one = isinstance(names, str) and "," not in names
            split = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
            choices.append([dict(zip(split, [v] if one else v, strict=True)) for v in values])
    return [{k: v for part in chosen for k, v in part.items()} for chosen in itertools.product(*choices)]


# --- trace 20 ---


@mutant("F2", range(1), of_a_mirror)
def a_mirrored_record_that_is_repeated_voids_the_homes_epoch() -> None:
    """As a second one of the own epoch does: its writer has lost count, has it not?"""

    def mirrored(self: Chain, record: Record, hash_: bytes) -> Verdict:
        s, h = self.state, record.header
        if h.epoch == s.epoch and 0 < h.lsn <= s.lsn:
            self.state = msgspec.structs.replace(s, void=True)
            return Verdict.VOIDED
        return real(self, record, hash_)  # type: ignore[no-any-return]

    real = patch(Chain, "_mirrored", mirrored)


@mutant("F2", range(1), of_a_mirror)
def a_mirrored_record_that_is_repeated_counts_again() -> None:
    """It is of an epoch that goes on, whatever its lsn."""

    def mirrored(self: Chain, record: Record, hash_: bytes) -> Verdict:
        if record.header.epoch == self.state.epoch and 0 < record.header.lsn <= self.state.lsn:
            return Verdict.ACCEPTED
        return real(self, record, hash_)  # type: ignore[no-any-return]

    real = patch(Chain, "_mirrored", mirrored)


# --- trace 21 ---


@mutant("F1", range(1), of_a_mirror)
def a_held_start_of_the_other_site_deposes_the_one_that_went_on() -> None:
    """Its number is higher, whosever it is."""

    def started(self: Chain, record: EpochStarted) -> Verdict:
        s, epoch = self.state, record.header.epoch
        if epoch.site != s.site and epoch.number > s.epoch.number:
            self.parts = None
            self.state = msgspec.structs.replace(s, epoch=epoch, opened=False, void=False, closed_for="")
            return Verdict.STARTED
        return real(self, record)  # type: ignore[no-any-return]

    real = patch(Chain, "_started", started)


def a_start_counts_where_it_is_mirrored() -> None:
    def mirrored(self: Chain, record: Record, hash_: bytes) -> Verdict:
        s, epoch = self.state, record.header.epoch
        if type(record) is EpochStarted and epoch.site != s.site and epoch.number > s.epoch.number:
            self.state = msgspec.structs.replace(s, epoch=epoch, opened=False, void=True)
            return Verdict.STARTED
        return real(self, record, hash_)  # type: ignore[no-any-return]

    real = patch(Chain, "_mirrored", mirrored)


@mutant("F1", range(1), of_a_mirror)
def a_mirrored_start_ends_the_epoch_that_is_mirrored() -> None:
    """Its next record is skipped."""
    a_start_counts_where_it_is_mirrored()


@mutant("F1", range(1), of_a_merge)
def a_mirrored_start_ends_the_epoch_that_is_mirrored_at_a_merge() -> None:
    """One that lands behind a merge."""
    a_start_counts_where_it_is_mirrored()


# --- trace 22 ---


@mutant("F3", range(1), of_a_mirror)
def a_site_that_gave_its_log_away_is_met_by_its_own_past() -> None:
    """Its fence counts as long as the log is its own."""

    def mirrored(self: Chain, record: Record, hash_: bytes) -> Verdict:
        self.state = msgspec.structs.replace(self.state, fenced=0)
        return real(self, record, hash_)  # type: ignore[no-any-return]

    real = patch(Chain, "_mirrored", mirrored)


@mutant("F3", SIMULATED, simulated)
def a_home_that_returns_does_not_fence_its_log() -> None:
    """It compares what is there, and gives it away in the epoch that its log is in; who merges takes its word."""

    def all_(self: Relinquishment) -> Iterator[bool]:
        own = self._closed()
        self.epoch = own.epoch
        yield from self._compare(own)
        if self._state().epoch == self.epoch:
            self._append(_switched(self, own.head))
            while self._state().owner != self._remote.name and self._state().epoch == self.epoch:
                yield True

    patch(Relinquishment, "_all", all_)
    _take_its_word()


def _take_its_word() -> None:
    def closed_side(remote: SiteAccess, here: str, partition: str, tp: TopicPartition) -> Side | str:
        found = remote.coordinator.get(f"closed/{partition}")
        if found is None:
            return "it has not closed its branch"
        closed = msgspec.json.decode(found.data, type=ClosedBranch)
        at = closed.checkpoint
        return Side(remote.name, remote.log, tp, at.state, at.offset, closed.in_doubt)

    patch(closed_branch, "closed_side", closed_side)


def _switched(one: Relinquishment, head: Any) -> Record:
    return SiteSwitched(one._header(), one._remote.name, head)


@mutant("F3", SIMULATED, simulated)
def a_home_that_returns_fences_its_log_behind_the_comparison() -> None:
    """Nothing lands behind its turn; what has landed since it compared is given away with the rest."""

    def all_(self: Relinquishment) -> Iterator[bool]:
        own = self._closed()
        self.epoch = own.epoch
        yield from self._compare(own)
        if self._state().epoch != self.epoch:
            return
        self.epoch = self._fence()
        self._append(EpochStarted(self._header(), own.epoch, own.lsn))
        while self._state().epoch.number < self.epoch.number:
            yield True
        self._append(_switched(self, self._state().head))
        while self._state().owner != self._remote.name and self._state().epoch == self.epoch:
            yield True

    patch(Relinquishment, "_all", all_)
    _take_its_word()
