"""The judge of a split accounts for each acknowledged write, and is not blind: whatever is lost, doubled or off by one
is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.demo.journal import ObjectWrite
from halog.demo.split.journal import AIRCRAFT, DEPARTURE, WriteClaims
from halog.demo.split.verify import ReportedConflict, SiteObjects, WriteVerdict, conflicts, judge

pytestmark = pytest.mark.feature("M1", "M2", "M3")

STATE, KEY, ADDED, DELETED = "state conflict", "key conflict", "instance added", "delete update"


def claims(**chains: str) -> WriteClaims:
    """Each departure's chain of states: `A="w1 w2 -"` is announced, moved, dropped; a first word `saw:x` is what it
    found."""
    writes = {}
    for key, chain in chains.items():
        saw, steps = "", list[ObjectWrite]()
        for word in chain.split():
            if word.startswith("saw:"):
                saw = word.removeprefix("saw:")
                continue
            left = "" if word == "-" else word
            steps.append(ObjectWrite(DEPARTURE, key, saw, left))
            saw = left
        writes[DEPARTURE, key] = steps
    return WriteClaims(writes, 0)


def landings(claims: WriteClaims, tail: str, *miles: int) -> WriteClaims:
    writes = [ObjectWrite(AIRCRAFT, tail, added=(1, m, 2 * m)) for m in miles]
    return WriteClaims({**claims.writes, (AIRCRAFT, tail): writes}, claims.unknown)


WEST = landings(
    claims(A="w1", B="w2 w3", C="w4 w5 w6", D="w7", E="w8 w9", F="w10", G="w11 -", H="w12 -", I="w13 -"), "N1", 10, 20
)
EAST = landings(
    claims(B="saw:w3 e1 e2", C="saw:w4 e3 e4", F="e5", E="saw:w8 -", H="saw:w12 e6", J="e7", I="saw:w13 -"), "N1", 30
)
"""A: west's alone. B: east goes on from what both had. C: both changed it. D: only west has it. E: west changed it, and
east dropped it. F: both made one. G: west dropped it. H: west dropped it, east changed it. I: both dropped it. J:
east's."""
SEEN = SiteObjects(
    [("A", "w1"), ("B", "e2"), ("C", "e4"), ("D", "w7"), ("F", "e5"), ("H", "e6"), ("J", "e7")],
    [(AIRCRAFT, "N1", (3, 60, 120))],
)
REPORT = {
    "C": ReportedConflict(STATE, "e4", "w6"),
    "D": ReportedConflict(ADDED, "", "w7"),
    "E": ReportedConflict(DELETED, "", "w9"),
    "F": ReportedConflict(KEY, "e5", "w10"),
    "H": ReportedConflict("update delete", "e6", ""),
}


def there(**changed: str) -> SiteObjects:
    """What is seen, with other departures; "" is none."""
    found = {**dict(SEEN.departures), **changed}
    return SiteObjects([(key, state) for key, state in found.items() if state], SEEN.sums)


def summed(*sums: int) -> SiteObjects:
    return SiteObjects(SEEN.departures, [(AIRCRAFT, "N1", (sums[0], sums[1], sums[2]))])


def told(**changed: ReportedConflict) -> dict[str, ReportedConflict]:
    return {**REPORT, **changed}


def test_every_fate_is_told() -> None:
    verdict = judge(WEST, EAST, SEEN, REPORT)
    assert verdict.examples == []
    assert verdict.ok
    # merged: A, D, G's end, I's two ends, three landings; E's end; and east's last of B, C, F, H, J
    assert verdict.merged == 1 + 1 + 1 + 2 + 3 + 1 + 5
    assert verdict.superseded == len(["w2", "w3", "e1", "w4", "w5", "e3", "w8", "w11", "w12", "w13"])
    assert verdict.overruled == len(["C w6", "E w9", "F w10", "H -"])
    counted = verdict.merged + verdict.superseded + verdict.overruled + verdict.unaccounted
    assert counted == WEST.acknowledged + EAST.acknowledged


