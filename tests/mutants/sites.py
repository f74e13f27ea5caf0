"""Mutants of what nodes and operators do about two sites (F1-F5, M1-M5), in the very code that does it. The simulation
of two sites must notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from halog.core.log.chain import Chain, Verdict
from halog.core.log.record_types import EpochOpened, Record
from halog.runtime.merge import restore_driver as restoring
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.relinquish import Relinquishment
from halog.runtime.sites.split_watch import SplitWatch
from restore import replay, results, undoing
from restore.merge import Difference, Kind
from restore.plan import Choice
from restore.report import ReportEntry, merged
from restore.undoing import UndoPlan
from tests.mutants.registry import mutant, patch
from tests.sim.abroad import pair, story

SEEDS = pair.SEEDS[:2_000]


@mutant("M1", SEEDS)
def nobody_looks_whether_both_sites_serve() -> None:
    """Each goes on as if it were alone."""
    patch(SplitWatch, "_look", lambda self, site, mine: None)


@mutant("M5", SEEDS)
def a_site_takes_over_before_it_has_everything() -> None:
    """What has not come over is lost."""
    patch(CatchUp, "step", lambda self, *, may_fence: True)


@mutant("F3", SEEDS)
def a_log_is_given_away_without_being_compared() -> None:
    """Whatever the other one has not got is cut silently."""

    def compare(self: Relinquishment, own: Any) -> Iterator[bool]:
        yield True

    patch(Relinquishment, "_compare", compare)


@mutant("F2", SEEDS)
def an_epoch_that_was_never_opened_here_ends_the_other_sites() -> None:
    """A site that took over, opened nothing, and gave its log back, mirrors nothing any more."""

    def mirrored(self: Chain, record: Record, hash_: bytes) -> Verdict:
        s = self.state
        if type(record) is not EpochOpened and s.lineage and s.epoch != s.head[0] and record.header.epoch == s.head[0]:
            return Verdict.SKIPPED
        return real(self, record, hash_)  # type: ignore[no-any-return]

    real = patch(Chain, "_mirrored", mirrored)


@mutant("M2", SEEDS)
def undoing_a_merge_overrules_what_was_done_since() -> None:
    """Whatever stands there by now."""

    def undone(report: list[ReportEntry], left: Any, find: Any) -> UndoPlan:
        told = [t for t in report if t.then != t.found.source]
        found = [(t, Difference(t.found.key, Kind.KEPT, t.then, t.then, None, (), ())) for t in told]
        return UndoPlan([merged(Choice(d, None, t.found.source), "undone") for t, d in found], {})

    patch(restoring, "undone", undone)


@mutant("M2", SEEDS)
def what_is_again_as_a_merge_left_it_is_undone_though_it_was_changed_since() -> None:
    """States are compared, not versions."""

    def undone(report: list[ReportEntry], left: Any, find: Any) -> UndoPlan:
        return real(report, lambda key: 0 if find(key) is None else find(key).version, find)  # type: ignore[no-any-return]

    real = patch(restoring, "undone", undone)


@mutant("M2", SEEDS)
def a_merge_says_of_one_transaction_too_many_that_it_has_happened() -> None:
    """Its commit is in no log."""
    real: Any = replay._settled

    def settled(*args: Any) -> Any:
        horizon, decided, happened = real(*args)
        return horizon, decided, [*happened, b"\xff" * 16] if happened else happened

    patch(replay, "_settled", settled)


@mutant("M2", story.FLEETING[:2_000])
def what_was_created_and_deleted_again_since_a_merge_is_undone() -> None:
    """Nothing stood there, and nothing does."""
    patch(undoing, "_deleted_by", lambda record: ())


@mutant("M2", SEEDS)
def what_came_since_the_look_is_not_compared() -> None:
    """It was compared before, was it not?"""
    patch(results, "folded", lambda keys, later, **more: {})
