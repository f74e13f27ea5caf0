"""What a merge tells of each key stays below what the log takes, however often the key was written (M3, R8)."""

from __future__ import annotations

import pytest

from halog.adapters.kafka import conf as kafka_conf
from halog.config.check import LOG_BYTES
from halog.core.commit.size_limits import most_bytes
from halog.core.ids import EpochId
from halog.core.log import records
from restore.merge import BranchCommit, Difference, Instance, Kind
from restore.plan import Choice
from restore.report import entry, merged

HEADER = records.Header(b"l" * 16, EpochId(2**40, "x" * 100, 2**40), 2**40, b"h" * 16, b"t" * 16)


def written(first: int, times: int) -> tuple[BranchCommit, ...]:
    return tuple(
        BranchCommit(n.to_bytes(16, "big"), first + n, 1_800_000_000_000 + n, ()) for n in range(2**40, 2**40 + times)
    )


@pytest.mark.feature("M3", "R8")
def test_of_an_object_that_was_written_very_often_the_latest_writes_are_told() -> None:
    """With the largest values there may be, a part with one such object is no larger than the log takes."""
    most = most_bytes(LOG_BYTES, 0, before_images=True)
    states = [Instance(bytes((i,)) * 24, bytes((i,)) * most) for i in range(3)]
    ours, theirs = written(1, 200_000), written(2, 300_000)
    found = Difference(b"key", Kind.STATE_CONFLICT, states[0], states[1], states[2], ours, theirs)
    made = merged(Choice(found, None, states[1]), "")
    part = records.MergePart(HEADER, 0, (made,))
    assert len(records.encode(part)) < kafka_conf.MAX_BYTES
    told = entry(made)
    assert told.then == states[1]
    for side, by in ((told.found.source_by, ours), (told.found.initiating_by, theirs)):
        assert [(c.tx, c.lsn) for c in side] == [(c.tx, c.lsn) for c in by[-len(side) :]]
        assert len(side) >= 1_000
