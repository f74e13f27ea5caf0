"""What executors make of two branches is what `restore.merge` makes of them, for any two in any pieces (S1)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.errors import DivergedError
from restore.branches import BranchComparison, outcomes
from restore.divergence import Same
from restore.merge import BranchCommit, Difference, Instance, KeyTouches, Kind, State, differences, touched, two_way
from restore.plan import totals
from restore.results import BY
from spark_jobs.branching import FOLDED_SCHEMA, INITIATING, SOURCE, Branch, as_batches, folded
from spark_jobs.classifying import Classify, Gone
from spark_jobs.counted import Group, totals_of
from spark_jobs.snapshot import Place
from tests.unit.restore.branches import World, worlds
from tests.unit.spark_jobs.following import pieces

pytestmark = pytest.mark.feature("S1", "M3")

PLACE = Place("p-0", 0, "p.log", "p.state", "00" * 16, "west")
CUTS = st.lists(st.integers(1, 8), max_size=6)
"""Where a branch, and where the rows of both, are cut into pieces."""


def rows_of(side: int, branch: Sequence[BranchCommit], cuts: list[int], place: Place = PLACE) -> list[tuple[Any, ...]]:
    """A branch as executors send it on, folded a piece at a time."""
    of = Branch(place, side, 0, b"")
    return [row for piece in pieces(branch, cuts) for row in folded(of, piece)]


def classified(
    rows: list[tuple[Any, ...]],
    cuts: list[int],
    gone: Collection[Gone] = (),
    *,
    definitions: Sequence[str] = (),
    three_way: bool = True,
) -> list[dict[str, Any]]:
    """As Spark gives them to executors: sorted, in batches that end anywhere."""
    ordered = sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))
    batches = [batch for some in pieces(ordered, cuts) for batch in as_batches(FOLDED_SCHEMA, some)]
    classify = Classify(["p-0", "p-1"], gone, definitions, three_way=three_way)
    return [row for batch in classify(batches) for row in batch.to_pylist()]


def as_row(found: Difference) -> dict[str, Any]:
    """What a row is to say of a difference."""
    stands = "initiating" if found.by_default == found.initiating else "source"
    row: dict[str, Any] = {
        "partition": "p-0",
        "key": found.key,
        "kind": found.kind.value,
        "stands": "both" if found.source == found.initiating else stands,
        "base": _state(found.base),
        "source": _state(found.source),
        "initiating": _state(found.initiating),
    }
    for side, by in (("source", found.source_by), ("initiating", found.initiating_by)):
        row[f"{side}_lsn"] = by[-1].lsn if by else None
        row[f"{side}_time"] = by[-1].time_ms if by else None
        row[f"{side}_txs"] = len(by)
        row[f"{side}_ids"] = b"".join(BY.pack(c.tx, c.lsn, c.time_ms) for c in by)
    return row


def _state(state: State) -> dict[str, bytes | None] | None:
    return None if state is None else {"ref": state.ref, "value": state.value}


def plainly(row: dict[str, Any]) -> dict[str, Any]:
    """Times as ms since 1970."""
    times = {name: None if row[name] is None else round(row[name].timestamp() * 1000) for name in row if "time" in name}
    return {**row, **times}


def blind(branch: Sequence[BranchCommit]) -> list[BranchCommit]:
    """The same by a policy that keeps no before-images."""
    return [c._replace(changes=[replace(x, before=None) for x in c.changes]) for c in branch]


def gathered(branch: Sequence[BranchCommit], sizes: list[int]) -> list[BranchCommit]:
    """The same by transactions of several changes, also of one object."""
    return [
        BranchCommit(some[0].tx, some[0].lsn, some[0].time_ms, [x for c in some for x in c.changes])
        for some in pieces(branch, sizes)
    ]


@given(worlds(), CUTS, CUTS, CUTS, CUTS, st.booleans(), st.booleans(), st.booleans())
def test_it_finds_what_the_plain_comparison_finds(
    world: World,
    ours: list[int],
    theirs: list[int],
    cuts: list[int],
    sizes: list[int],
    sees: bool,
    half: bool,
    three: bool,
) -> None:
    """Every key once, the same kind and states, whoever wrote last and how often; however the rows were cut."""
    source, initiating = gathered(world.source, sizes), world.initiating
    if not sees:
        source, initiating = blind(source), (initiating if half else blind(initiating))
    rows = rows_of(SOURCE, source, ours) + rows_of(INITIATING, initiating, theirs)
    expected = list((differences if three else two_way)(touched(source), touched(initiating)))
    found = classified(rows, cuts, three_way=three)
    assert sorted(map(plainly, found), key=lambda row: row["key"]) == [as_row(d) for d in expected]
    assert totals_of(groups(found)) == totals(outcomes(BranchComparison(Same(), tuple(expected))))


def groups(found: list[dict[str, Any]]) -> list[Group]:
    """As Spark counts them."""
    keys, txs = Counter[tuple[str, str, bool, bool]](), Counter[tuple[str, str, bool, bool]]()
    for row in found:
        group = row["kind"], row["stands"], row["source_txs"] > 0, row["initiating_txs"] > 0
        keys[group] += 1
        txs[group] += row["source_txs"] + row["initiating_txs"]
    return [Group(*group, n, txs[group]) for group, n in keys.items()]


NOW: list[State] = [None, *(Instance(ref, value) for ref in (b"a", b"n", b"m") for value in (b"1", b"2", b"3"))]
BASES: list[tuple[State, State]] = [
    (None, None),
    *((Instance(b"a", mine), Instance(b"a", yours)) for mine in (b"1", None) for yours in (b"1", None)),
]
"""What each branch knows of what stood there."""


def every_key(three_way: bool) -> tuple[list[tuple[Any, ...]], list[Difference]]:
    """A key for each way in which two branches can have touched it, as rows, and the plain comparison of it."""
    rows: list[tuple[Any, ...]] = []
    expected: list[Difference] = []
    ways = itertools.product(BASES, [(True, True), (True, False), (False, True)], NOW, NOW)
    for n, (bases, touch, *ends) in enumerate(ways):
        key, sides = b"%06d" % n, [dict[bytes, KeyTouches](), dict[bytes, KeyTouches]()]
        for side in (SOURCE, INITIATING):
            base, now = bases[side], ends[side]
            if touch[side]:
                sides[side][key] = KeyTouches(base, now, (BranchCommit(b"t", n, n, ()),))
                states = [x for state in (base, now) for x in ((None, None) if state is None else state)]
                rows.append((0, side, key, n, n, n, 1, *states, None, None, None, BY.pack(b"t", n, n)))
        source, initiating = sides
        expected += (differences if three_way else two_way)(source, initiating)
    return rows, expected


@pytest.mark.parametrize("three_way", [True, False])
def test_keys_of_one_pattern_are_of_one_kind(three_way: bool) -> None:
    """Every way there is, judged by the first key of each pattern: as if each had been asked for."""
    rows, expected = every_key(three_way)
    assert len(expected) == len(BASES) * 3 * len(NOW) ** 2
    for found in (
        classified(rows, [], three_way=three_way),
        classified(rows[::-1], [1_000, 1_001], three_way=three_way),
    ):
        assert list(map(plainly, found)) == [as_row(d) for d in expected]


KEY = b"k"


def update(lsn: int, before: bytes, value: bytes, ref: bytes = b"a") -> BranchCommit:
    return BranchCommit(b"t%d" % lsn, lsn, lsn, [Change(UPDATE, ref, KEY, value, 1, before)])


@pytest.mark.parametrize(
    "second",
    [
        BranchCommit(b"t2", 2, 2, [Change(CREATE, b"n", KEY, b"1", -1)]),
        BranchCommit(b"t2", 2, 2, [Change(DELETE, b"n", KEY, None, 1, b"2")]),
        update(2, b"9", b"3"),
    ],
)
def test_a_branch_of_which_a_piece_is_missing_is_none(second: BranchCommit) -> None:
    first = update(1, b"1", b"2")
    with pytest.raises(DivergedError, match=r"lsn 2 .* a part of the branch is missing"):
        touched([first, second])
    with pytest.raises(DivergedError, match=r"lsn 2 changes 6b, .* a part of the branch is missing"):
        classified(rows_of(SOURCE, [first, second], [1]), [])


def test_branches_that_began_with_other_objects_are_no_fork() -> None:
    """Also where others like it have been judged before."""
    good = [
        (0, side, b"j", 1, 1, 1, 1, b"a", b"1", b"a", b"2", None, None, None, BY.pack(b"t", 1, 1))
        for side in (SOURCE, INITIATING)
    ]
    rows = [*good, *rows_of(SOURCE, [update(1, b"1", b"2")], []), *rows_of(INITIATING, [update(1, b"8", b"2")], [])]
    with pytest.raises(DivergedError, match="no fork of theirs"):
        classified(rows, [])


def test_one_key_of_two_partitions_is_two() -> None:
    other = replace(PLACE, name="p-1", index=1)
    rows = rows_of(SOURCE, [update(1, b"1", b"2")], []) + rows_of(INITIATING, [update(1, b"1", b"3")], [], other)
    assert [(r["partition"], r["kind"]) for r in classified(rows, [])] == [("p-0", "kept"), ("p-1", "taken")]


def test_what_the_other_branch_has_as_well_only_gives_another_version() -> None:
    """At its own side; where anything else has touched the key, that alone is told."""
    of, other = Branch(PLACE, SOURCE, 0, b""), Branch(PLACE, INITIATING, 0, b"")
    apart = folded(of, [update(1, b"1", b"2")], b"t1") + folded(other, [update(2, b"1", b"2")], b"t1")
    (told,) = classified(apart, [])
    assert (told["kind"], told["source_txs"], told["initiating_txs"]) == ("alike", 1, 1)
    gone = {(0, SOURCE, b"t1"), (0, INITIATING, b"t1"), (1, SOURCE, b"t3")}
    state = Instance(b"a", b"2")
    same = Difference(KEY, Kind.SAME, state, state, state, (), ())
    assert list(map(plainly, classified(apart, [], gone))) == [as_row(same)]
    later = folded(other, [update(3, b"2", b"3")])
    (told,) = classified(apart + later, [1], gone)
    assert (told["kind"], told["source_lsn"], told["initiating_lsn"]) == ("taken", None, 3)
    (told,) = classified(apart + later, [1], {(0, SOURCE, b"t1")})
    assert (told["kind"], told["base"]["value"], told["initiating_txs"]) == ("taken", b"1", 2)
