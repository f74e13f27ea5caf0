"""Both branches of a partition compared, where they are merged: as much of it as can be while it is served (M2).

The other branch is closed. So what a look at this site's own finds under a key holds as long as nobody touches that key
again here: it is compared, and what is to stand is decided, while this site serves. Behind the end of its epoch only
the keys that were touched since are compared anew. The look was a Spark job's, or the node has had it itself; the one
is refused where what came since does not fit it, in place of the other one everything is compared at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from halog.runtime.merge.decisions import Deciding, check_keys
from halog.runtime.merge.epoch_reopening import Lost
from halog.runtime.merge.spark_results import Results
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
"""Records that may be read while the partition serves nobody: a fifth of a second."""

Finish = Callable[[Side], BranchComparison]
"""Both branches compared, once this site's has ended."""


class Growing:
    """This site's branch of a partition, while its node serves it."""

    def __init__(self, host: Host, copy: Copy) -> None:
        self._host = host
        self._copy = copy
        self.partition = copy.name

    def at(self, state: ChainState, offset: int) -> Side:
        """Where it ends, or has."""
        return Side(self._host.site, self._host.log, self._copy.tp, state, offset)

    def now(self) -> Side:
        """So far."""
        with self._copy.lock:
            core = self._copy.core
            return self.at(core.chain.state, core.next_offset)

    def read_on(self, read: Callable[[], int]) -> None:
        """Until so little is new that the rest can wait for the epoch's end."""
        while read() > LATE:
            self.go_on()

    def is_over(self) -> bool:
        """Does the node close?"""
        return self._host.pause(0)

    def go_on(self, seconds: float = 0.0) -> None:
        """Unless the node closes."""
        if self._host.pause(seconds):
            raise Lost


class Comparing:
    """Of one merge."""

    def __init__(self, own: Growing, deciding: Deciding, even: Even | None, *, three_way: bool) -> None:
        self._own = own
        self._deciding = deciding
        self._even = even
        self._three_way = three_way

    def by_itself(self, fork: Fork, theirs: Side, read: Branch, name: bytes) -> Finish:
        """Both branches are read here; `read`: the other one."""
        since = self._read(BranchReader(fork))
        now = self._own.now()
        since.read(now)

        def at_once(ours: Side) -> BranchComparison:
            since.read(ours)
            own = since.branch(ours, aborted)
            return merged_at(fork, ours, theirs, own, read, three_way=self._three_way, even=self._even)

        if isinstance(compare(history_of(now.state), history_of(theirs.state)), Behind):
            return at_once  # nothing is there so far that they could be compared by
        seen = results.seen_of(at_once(now), name, now.state)
        self.decide([*seen.keys.values()])
        later = self._read(BranchReader(seen.manifest.seen))

        def finish(ours: Side) -> BranchComparison:
            later.read(ours)
            new = later.branch(ours, aborted)
            try:
                results.check_later(seen.manifest, new, ours.state)
            except RefusedError:
                logger.info("%s: what came since may be on both branches: compared at once", self._own.partition)
                return at_once(ours)
            return results.compared(seen, fork, new, three_way=self._three_way, even=self._even)

        return finish

    def by_results(self, fork: Fork, found: Results, name: bytes, told: Callable[[int], None]) -> Finish:
        """A job has read them; here only what this site has done since. What that leaves as it was is decided now.
        `told`: is called with how many keys these are."""
        since = self._read(found.since(name, fork))
        now = self._own.now()
        since.read(now)
        found.check(since.branch(now, aborted), now.state)  # before anything is ended for it
        told(len(found.keys))
        self.decide(found.keys)
        self._read(since)

        def finish(ours: Side) -> BranchComparison:
            since.read(ours)
            return found.compared(fork, since.branch(ours, aborted), ours.state, self._even)

        return finish

    def decide(self, keys: Sequence[Difference]) -> None:
        """What is to stand under them, unless they are touched again. RefusedError for keys that cannot be merged."""
        check_keys(self._own.partition, keys)
        self._deciding.ahead(keys, self._own.is_over)

    def _read(self, branch: BranchReader) -> BranchReader:
        """This site's, while it grows."""
        self._own.read_on(lambda: branch.read(self._own.now()))
        return branch
