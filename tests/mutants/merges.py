"""Mutants of forks and merges (F4, F5). The model of two sites notices, and of those with `TRACES` the protocol's
traces: what takes several things to go wrong at once chance does not come to.
"""

from __future__ import annotations

from typing import Any

import msgspec

from halog.core.log import merge_parts as merged, records
from halog.core.log.chain import Chain, Verdict
from halog.core.log.merge_parts import AppliedMerge, MergeParts, continues
from halog.core.log.records import EpochMerged, MergePart
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.metadata.restore_requests import ClosedBranch
from restore import branches, creating, replay
from restore.branch import Branch, BranchReader, Side
from restore.branches import BranchComparison
from tests.mutants.registry import mutant, patch
from tests.mutants.traces import of_a_merge
from tests.unit.core.sites import merge_model as merging_world
from tests.unit.core.sites.copy_model import Copy
from tests.unit.core.sites.merge_steps import failure_of
from tests.unit.core.sites.site_model import Site

SEEDS = range(600)
TRACES = range(-1, 600)


def play(seed: int) -> str:
    """The traces, or a world by chance."""
    return failure_of(seed) if seed >= 0 else of_a_merge(seed)


@mutant("F5", SEEDS, play)
def parts_count_without_what_makes_them_count() -> None:
    """A reader applies each part as it comes."""

    def read(self: Copy, offset: int, data: bytes) -> Verdict:
        verdict = real(self, offset, data)
        if verdict is Verdict.HELD:
            part = records.decode(data)
            assert isinstance(part, MergePart)
            header = msgspec.structs.replace(part.header, lsn=self.chain.state.lsn + 1)
            self._merged(AppliedMerge(header, b"", part.merged, part.happened, (), 0, 0))
        return verdict

    real = patch(Copy, "read", read)


@mutant("F5", TRACES, play)
def a_merge_counts_though_parts_are_missing() -> None:
    """Whoever has read only some of them takes those."""

    def of(self: MergeParts, record: EpochMerged) -> tuple[MergePart, ...]:
        found = self._of.get(record.header.epoch, {})
        return tuple(found[i][1] for i in sorted(found))

    patch(MergeParts, "of", of)


@mutant("F5", SEEDS, play)
def a_higher_epoch_does_not_void_a_merge() -> None:
    """It counts where it still continues the history, whoever has begun since."""

    def read(self: Chain, record: records.Record, hash_: bytes) -> Verdict:
        if type(record) in (MergePart, EpochMerged) and not self.state.owner and not self.state.opened:
            return self._of_epoch(record, hash_)
        return real(self, record, hash_)  # type: ignore[no-any-return]

    def started(self: Chain, record: records.EpochStarted) -> Verdict:
        parts = self.parts
        verdict = real_started(self, record)
        self.parts = parts
        return verdict  # type: ignore[no-any-return]

    real = patch(Chain, "read", read)
    real_started = patch(Chain, "_started", started)


@mutant("F4", SEEDS, play)
def what_both_branches_have_is_merged_again() -> None:
    """A vote that both have committed, for one."""
    patch(branches, "_alone", lambda one, other, both: [c for _, c in one.committed if c.changes])


@mutant("F5", TRACES, play)
def the_closed_branch_is_not_fenced() -> None:
    """It is read as it is, and its active node goes on."""

    def close(self: Site, *, hand_over: bool) -> None:
        if not self.state.owner:
            self.owner = self.other
            self.fence = self.state.epoch
            in_doubt = tuple(u.offset for u in self.copy.ledger.undecided.values())
            self.closed = ClosedBranch(Checkpoint(len(self.log.entries), self.state), in_doubt)

    patch(Site, "close", close)
    _as_it_is()


@mutant("F5", TRACES, play)
def a_branch_is_read_before_it_is_closed() -> None:
    """Whatever it has by now."""
    _as_it_is()


