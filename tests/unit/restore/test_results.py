"""What was found of two branches, and what one of them has done since, is what is found of both at once (S1, M3)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from halog.core.ids import NO_EPOCH, digest
from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from restore import results
from restore.branch import Branch
from restore.divergence import AcceptedRecord, Fork, Point
from restore.merge import BranchCommit, Difference, differences, touched, two_way
from restore.results import BranchTransactions, JobFindings, Manifest
from tests.unit.restore.branches import World, worlds

pytestmark = pytest.mark.feature("S1", "M3")

RUN = b"r" * 16
FORK = Fork((Point(NO_EPOCH, 0, None),), ())


def manifest(chunks: Sequence[bytes], keys: int) -> Manifest:
    names = tuple(digest(chunk) for chunk in chunks)
    return Manifest(
        1, b"m", (NO_EPOCH, 0), b"f", NO_EPOCH, 1, b"h", keys, names, BranchTransactions(()), BranchTransactions(())
    )


def carried(keys: Sequence[Difference]) -> JobFindings:
    """Written and read."""
    chunks = [chunk for _, chunk in results.chunks_of(map(results.told, keys))]
    packed = results.packed(manifest(chunks, len(keys)))
    return results.read([v for c in (*chunks, packed) for v in results.records_of(RUN, c)], RUN, digest(packed))


def later(commits: Sequence[BranchCommit]) -> Branch:
    done = [(AcceptedRecord(NO_EPOCH, c.lsn, b"", c.tx), c) for c in commits]
    return Branch(done, {}, 0, (), b"h", written={x.key: None for c in commits for x in c.changes})


def bare(found: Difference) -> Difference:
    """As it travels: ids have a size, and changes stay behind."""
    by = [
        tuple(c._replace(tx=c.tx.ljust(16, b"\0"), changes=()) for c in side)
        for side in (found.source_by, found.initiating_by)
    ]
    return found._replace(source_by=by[0], initiating_by=by[1])


def blind(branch: Sequence[BranchCommit]) -> list[BranchCommit]:
    """The same by a policy that keeps no before-images."""
    return [c._replace(changes=[replace(x, before=None) for x in c.changes]) for c in branch]


@given(worlds(), st.integers(0, 8), st.booleans(), st.booleans(), st.booleans())
def test_wherever_the_source_is_cut(world: World, at: int, three: bool, sees: bool, half: bool) -> None:
    """By either rule; it is found with the common ancestor in any case."""
    source, initiating = world.source, world.initiating
    if not sees:
        source, initiating = blind(source), (initiating if half else blind(initiating))
    theirs = touched(initiating)
    seen = carried(list(differences(touched(source[:at]), theirs)))
    found = results.compared(seen if three else results.two_way_of(seen), FORK, later(source[at:]), three_way=three)
    expected = (differences if three else two_way)(touched(source), theirs)
    assert [bare(d) for d in found.keys] == [bare(d) for d in expected]


def test_a_merge_that_was_made_since_is_told() -> None:
    """It may have brought what the other branch has."""
    made = manifest([], 0)
    now = ChainState(b"l" * 16, "east", hash=b"h")
    results.check_later(made, later([]), now)
    with pytest.raises(RefusedError, match="a merge was made behind what the Spark job has seen"):
        results.check_later(made, later([])._replace(brought=(b"tx",)), now)
