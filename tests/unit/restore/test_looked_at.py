"""Who merges by a look that he has had before, and by what was done since, writes the very records that he writes
having compared both branches at once (M2)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest

from restore import results
from restore.branch import BranchReader, Side, aborted
from restore.branches import merged_at
from restore.divergence import Fork, compare, history_of
from restore.results import JobFindings
from tests.unit.core.sites.copy_model import TP, Copy
from tests.unit.core.sites.merge_steps import by_chance
from tests.unit.core.sites.site_model import Site
from tests.unit.spark_jobs.test_handed_on import Judged

pytestmark = [pytest.mark.feature("M2", "M3"), pytest.mark.timeout(120)]


class Looking(Judged):
    """No job does, but whoever merges."""

    def _job(self, site: Site, theirs: Side, end: int) -> JobFindings | None:
        one = self.begun[site.name]
        assert one.fork is not None
        assert one.read is not None
        copy = Copy(Site.beginning(site.name))
        for entry in site.log.read(TP, 0, end):
            copy.read(entry.offset, entry.value)
        now = Side(site.name, cast(Any, site.log), TP, copy.chain.state, end)
        relation = compare(history_of(now.state), history_of(theirs.state))
        if not isinstance(relation, Fork) or relation.at != one.fork.at:  # another merge was made here since
            return None
        own = BranchReader(one.fork)
        own.read(now)
        branch = own.branch(now, aborted)
        return results.seen_of(
            merged_at(one.fork, now, theirs, branch, one.read, three_way=not one.two_way), one.name, now.state
        )


@pytest.mark.parametrize("part", range(4))
def test_worlds_by_chance(part: int) -> None:
    """With evidence, ids and votes, byte for byte; whatever was done since the look."""
    seen: Counter[str] = Counter()
    for seed in range(part * 60, part * 60 + 60):
        world, steps = by_chance(seed, Looking)
        assert isinstance(world, Looking)
        world.chance = random.Random(seed)
        for name, *args in steps:
            getattr(world, name)(*args)
        world.finish()
        seen += world.seen
    assert seen["merged"] > 15, seen
    assert min(seen["later"], seen["again"], seen["decided"], seen["created"]) > 0, seen
    assert seen["refused"] < seen["merged"] / 4, seen
