"""A node compares both branches ahead, and folds what came since into that; else it compares them at once (M2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from halog.runtime.merge.comparison import MergeComparison
from halog.runtime.merge.compensation import by_the_rules
from halog.runtime.merge.decisions import MergeDecisions
from restore.branch import BranchReader, Side, aborted
from restore.branches import BranchComparison, merged_at
from tests.unit.core.sites.begun_merge import Begun
from tests.unit.core.sites.merge_kit import land_all
from tests.unit.core.sites.merge_model import World
from tests.unit.spark_jobs.test_handed_on import parted

pytestmark = pytest.mark.feature("M2")


class Own:
    """The east's branch in a model."""

    partition = "p"

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Side:
        return self._world.side_of(self._world.sites["east"])

    def read_on(self, read: Callable[[], int]) -> None:
        read()

    def is_over(self) -> bool:
        return False


def begun() -> tuple[World, Begun]:
    """The west is closed; a transaction that was voted for before both parted is in doubt at the east."""
    world = parted()
    world.merge("east")
    return world, world.begun["east"]


def at_once(world: World, one: Begun) -> BranchComparison:
    assert one.fork is not None
    assert one.theirs is not None
    assert one.read is not None
    own, ours = BranchReader(one.fork), Own(world).now()
    own.read(ours)
    return merged_at(one.fork, ours, one.theirs, own.branch(ours, aborted), one.read)


def looked(world: World, one: Begun) -> Callable[[Side], BranchComparison]:
    assert one.fork is not None
    assert one.theirs is not None
    assert one.read is not None
    comparing = MergeComparison(cast(Any, Own(world)), MergeDecisions(by_the_rules), None, three_way=True)
    return comparing.by_itself(one.fork, one.theirs, one.read, one.name)


def test_only_keys_that_were_touched_since_are_compared_anew() -> None:
    world, one = begun()
    finish, before = looked(world, one), at_once(world, one)
    world.commit("east", 2), world.commit("east", 4)
    land_all(world, "east")
    found, expected = finish(Own(world).now()), at_once(world, one)
    assert found.keys == expected.keys
    assert found.keys != before.keys
    again = finish(Own(world).now())
    same = {d.key for d, other in zip(found.keys, again.keys, strict=True) if d is other}
    assert {d.key for d in found.keys} - same == {b"c", b"e"}, "the others were decided ahead"


def test_what_was_voted_for_before_the_fork_and_decided_since_has_all_of_it_compared_at_once() -> None:
    """The other branch may have it, too, which the look did not see."""
    world, one = begun()
    finish = looked(world, one)
    world.decide("east")
    land_all(world, "east")
    expected = at_once(world, one)
    assert finish(Own(world).now()) == expected
    assert expected.source is not None
    assert any(what.origin is not None for what, _ in expected.source.committed)
