"""Every crash point of a migration and of a move (P12, P13): each is first run calmly, and everything it sets in the
coordinator and appends to a log is listed; then it is run again, once for each of these and each node that has a part
in it, and that node is killed right behind it, before anybody has heard of it. The partition goes on, and what was
begun is completed.

The runs are deterministic, so the list of the calm one is the list of all, up to the crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from halog.core import results as res
from halog.core.ids import ABSENT
from halog.core.keys.directory import entry_key, packed
from halog.core.keys.mapping import Layout, PolicyMapping
from halog.core.log.records import CREATE, Change, Commit, decode
from halog.core.table.table import PartitionTable, Target
from tests.scenarios.cluster import Cluster
from tests.scenarios.test_mapping_traces import Story, plain
from tests.sim import goods, moves, stalls
from tests.sim.bank import MARKET_SEEDS
from tests.sim.bank_world import REF
from tests.sim.market import TYPE, Carrier, Market, Trader
from tests.sim.shop import Mover, Shop, owner

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

    def until_so(self, condition: Callable[[], object], grain_ms: float = LOOK_MS) -> None:
        until(condition, self.run, grain_ms)

    def until_step(self, count: int) -> None:
        """So many sets and records."""
        self.until_so(lambda: sum(len(some) for some in self.listed()) >= count, GRAIN_MS)

    def serves(self) -> None:
        """Somebody is active, and a transaction goes through, maybe not the first that is tried."""
        for _ in range(100):
            if (active := self.active) is not None:
                tx = self.transaction(at=active)
                if [type(r) for r in self.submit(tx, active, ms=30).said] == [res.Success]:
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
    story.until_so(story.done)
    return story.listed()


MIGRATION_STEPS = sum(len(some) for some in calm_migration())


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
    story.until_so(story.done)
    story.serves()
    assert story.committed(story.first) == 1
    story.until_so(lambda: story.world.cover.counts["copy dropped"])
    story.well()


@pytest.mark.feature("P12", "P10")
@pytest.mark.parametrize("step", range(MIGRATION_STEPS + 1))
def test_a_migration_does_not_need_the_node_that_it_leaves(step: int) -> None:
    """A never comes back: the migration is completed by those that are left."""
    story = Migration()
    story.until_step(step)
    story.world.crash("A")
    story.until_so(story.done)
    story.serves()
    assert story.committed(story.first) == 1


# --- a move: an object goes from one partition to the other ---


class Mortal(Mover):
    """The mover of a node that may die with it."""

    dead = False

    def begin(self) -> None:
        if not self.dead:
            super().begin()

    def die(self) -> None:
        """Whatever it has under way, nobody drives any more; what it has sent is on its way."""
        self.dead = True
        if self.deal is not None:
            self._end(self.deal, None)


class MortalCarrier(Mortal, Carrier):
    """The same of a market."""


class Moving(Story):
    """The object is in its old owner, the change of the mapping is open, and a mover is at work. Steps are the records
    of both logs that are about it."""

    mover: type[Mortal] = Mortal
    finish: Callable[[Any], None] = staticmethod(goods.finish)

    def __init__(self) -> None:
        super().__init__()
        self.stock()
        self.logs = {name: world.log.entries for name, world in self.shop.worlds.items()}
        self.before = {name: len(log) for name, log in self.logs.items()}
        self.open()
        self.hire()

    def stock(self) -> None:
        """What there is before the change."""
        assert isinstance(self.create(self.old, 0), res.Success)

    def hire(self) -> None:
        """Somebody new moves objects."""
        mover = self.mover(self.shop, f"mover{5 + len(self.shop.movers)}", quota=0)
        self.shop.movers.append(mover)
        mover.known = self.shop.mapping
        mover.begin()

    def listed(self) -> list[tuple[str, str]]:
        """(whose log, which record); of one log in its order."""
        found = [(name, decode(e.data)) for name, log in self.logs.items() for e in log[self.before[name] :]]
        kept = [(name, r) for name, r in found if not isinstance(r, Commit) or r.changes]  # else a reader's barrier
        return [("old" if name == self.old else "new", type(r).__name__) for name, r in kept]

    def until(self, condition: Callable[[], object], grain_ms: float = LOOK_MS) -> None:
        until(condition, self.run, grain_ms)

    def done(self) -> bool:
        return self.shop.mapping.changing is None

    def kill(self, who: str) -> Callable[[], None]:
        """Whoever is named: active nodes of the partitions, the mover. What starts the nodes again."""
        actives = {name: self.active(name).name for name in (self.old, self.new)}
        names = [name for name, part in ((self.old, "old"), (self.new, "new")) if part in who]
        for name in names:
            self.shop.worlds[name].crash(actives[name])
        if "mover" in who:
            mover = self.shop.movers[-1]
            assert isinstance(mover, Mortal)
            mover.die()
            self.hire()

        def start_again() -> None:
            for name in names:
                self.shop.worlds[name].start(actives[name])

        return start_again

    def copies(self, name: str) -> list[set[bytes]]:
        """What each copy of a partition has of the thing, and of its entry."""
        keys = (self.key, entry_key(self.key))
        return [{k for k in keys if p.value(k) is not None} for p in self.shop.worlds[name].processes()]

    def check(self) -> None:
        """It is in the new owner, and there alone, on every copy."""
        assert self.copies(self.old) == [set()] * 2
        assert self.copies(self.new) == [{self.key}] * 2


class InDirectory(Moving):
    """A market, of whose mapper the kind changes."""

    asks, mover = Trader, MortalCarrier
    finish = staticmethod(stalls.finish)
    mapper, wished_mapper = "consistent_hash", "round_robin"

    def opened(self) -> Shop:
        shop = plain(Market, MARKET_SEEDS)
        shop.changes_kind = True
        shop.mapping = PolicyMapping(Layout(self.mapper, 2, 0, names=shop.names))
        return shop

    def stock(self) -> None:
        """`new`: where its key hashes to, by both mappings."""
        layout = self.shop.mapping.now
        self.wished = msgspec.structs.replace(layout, mapper=self.wished_mapper)
        self.new = owner(self.key, layout)
        self.old = next(name for name in self.shop.names if name != self.new)
        self.put()

    def put(self) -> None:
        raise NotImplementedError

    def has(self, at: str, key: bytes, value: bytes) -> None:
        """It is created there."""
        assert isinstance(self.submit(at, Change(CREATE, REF, key, value, ABSENT)), res.Success)


class Listing(InDirectory):
    """The object gets an entry beside it: a transaction of one partition."""

    def put(self) -> None:
        self.has(self.new, self.key, TYPE + b"0")

    def check(self) -> None:
        assert self.copies(self.old) == [set()] * 2
        assert self.copies(self.new) == [{self.key, entry_key(self.key)}] * 2


class Unlisting(InDirectory):
    """The entry goes, and its object comes where it was, from the other partition."""

    mapper, wished_mapper = "round_robin", "consistent_hash"

    def put(self) -> None:
        self.has(self.old, self.key, TYPE + b"0")
        self.has(self.new, entry_key(self.key), packed(TYPE, self.old))


def calm_move(made: type[Moving]) -> list[tuple[str, str]]:
    story = made()
    story.until(story.done)
    story.run(300)
    story.check()
    return story.listed()


MOVES = {made: calm_move(made) for made in (Moving, Listing, Unlisting)}
POINTS = [(made, step) for made, records in MOVES.items() for step in range(len(records) + 1)]

KILLED = ("old", "new", "mover", "mover and old", "mover and new")
"""In reality a mover is the sweep on the active node of the partition that it looks at: the old one; where entries go,
the one with the entries, the new one. Whose request it carries out may be elsewhere, so it dies alone, too."""


@pytest.mark.feature("P13", "D4")
def test_a_move_is_these_records() -> None:
    """Both owners say which mapping they serve, vote, and have the outcome; an entry is made within one partition."""
    both = [(owner, record) for owner in ("new", "old") for record in ("MapperChanged", "Outcome", "Prepare")]
    assert sorted(MOVES[Moving]) == sorted(MOVES[Unlisting]) == both
    assert sorted(MOVES[Listing]) == [("new", "Commit"), ("new", "MapperChanged"), ("old", "MapperChanged")]


@pytest.mark.feature("P13", "D4", "P6")
@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize(("made", "step"), POINTS, ids=[f"{made.__name__}-{step}" for made, step in POINTS])
def test_who_is_killed_behind_a_record_of_a_move(made: type[Moving], step: int, killed: str) -> None:
    """The change is completed, by another mover if it was that one, while the node is away; then the object is where
    it belongs, and there alone, with its value, on every copy."""
    story = made()
    story.until(lambda: len(story.listed()) >= step, GRAIN_MS)
    start_again = story.kill(killed)
    story.until(story.done)
    start_again()
    story.run(600)
    story.check()
    assert story.active(story.new).value(story.key) in (b"0", TYPE + b"0")
    story.shop.heal()
    story.shop.settle()
    story.finish(story.shop)
