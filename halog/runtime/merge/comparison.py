"""Compares both branches of a partition for a merge, as much of them as possible while it is served (M2).

The other branch is closed. So what is found under a key of this site's branch holds as long as nobody changes that key
here again. The key is compared and decided while this site serves. When its epoch has ended, only the keys that were
changed since are compared again. The first look was a Spark job's, or this node's own. If later records do not fit a
job's results, the merge is refused; if they do not fit the node's own look, everything is compared at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from halog.runtime.merge.decisions import MergeDecisions, check_keys
from halog.runtime.merge.epoch_reopening import EpochLost
from halog.runtime.merge.spark_results import SparkResults
from restore import results
from restore.branch import Branch, BranchReader, Side, aborted
from restore.branches import BranchComparison, merged_at
from restore.divergence import Behind, Fork, compare, history_of
from restore.merge import Difference, Even

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.merge")

LATE = 5_000
"""So many records may be left to be read while nobody serves the partition: a fifth of a second."""

Finish = Callable[[Side], BranchComparison]
"""Compares both branches, once this site's has ended."""


class GrowingBranch:
    """A `GrowingBranch` is this site's branch of a partition, while its node serves it."""

    def __init__(self, host: Host, copy: Copy) -> None:
        self._host = host
        self._copy = copy
        self.partition = copy.name

    def at(self, state: ChainState, offset: int) -> Side:
        """Return the branch with this end."""
        return Side(self._host.site, self._host.log, self._copy.tp, state, offset)

    def now(self) -> Side:
        """Return the branch as it is now."""
        with self._copy.lock:
            core = self._copy.core
            return self.at(core.state.chain.state, core.state.next_offset)

    def read_on(self, read: Callable[[], int]) -> None:
        """Call `read`, which returns how many records were new, until the rest can wait for the epoch's end."""
        while read() > LATE:
            self.go_on()

    def is_over(self) -> bool:
        """Does the node close?"""
        return self._host.pause(0)

    def go_on(self, seconds: float = 0.0) -> None:
        """Sleep so long; EpochLost if the node closes."""
        if self._host.pause(seconds):
            raise EpochLost


class MergeComparison:
    """A `MergeComparison` compares the branches of one merge."""

    def __init__(self, own: GrowingBranch, deciding: MergeDecisions, even: Even | None, *, three_way: bool) -> None:
        self._own = own
        self._deciding = deciding
        self._even = even
        self._three_way = three_way

    def by_itself(self, fork: Fork, theirs: Side, read: Branch, name: bytes) -> Finish:
        """Compare by reading both branches here; `read` is the other one."""
        since = self._read(BranchReader(fork))
        now = self._own.now()
        since.read(now)

        def at_once(ours: Side) -> BranchComparison:
            since.read(ours)
            own = since.branch(ours, aborted)
            return merged_at(fork, ours, theirs, own, read, three_way=self._three_way, even=self._even)

        if isinstance(compare(history_of(now.state), history_of(theirs.state)), Behind):
            return at_once  # so far there is nothing by which they could be compared
        seen = results.seen_of(at_once(now), name, now.state)
        self.decide([*seen.keys.values()])
        later = self._read(BranchReader(seen.manifest.seen))

        def finish(ours: Side) -> BranchComparison:
            later.read(ours)
            new = later.branch(ours, aborted)
            try:
                results.check_later(seen.manifest, new, ours.state)
            except RefusedError:
                logger.info(
                    "%s: later records may be on both branches: everything is compared at once", self._own.partition
                )
                return at_once(ours)
            return results.compared(seen, fork, new, three_way=self._three_way, even=self._even)

        return finish

    def by_results(self, fork: Fork, found: SparkResults, name: bytes, told: Callable[[int], None]) -> Finish:
        """Compare by a job's results; only what this site has done since is read here. Keys that this leaves as they
        were are decided now. `told` is called with their number."""
        since = self._read(found.since(name, fork))
        now = self._own.now()
        since.read(now)
        found.check(since.branch(now, aborted), now.state)  # before an epoch is ended for it
        told(len(found.keys))
        self.decide(found.keys)
        self._read(since)

        def finish(ours: Side) -> BranchComparison:
            since.read(ours)
            return found.compared(fork, since.branch(ours, aborted), ours.state, self._even)

        return finish

    def decide(self, keys: Sequence[Difference]) -> None:
        """Decide these keys, in case they are not changed again. RefusedError for keys that cannot be merged."""
        check_keys(self._own.partition, keys)
        self._deciding.ahead(keys, self._own.is_over)

    def _read(self, branch: BranchReader) -> BranchReader:
        """Read this site's branch while it grows."""
        self._own.read_on(lambda: branch.read(self._own.now()))
        return branch
