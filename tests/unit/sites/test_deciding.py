"""What triggers say of a key holds as long as its three states are the same ones (M3)."""

from __future__ import annotations

import pytest

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, Change
from halog.runtime.merge.decisions import MergeDecisions
from halog.runtime.merge.epoch_reopening import EpochLost
from restore.compensation import KeepSource
from restore.creating import CreatedObject, KeyDecision, TargetMerge
from restore.merge import BranchCommit, Difference, Instance, Kind
from restore.plan import Choice
from restore.report import merged

pytestmark = pytest.mark.feature("M3", "S1")

REF = b"r" * 24
INTO = TargetMerge("p", b"merge", lambda key: None)


def found(key: int, value: bytes | None = b"1") -> Difference:
    base, source, initiating = (Instance(REF, v) for v in (b"0", value, b"2"))
    by = (BranchCommit(b"t" * 16, 7, 8, (Change(CREATE, REF, b"k", b"1", ABSENT),)),)
    return Difference(b"%08d" % key, Kind.STATE_CONFLICT, base, source, initiating, by, by)


class Triggers:
    """Counts of what they were asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, differences: tuple[Difference, ...]) -> list[KeyDecision]:
        self.asked += [d.key for d in differences]
        return [KeyDecision(Choice(d, KeepSource(), d.source), "by") for d in differences]


def test_only_what_was_not_decided_ahead_is_asked_of() -> None:
    """Ahead in pieces; then of what is new, has another state, or was not known. All are told in the order asked."""
    triggers, keys = Triggers(), [found(n) for n in range(5)]
    keys[4] = found(4, None)
    some = MergeDecisions(triggers, piece=2)
    some.ahead(keys, lambda: False)
    assert triggers.asked == [d.key for d in keys[:4]]
    triggers.asked.clear()
    now = [found(9), keys[0], found(1, b"another"), *keys[2:4], found(4)]
    settled = some.settled(now, INTO)
    assert triggers.asked == [now[0].key, now[2].key, now[5].key]
    assert [s.merged for s in settled] == [merged(Choice(d, KeepSource(), d.source), "by") for d in now]
    assert [s.decided.choice.found for s in settled] == now


def test_what_was_compared_anew_and_is_as_it_was_is_not_asked_of_again() -> None:
    """A merge that has to compare everything at once: most of it was decided ahead, while the partition served."""
    triggers = Triggers()
    some = MergeDecisions(triggers)
    some.ahead([found(n) for n in range(3)], lambda: False)
    triggers.asked.clear()
    again = [found(0), found(1, b"another"), found(2)]
    settled = some.settled(again, INTO)
    assert triggers.asked == [again[1].key]
    assert [s.merged for s in settled] == [merged(Choice(d, KeepSource(), d.source), "by") for d in again]


def test_what_is_created_is_looked_at_over_the_whole_merge() -> None:
    """Two verdicts, given ahead in pieces of their own and later, create the same object: the first key has it."""
    new = CreatedObject(b"new", b"3", "p", "Flight [9]")

    def triggers(differences: tuple[Difference, ...]) -> list[KeyDecision]:
        return [
            KeyDecision(Choice(d, KeepSource(), d.source), "by", (new,) if d is not keys[1] else ())
            for d in differences
        ]

    keys = [found(n) for n in range(3)]
    some = MergeDecisions(triggers)
    some.ahead(keys[1:], lambda: False)
    settled = some.settled(keys, INTO)
    assert [s.merged.key for s in settled] == [*(d.key for d in keys), b"new"]
    assert [s.merged.value for s in settled] == [b"1", b"1", b"1", b"3"]
    assert [s.decided.choice.deferred for s in settled] == [
        "",
        "",
        "by: Flight [9] is to be created, and by has created it beside another object",
        "",
    ]
    assert all(s.merged == merged(s.decided.choice, "by") for s in settled)


def test_a_node_that_ends_decides_no_more() -> None:
    triggers = Triggers()
    with pytest.raises(EpochLost):
        MergeDecisions(triggers, piece=2).ahead([found(n) for n in range(9)], lambda: len(triggers.asked) >= 4)
    assert len(triggers.asked) == 4