LOST: dict[str, tuple[Callable[[], WriteVerdict], int]] = {
    "a write of one site alone is not there": (lambda: judge(WEST, EAST, there(A=""), REPORT), 1),
    "an added instance is not there": (lambda: judge(WEST, EAST, there(D=""), REPORT), 0),
    "an added instance is neither there nor in the report": (
        lambda: judge(WEST, EAST, there(D=""), {k: r for k, r in REPORT.items() if k != "D"}),
        1,
    ),
    "what stands is not the last of its branch": (lambda: judge(WEST, EAST, there(B="e1"), REPORT), 1),
    "what was overruled is not in the report": (
        lambda: judge(WEST, EAST, SEEN, {k: r for k, r in REPORT.items() if k != "C"}),
        1,
    ),
    "the report has another state of the overruled one": (
        lambda: judge(WEST, EAST, SEEN, told(C=ReportedConflict(STATE, "e4", "w5"))),
        1,
    ),
    "the report has another state of the one that stands": (
        lambda: judge(WEST, EAST, SEEN, told(C=ReportedConflict(STATE, "e3", "w6"))),
        1,
    ),
    "a deleted object is there again": (lambda: judge(WEST, EAST, there(G="w11"), REPORT), 0),
    "what both deleted is there again": (lambda: judge(WEST, EAST, there(I="w13"), REPORT), 2),
    "an object nobody wrote": (lambda: judge(WEST, EAST, there(Z="w99"), REPORT), 0),
    "a conflict nobody wrote": (lambda: judge(WEST, EAST, SEEN, told(Z=ReportedConflict(STATE, "e", "w"))), 0),
    "an object twice": (lambda: judge(WEST, EAST, SiteObjects([*SEEN.departures, ("A", "w1")], SEEN.sums), REPORT), 0),
    "a conflict was decided against the rule": (lambda: judge(WEST, EAST, there(C="w6"), REPORT), 0),
    "a write never found the one before it": (
        lambda: judge(claims(A="w1 w2"), claims(A="saw:e9 e1"), SiteObjects([("A", "e1")], []), {}),
        2,
    ),
    "a lost update in the middle": (
        lambda: judge(
            WriteClaims(
                {(DEPARTURE, "A"): [ObjectWrite(DEPARTURE, "A", "", "w1"), ObjectWrite(DEPARTURE, "A", "", "w2")]}, 0
            ),
            claims(),
            SiteObjects([("A", "w2")], []),
            {},
        ),
        1,
    ),
    "a counter one too low": (lambda: judge(WEST, EAST, summed(2, 50, 100), REPORT), 1),
    "a landing merged twice": (lambda: judge(WEST, EAST, summed(4, 70, 140), REPORT), 1),
    "only the source's landings": (lambda: judge(WEST, EAST, summed(1, 30, 60), REPORT), 2),
    "one landing twice and another one not at all": (lambda: judge(WEST, EAST, summed(3, 50, 100), REPORT), 1),
    "a mile too many": (lambda: judge(WEST, EAST, summed(3, 61, 120), REPORT), 1),
    "a counter of nobody": (
        lambda: judge(WEST, EAST, SiteObjects(SEEN.departures, [*SEEN.sums, (AIRCRAFT, "N9", (1, 1, 1))]), REPORT),
        1,
    ),
    "a counter that is not there": (lambda: judge(WEST, EAST, SiteObjects(SEEN.departures, []), REPORT), 3),
    "a counter twice": (lambda: judge(WEST, EAST, SiteObjects(SEEN.departures, [*SEEN.sums, *SEEN.sums]), REPORT), 0),
    "an outcome that nobody knows": (lambda: judge(WEST._replace(unknown=1), EAST, SEEN, REPORT), 0),
}


@pytest.mark.parametrize("what", LOST)
def test_the_judge_is_not_blind(what: str) -> None:
    judged, unaccounted = LOST[what]
    verdict = judged()
    assert not verdict.ok
    assert verdict.examples
    assert verdict.unaccounted == unaccounted


def test_what_a_site_made_and_ended_itself_leaves_nothing() -> None:
    """The other one has made another one under the same key meanwhile, and that is no conflict."""
    verdict = judge(claims(A="w1 -"), claims(A="e1"), SiteObjects([("A", "e1")], []), {})
    assert verdict.ok
    assert (verdict.merged, verdict.superseded) == (2, 1)


def test_what_the_other_site_knew_is_ended_by_a_conflict_only() -> None:
    """Had it been announced for both, its end would have to be in the report."""
    verdict = judge(claims(A="w1 -"), claims(A="saw:w1 e1"), SiteObjects([("A", "e1")], []), {})
    assert (verdict.ok, verdict.unaccounted) == (False, 1)


def test_conflicts_are_counted_by_class() -> None:
    found = conflicts([STATE, STATE, KEY, ADDED, DELETED, "update delete", "taken"])
    assert (found.instance_added, found.key, found.state, found.delete_update) == (1, 1, 2, 2)
