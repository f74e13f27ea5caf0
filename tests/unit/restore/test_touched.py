"""How many objects a branch has touched is what a comparison of whole branches finds, however it was read (M1)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from halog.core.keys.directory import entry_key
from halog.errors import LogError
from restore import thread as thread_module, touched as touched_module
from restore.branch import Side, aborted, branch
from restore.divergence import Fork, Place, compare, history_of
from restore.touched import TouchCounter
from tests.unit.core.sites.copy_model import TP
from tests.unit.core.sites.merge_kit import bring, forked, land_all, merged, parted_again
from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.site_model import Site
from tests.unit.restore.sides import side_of

pytestmark = pytest.mark.feature("M1")


@pytest.fixture(autouse=True, params=[3, 2_000])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Entries read in one go."""
    monkeypatch.setattr(thread_module, "PIECE", request.param)
    monkeypatch.setattr(touched_module, "PIECE", request.param)
    return int(request.param)


def fork_of(world: World) -> Fork:
    west, east = side_of(world, "west"), side_of(world, "east")
    fork = compare(history_of(west.state), history_of(east.state))
    assert isinstance(fork, Fork)
    return fork


def place_of(world: World) -> Place:
    (point,) = fork_of(world).at
    return point[:2]


def expected(world: World, at: str) -> int:
    return len(branch(side_of(world, at), fork_of(world), aborted).written)


def done(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def of(side: Side, world: World, most: int = 1_000) -> TouchCounter:
    undecided = world.sites[side.site].copy.ledger.undecided.values()
    return TouchCounter(side.site, side.log, side.tp, side.state, side.end, tuple(undecided), most)


def counted(world: World, at: str) -> int:
    """As whoever holds the copy counts it; and as the other site does, who reads the log from some place."""
    here = of(side_of(world, at), world)
    done(here.count_behind(place_of(world)))
    there = TouchCounter(at, world.sites[at].log, TP, Site.beginning(at), 0)  # type: ignore[arg-type]
    done(there.read_on(len(world.sites[at].log.entries)))
    done(there.count_behind(place_of(world)))
    assert (there.objects, there.state, there.at_least) == (here.objects, here.state, False)
    return here.objects


def go_on(world: World, at: str, chance: random.Random, times: int) -> None:
    for _ in range(times):
        match chance.choice("cccpde"):
            case "c":
                world.commit(at, chance.randrange(5))
            case "p":
                world.prepare(at, chance.randrange(5))
            case "d":
                world.decide(at)
            case "e":
                land_all(world, at)
                world.elect(at, chance.randrange(3))
        land_all(world, at)


@pytest.mark.parametrize("seed", range(40))
def test_both_branches_have_touched_what_a_comparison_finds(seed: int) -> None:
    """Votes lie across the fork, epochs come and go, and the count goes on with the log from any moment."""
    chance, world = random.Random(seed), World(verdicts=-1)
    go_on(world, "west", chance, 8)
    bring(world, "east")
    world.alone("east")
    land_all(world, "east")
    for at in ("west", "east"):
        go_on(world, at, chance, 5)
        world.commit(at, 0)
        land_all(world, at)
    followed = {at: of(side_of(world, at), world) for at in ("west", "east")}
    for at, one in followed.items():
        assert counted(world, at) == expected(world, at)
        done(one.count_behind(place_of(world)))
    for at, one in followed.items():
        go_on(world, at, chance, 6)
        done(one.read_on(len(world.sites[at].log.entries)))
        assert one.objects == counted(world, at) == expected(world, at)


def test_a_merge_touches_all_that_it_settles() -> None:
    """It was merged, and parted again from before the merge."""
    world = parted_again()
    assert counted(world, "west") == expected(world, "west") == 2
    assert counted(world, "east") == expected(world, "east")


def test_a_merge_is_counted_when_it_comes_too() -> None:
    world = merged()
    bring(world, "east")
    followed = TouchCounter("east", world.sites["east"].log, TP, Site.beginning("east"), 0)  # type: ignore[arg-type]
    done(followed.count_behind(followed.state.head))
    done(followed.read_on(len(world.sites["east"].log.entries)))
    assert followed.objects == len(world.sites["east"].copy.objects)
    assert followed.objects == 3


def test_nothing_behind_the_fork_is_nothing_read() -> None:
    world = forked()
    one = of(side_of(world, "west"), world)
    assert done(one.count_behind(one.state.head)) == 0
    assert (one.objects, one.at_least) == (0, False)


def test_beyond_the_limit_it_is_at_least_so_many_and_nothing_more_is_read() -> None:
    world = forked()
    for n in range(5):
        world.commit("west", n)
        land_all(world, "west")
    one = of(side_of(world, "west"), world, most=3)
    done(one.count_behind(place_of(world)))
    assert (one.objects, one.at_least) == (3, True)
    offset = one.offset
    world.commit("west", 0)
    land_all(world, "west")
    assert done(one.read_on(len(world.sites["west"].log.entries))) == 0
    assert (one.objects, one.offset) == (3, offset)


def test_what_grows_beyond_the_limit_becomes_a_lower_bound() -> None:
    world = forked()
    one = of(side_of(world, "west"), world, most=4)
    done(one.count_behind(place_of(world)))
    assert (one.objects, one.at_least) == (1, False)
    for n in range(5):
        world.commit("west", n)
        land_all(world, "west")
    done(one.read_on(len(world.sites["west"].log.entries)))
    assert one.at_least
    assert one.objects >= 2


def test_a_log_that_begins_behind_the_fork_says_so() -> None:
    world = forked()
    world.sites["west"].log.begins = len(world.sites["west"].log.entries) - 1
    with pytest.raises(LogError, match="trimmed"):
        done(of(side_of(world, "west"), world).count_behind((place_of(world)[0], 0)))


def test_entries_of_a_directory_are_no_objects() -> None:
    world = forked()
    one = of(side_of(world, "west"), world)
    one.place = place_of(world)
    one._count([b"a", entry_key(b"a")])
    assert one.objects == 1
