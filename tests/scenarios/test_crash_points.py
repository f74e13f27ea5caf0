"""Every crash point of a migration and of a move (P12, P13): each is first run calmly, and everything it sets in the
coordinator and appends to a log is listed; then it is run again, once for each of these and each node that has a part
in it, and that node is killed right behind it, before anybody has heard of it. The partition goes on, and what was
begun is completed.

The runs are deterministic, so the list of the calm one is the list of all, up to the crash.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.core import events as ev
from halog.core.records import Commit, decode
from halog.core.table import PartitionTable, Target
from tests.scenarios.cluster import Cluster
from tests.scenarios.test_mapping_traces import Story
from tests.sim import moves
from tests.sim.goods import finish
from tests.sim.shop import Mover

GRAIN_MS = 0.05
"""Less than anything takes on its way: nobody has heard of what happened within it."""
LOOK_MS = 1.0
"""Where the moment does not matter."""
LONG_MS = 3_000.0
"""An election, a restart and a migration, several times over."""

# --- a migration: A, B becomes C, B ---

TARGET = Target(("C", "B"), 1)


class Migration(Cluster):
    """A is active, B its sync replica, C has no copy; and an operator has just wished it to be on C and B."""

    def __init__(self) -> None:
        super().__init__(moving=True)
        self.started()
        self.first = self.commit()
        assert self.world.coordinator.table.configured == ("A", "B")
        assert moves.wish(self.world, TARGET)
        self.sets, self.records = len(self.world.coordinator.values), len(self.world.log.entries)

    def listed(self) -> tuple[list[PartitionTable], list[str]]:
        """What was set, and what was logged since the wish."""
        records = [type(decode(e.data)).__name__ for e in self.world.log.entries[self.records :]]
        return self.world.coordinator.values[self.sets :], records

    def until(self, condition: Callable[[], object], grain_ms: float = LOOK_MS) -> None:
        until(condition, self.run, grain_ms)

    def until_step(self, count: int) -> None:
        """So many sets and records."""
        self.until(lambda: sum(map(len, self.listed())) >= count, GRAIN_MS)

    def serves(self) -> None:
        """Somebody is active, and a transaction goes through, maybe not the first that is tried."""
        for _ in range(100):
            if (active := self.active) is not None:
                tx = self.transaction(at=active)
                if [type(r) for r in self.submit(tx, active, ms=30).said] == [ev.Happened]:
                    assert self.committed(tx) == 1
                    return
            self.run(10)
        raise AssertionError("nobody serves")

    def done(self) -> bool:
        table = self.world.coordinator.table
        there = table.configured == ("C", "B") and set(table.node_list) == {"C", "B"}
        return table.target is None and there and self.active is not None


def until(condition: Callable[[], object], run: Callable[[float], None], grain_ms: float) -> None:
    for _ in range(round(LONG_MS / grain_ms)):
        if condition():
            return
        run(grain_ms)
    raise AssertionError(f"not within {LONG_MS:g} ms")


def calm_migration() -> tuple[list[PartitionTable], list[str]]:
    story = Migration()
    story.until(story.done)
    return story.listed()


MIGRATION_STEPS = sum(map(len, calm_migration()))


@pytest.mark.feature("P12")
def test_a_migration_is_these_steps() -> None:
    """C is put in front of those that host it, joins them, catches up, is given the role; then A leaves."""
    sets, records = calm_migration()
    assert [("".join(t.configured), "".join(t.node_list), t.target is None) for t in sets] == [
        ("BA", "AB", False),
        ("CBA", "AB", False),
        ("CBA", "ACB", False),
        ("CBA", "CBA", False),
        ("CB", "CB", True),
    ]
    assert records == ["HandedOver", "EpochStarted", "EpochOpened"]


@pytest.mark.feature("P12", "P10")
@pytest.mark.parametrize("victim", ["A", "B", "C"])
@pytest.mark.parametrize("step", range(MIGRATION_STEPS + 1))
def test_a_node_killed_behind_a_step_of_a_migration(step: int, victim: str) -> None:
    """Step 0 is the wish. The others serve without it; when it is back the migration is completed, or was before."""
    story = Migration()
    story.until_step(step)
    story.world.crash(victim)
    story.serves()
    story.world.start(victim)
    story.until(story.done)
    story.serves()
    assert story.committed(story.first) == 1
    story.until(lambda: story.world.cover.counts["copy dropped"])
    story.well()


@pytest.mark.feature("P12", "P10")
@pytest.mark.parametrize("step", range(MIGRATION_STEPS + 1))
def test_a_migration_does_not_need_the_node_that_it_leaves(step: int) -> None:
    """A never comes back: the migration is completed by those that are left."""
    story = Migration()
    story.until_step(step)
    story.world.crash("A")
    story.until(story.done)
    story.serves()
    assert story.committed(story.first) == 1


# --- a move: an object goes from one partition to the other ---


class Moving(Story):
    """The object is in its old owner, the change of the mapping is open, and a mover is at work. Steps are the records
    of both logs that are about it."""

    def __init__(self) -> None:
        super().__init__()
        assert isinstance(self.create(self.old, 0), ev.Happened)
        self.logs = {name: world.log.entries for name, world in self.shop.worlds.items()}
        self.before = {name: len(log) for name, log in self.logs.items()}
        self.open()
        mover = Mover(self.shop, "mover5", quota=0)
        self.shop.movers.append(mover)
        mover.known = self.shop.mapping
        mover.begin()

    def listed(self) -> list[tuple[str, str]]:
        """(whose log, which record); of one log in its order."""
        found = [(name, decode(e.data)) for name, log in self.logs.items() for e in log[self.before[name] :]]
        kept = [(name, r) for name, r in found if not isinstance(r, Commit)]  # barriers of readers are none of it
        return [("old" if name == self.old else "new", type(r).__name__) for name, r in kept]

    def until(self, condition: Callable[[], object], grain_ms: float = LOOK_MS) -> None:
        until(condition, self.run, grain_ms)

    def done(self) -> bool:
        return self.shop.mapping.changing is None


def calm_move() -> list[tuple[str, str]]:
    story = Moving()
    story.until(story.done)
    story.run(300)
    return story.listed()


MOVE_STEPS = len(calm_move())


@pytest.mark.feature("P13", "D4")
def test_a_move_is_these_records() -> None:
    """Both owners say which mapping they serve, vote, and have the outcome."""
    assert sorted(calm_move()) == [
        (owner, record) for owner in ("new", "old") for record in ("MapperChanged", "Outcome", "Prepare")
    ]


@pytest.mark.feature("P13", "D4")
@pytest.mark.parametrize("whose", ["old", "new"])
@pytest.mark.parametrize("step", range(MOVE_STEPS + 1))
def test_an_active_node_killed_behind_a_record_of_a_move(step: int, whose: str) -> None:
    """Of the partition the object leaves, or of the one it comes to. The change is completed while that node is away;
    then the object is in the new owner, and there alone, with its value, on every copy."""
    story = Moving()
    story.until(lambda: len(story.listed()) >= step, GRAIN_MS)
    name = story.old if whose == "old" else story.new
    victim = story.active(name).name
    story.shop.worlds[name].crash(victim)
    story.until(story.done)
    story.shop.worlds[name].start(victim)
    story.run(600)
    assert story.active(story.old).value(story.key) is None
    copies = list(story.shop.worlds[story.new].processes())
    assert [p.value(story.key) for p in copies] == [b"0"] * 2
    story.shop.heal()
    story.shop.settle()
    finish(story.shop)
