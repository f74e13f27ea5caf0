"""Every crash point of a merge of two sites (M2): `halog restore`, with a site that takes the partition back, and
`halog restore undo`. Each is first run calmly, and all that it sets in both coordinators and appends to both logs is
counted, and all that its command changes. Then it is run again, once for each of these: each node of either site is
killed right behind what was set or appended, before anybody has heard of it; the command behind what it has changed.

The runs are deterministic, so the steps of the calm one are the steps of all, up to the crash. How each ends is judged
as the simulation judges its histories (`tests.sim.abroad.accounts`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import NamedTuple

import pytest

from halog.core.log.records import decode
from halog.metadata.restore_requests import DONE
from tests.scenarios.two_sites import Command, TwoSites

pytestmark = pytest.mark.feature("M2", "X3")

GRAIN_MS = 0.05
"""Less than anything takes on its way: nobody has heard of what happened within it."""
NODES = ("W0", "W1", "E0", "E1")
"""The first one of each site is active when it begins."""
COMMANDS = ("restore", "restore_and_serve", "undo")
AWAY_MS = 150.0
"""Until a node is back: others have taken over by then, where there are any."""


class Merge(TwoSites):
    """Both sites have gone on, and an operator makes them one; or, for an undoing, has done so."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.before = 0
        self.ends: tuple[int, ...] = (0, 0)
        self.asks: list[str] = []
        """What the command has asked for, from its beginning."""

    def begin(self) -> Command:
        """The command, about to run."""
        self.fork()
        if self.what == "undo":
            assert self.done(Command(self.pair, "restore", self.restore)).phase == DONE
            self.until(self.level)
        self.before, self.ends = self.steps, tuple(len(w.log.entries) for w in self.pair.worlds.values())
        return self.again()

    def again(self) -> Command:
        tasks, asks = self.pair.tasks, list[str]()
        command = Command(self.pair, self.what, getattr(self, self.what))

        def step(what: str, killed: Callable[[str], None]) -> None:
            if tasks.current is command.task:
                asks.append(what)
            type(tasks).step(tasks, what, killed)

        tasks.step = step
        self.asks = asks  # type: ignore[method-assign]
        return command

    @property
    def steps(self) -> int:
        """How much both coordinators and both logs have been given."""
        worlds = self.pair.worlds.values()
        return sum(w.znodes.version + len(w.coordinator.values) + len(w.log.entries) for w in worlds)

    @property
    def records(self) -> tuple[list[str], ...]:
        """Those that have come to each log."""
        came = (w.log.entries[end:] for w, end in zip(self.pair.worlds.values(), self.ends, strict=True))
        return tuple([type(decode(e.data)).__name__ for e in entries] for entries in came)

    def until_step(self, count: int) -> None:
        self.until(lambda: self.steps - self.before >= count, GRAIN_MS)

    def ends_well(self, command: Command) -> None:
        """By itself; or asked for again, once, it goes on, or says that it is done."""
        self.await_end(command)
        if command.task.killed or command.error is not None:
            command = self.again()
        assert self.done(command).phase == DONE
        assert [w.site for w in self.pair.worlds.values() if w.serves] == [self.serving]
        self.well()
        assert [len(names) for names in self.merges()] == [1 + (self.what == "undo")] * 2

    @property
    def serving(self) -> str:
        return "west" if self.what == "restore_and_serve" else "east"


class Calm(NamedTuple):
    """How one goes on that nobody disturbs."""

    steps: int
    asks: tuple[str, ...]
    """What its command asks for."""
    records: tuple[list[str], ...]
    """What comes to the log of each site."""

    @property
    def moments(self) -> list[int]:
        """When its command is killed: before it has asked for anything, and in front of what follows each change."""
        return [1, *(n + 2 for n, what in enumerate(self.asks[:-1]) if changes(what))]


def changes(what: str) -> bool:
    return what.startswith(("create ", "set ", "delete ", "append"))


@cache
def calm(what: str) -> Calm:
    merge = Merge(what)
    with merge.told():
        command = merge.begin()
        merge.done(command)
        merge.until(merge.level)
        found = Calm(merge.steps - merge.before, tuple(merge.asks), merge.records)
        merge.ends_well(command)
    return found


def test_a_merge_is_these_changes_of_its_command() -> None:
    """Both logs are held, this site's branch is kept and closed, and the source is asked. To serve afterwards: the
    source is told to stop, its log is fenced, and the partition is claimed and taken. Nodes do the rest.
    (What somebody else has changed meanwhile is set again.)"""
    restore = ["create holders", "create holders there", "create holders", "set partitions", "create restores there"]
    taken = ["set partitions there", "append", "set partitions there", "create holders", "set partitions"]
    asked = {what: [ask for ask in calm(what).asks if changes(ask)] for what in COMMANDS}
    found = {what: [ask for ask, _ in groupby(asks)] for what, asks in asked.items()}
    assert found == {"restore": restore, "restore_and_serve": restore + taken, "undo": ["set restores"]}


def test_a_merge_is_these_records() -> None:
    """West's epoch ends, its log is fenced and given away, and has what it mirrors; east's next epoch opens merged. To
    be served at west again east's epoch ends, and its log is fenced for whoever takes the partition, and given away."""
    parts = ["MergePart", "MergePart", "EpochMerged"]
    closed, merged = ["HandedOver", "EpochStarted", "SiteSwitched", *parts], ["HandedOver", "EpochStarted", *parts]
    assert calm("restore").records == (closed, merged)
    at_west, at_east = calm("restore_and_serve").records
    assert (at_west[: len(closed)], at_east[: len(merged)]) == (closed, merged)
    assert at_east[len(merged) : len(merged) + 3] == ["HandedOver", "EpochStarted", "EpochStarted"]
    undone = ["HandedOver", "MergePart", "EpochMerged"]
    assert calm("undo").records == (undone, ["HandedOver", "EpochStarted", *undone[1:]])


@pytest.mark.parametrize("what", ["restore_and_serve", "undo"])
@pytest.mark.parametrize(("name", "returns"), [*((name, True) for name in NODES), ("W0", False), ("E0", False)])
def test_a_node_killed_behind_any_step(what: str, name: str, returns: bool) -> None:
    """Step 0 is the command's beginning. Whether the node is back in a moment, or when all is done, it ends right. The
    first steps of a restore with `--active` are those of one without."""
    for step in range(calm(what).steps + 1):
        merge = Merge(what)
        with merge.told():
            command = merge.begin()
            merge.until_step(step)
            world = merge.west if name in merge.west.nodes else merge.east
            world.crash(name)
            if returns:
                merge.run(AWAY_MS)
            else:
                merge.await_end(command)
            world.start(name)
            merge.ends_well(command)


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_killed_behind_all_that_it_changes(what: str) -> None:
    """The nodes go on with what it has asked for; asked again, it goes on with the rest."""
    for moment in calm(what).moments:
        merge = Merge(what)
        with merge.told():
            command = merge.begin()
            command.task.dies_in = moment
            merge.await_end(command)
            assert command.task.killed
            merge.ends_well(command)