def _as_it_is() -> None:
    def closed_side(remote: Any, here: str, partition: str, tp: Any) -> Side:
        site = remote.coordinator._site
        in_doubt = tuple(u.offset for u in site.copy.ledger.undecided.values())
        return Side(site.name, site.log, tp, site.state, len(site.log.entries), in_doubt)

    patch(merging_world, "closed_side", closed_side)


@mutant("F5", TRACES, play)
def a_branch_is_closed_while_an_epoch_is_begun() -> None:
    """Nobody has opened it yet."""
    real: Any = merging_world.closed_side

    def closed_side(remote: Any, here: str, partition: str, tp: Any) -> Side | str:
        state, site = remote.coordinator._site.state, remote.coordinator._site
        if site.closed is None or state.owner or (state.opened and not state.closed_for):
            return real(remote, here, partition, tp)  # type: ignore[no-any-return]
        in_doubt = tuple(u.offset for u in site.copy.ledger.undecided.values())
        return Side(site.name, site.log, tp, state, len(site.log.entries), in_doubt)

    patch(merging_world, "closed_side", closed_side)


@mutant("F5", SEEDS, play)
def what_is_equal_on_both_branches_gets_no_version() -> None:
    """Nothing is to be changed there."""

    def merged_at(*args: Any, **more: Any) -> BranchComparison:
        found: BranchComparison = real(*args, **more)
        return found._replace(keys=tuple(d for d in found.keys if d.source != d.initiating))

    real = patch(merging_world, "merged_at", merged_at)


@mutant("F5", SEEDS, play)
def only_readers_of_the_first_branch_take_a_merge() -> None:
    """To those of the other one it does not continue their history."""

    def joined(self: Chain, record: EpochMerged, hash_: bytes) -> Verdict:
        return real(self, record, hash_) if continues(self.state, record.branches[0]) else Verdict.SKIPPED

    real = patch(Chain, "_joined", joined)


@mutant("F5", SEEDS, play)
def a_mirror_goes_on_behind_parts_that_count_for_nothing_yet() -> None:
    """It has read them, has it not?"""
    patch(Mirror, "checkpoint", property(lambda self: Checkpoint(self.offset, self.chain.state)))


@mutant("F5", SEEDS, play)
def a_reader_goes_on_behind_parts_that_count_for_nothing_yet() -> None:
    """Its position is stored like any other."""

    def read(self: Copy, offset: int, data: bytes) -> Verdict:
        verdict = real(self, offset, data)
        self.may_store = verdict is not Verdict.SKIPPED
        return verdict  # type: ignore[no-any-return]

    real = patch(Copy, "read", read)


@mutant("F5", SEEDS, play)
def a_merge_forgets_what_one_before_it_has_brought() -> None:
    """Transactions of a branch that the other site never mirrored."""

    def branch(*args: Any) -> Branch:
        read: Branch = real(*args)
        return read._replace(brought=(), happened=[c.tx for _, c in read.committed if c.changes and any(c.tx)])

    real = patch(BranchReader, "branch", branch)


@mutant("M2", SEEDS, play)
def what_another_branch_has_undone_is_not_known() -> None:
    """Its record is in that site's log."""
    patch(replay, "_undoings", lambda states: next(iter(states)).undoings)


@mutant("F5", SEEDS, play)
def what_the_source_did_while_it_was_being_closed_is_not_read() -> None:
    """The source is taken as it was when the merge was begun."""
    real: Any = patch(BranchReader, "read", lambda self, of: 0 if self._last else real(self, of))


@mutant("F5", SEEDS, play)
def a_merge_that_stands_on_another_history_counts() -> None:
    """A reader of a closed branch that has gone on takes it all the same."""
    patch(merged, "continues", lambda s, b: True)


@mutant("M3", SEEDS, play)
def a_verdict_creates_what_takes_the_place_of_an_object_of_the_source() -> None:
    """Where the merge removes that, or nothing touched it."""
    patch(creating, "_is_held", lambda at, key, into: at is not None and at.choice.then is not None)
