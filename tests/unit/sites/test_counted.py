"""What commands say in the tables of two sites, with no node at either: answers that are lost, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import ClosedError, HalogError, RefusedError
from halog.metadata import log_holds as retention
from halog.metadata.partition_tables import change_table, table_of
from halog.ports import UnknownResult
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.home_tables import returned
from halog.runtime.sites.switchover import Switchover
from halog.runtime.support.adapters import SiteAccess

pytestmark = pytest.mark.feature("M5")

Wanted = Callable[[PartitionTable], bool]


class Site:
    """Its coordinator, as a command there, or at the other site, has it. `loses`: the answer to the first write of such
    a table; `then`: what happens before anybody asks again; `first`: what happens before such a write."""

    def __init__(self, name: str, owner: str, partitions: int = 1) -> None:
        self.name = name
        self.real = MemoryCoordinator()
        self.real.connect(lambda state: None)
        self.loses: Wanted = lambda table: False
        self.then: Callable[[], object] = lambda: None
        self.first: Wanted = lambda table: False
        self.is_trimmed = False
        for i in range(partitions):
            table = PartitionTable(f"p-{i}", "ab" * 16, "t", i, "policy", (f"{name}-A",), 0, owner=owner)
            self.real.create(f"partitions/p-{i}", table.to_bytes())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def create(self, path: str, *data: Any, **more: Any) -> bool:
        """`is_trimmed`: the log is, all the time, so that nobody can hold it."""
        if self.is_trimmed and path.startswith("holders/"):
            raise RefusedError("it is trimmed")
        return self.real.create(path, *data, **more)

    def set(self, path: str, data: bytes, version: int) -> int:
        is_table = path.startswith("partitions/")
        if is_table and self.first(PartitionTable.from_bytes(data)):
            self.first = lambda table: False
            self.then()
        done = self.real.set(path, data, version)
        if is_table and self.loses(PartitionTable.from_bytes(data)):
            self.loses = lambda table: False
            self.then()
            raise UnknownResult(f"set {path}: the answer was lost")
        return done

    def table(self, partition: str = "p-0") -> PartitionTable:
        return table_of(self.real, partition)

    def change(self, **fields: Any) -> None:
        change_table(self.real, "p-0", lambda now: msgspec.structs.replace(now, **fields))


@pytest.fixture
def west() -> Site:
    return Site("west", "", 2)


@pytest.fixture
def east() -> Site:
    return Site("east", "west", 2)


def command(at: Site, other: Site) -> Switchover:
    """To which the site at which it is seems level at once."""
    here: Any = at
    return Switchover(here, at.name, lambda name: reached(other), 1.0, level_by=Level)


class Level(CatchUp):
    def step(self, *, may_fence: bool = True) -> bool:
        return True


def reached(site: Site) -> SiteAccess:
    class Open:
        """Another command's stays open when this one's is closed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(site, name)

        def close(self) -> None:
            pass

    there: Any = Open()
    return SiteAccess(site.name, there, there)


# --- taking ---


def test_a_claim_whose_answer_was_lost_is_known_again(west: Site, east: Site) -> None:
    west.loses = lambda table: table.claims > 0
    (switch,) = command(east, west).promote(["p-0"])
    assert (switch.taken_over_from, switch.may_fork) == ("west", False)
    assert (east.table().owner, west.table().owner, west.table().claims) == ("", "east", 1)


def test_a_claim_of_somebody_else_is_not_taken_for_ones_own(west: Site, east: Site) -> None:
    """Behind the answer that was lost; or at the moment at which this one was to be written."""
    west.loses = lambda table: table.claims > 0
    west.then = lambda: west.change(claims=2, claimed_by="another")
    with pytest.raises(RefusedError, match="somebody else was about to take it"):
        command(east, west).promote(["p-0"])
    assert (east.table().owner, west.table().owner) == ("west", "east")
    west.first, west.then = lambda table: table.claims > 2, lambda: west.change(claims=3, claimed_by="another")
    with pytest.raises(RefusedError, match="somebody else was about to take it"):
        command(east, west).promote(["p-0"])


def test_a_claim_that_comes_to_nothing_is_given_back(west: Site, east: Site) -> None:
    """It is one's own, and nothing was taken."""
    east.is_trimmed = True
    with pytest.raises(RefusedError, match="trimmed"):
        command(east, west).promote(["p-0"])
    assert (east.table().owner, west.table().owner, west.table().claims) == ("west", "", 2)


def test_a_claim_is_not_given_back_where_it_may_be_taken(west: Site, east: Site) -> None:
    """Whoever asks for the table right behind that may be told what was so before."""

    def unknown() -> None:
        raise HalogError("nobody answers")

    east.first, east.then = lambda table: table.owner == "", unknown
    with pytest.raises(HalogError, match="nobody answers"):
        command(east, west).promote(["p-0"])
    assert west.table().owner == "east"


def test_a_take_whose_answer_was_lost_changes_nothing_of_what_came_behind_it(west: Site, east: Site) -> None:
    """It is served by then: its active node says who has everything."""
    east.loses = lambda table: table.owner == ""
    east.then = lambda: east.change(synced=("west",), let_go=("south",))
    (switch,) = command(east, west).promote(["p-0"])
    assert switch.taken_over_from == "west"
    assert (east.table().owner, east.table().synced, east.table().let_go) == ("", ("west",), ("south",))


@pytest.mark.parametrize("may_fork", [False, True])
def test_what_another_command_has_taken_is_left_as_it_is(west: Site, east: Site, may_fork: bool) -> None:
    """At the moment at which this one takes it: it was stopped with Ctrl-Z, say."""

    def taken() -> None:
        command(east, west).promote(["p-0"])
        east.change(synced=("west",))

    east.first, east.then = lambda table: table.owner == "", taken
    command(east, west).promote(["p-0"], may_fork=may_fork)
    assert (east.table().owner, east.table().synced) == ("", ("west",))


@pytest.mark.parametrize("asked_for", ["the site that serves", "a third one that it names"])
def test_a_node_that_closes_takes_nothing_over(west: Site, east: Site, asked_for: str) -> None:
    """It has not found out whether the other site answers."""

    def closes(name: str) -> SiteAccess:
        if asked_for == "the site that serves" or name == "south":
            raise ClosedError("the node closes")
        return reached(west)

    west.change(owner="" if asked_for == "the site that serves" else "south")
    here: Any = east
    with pytest.raises(ClosedError):
        Switchover(here, "east", closes, 1.0).promote(["p-0"], may_fork=True)
    assert east.table().owner == "west"


# --- giving up ---


def test_who_has_claimed_takes_nothing_once_his_site_was_told_to_stop(west: Site, east: Site) -> None:
    """It was served there meanwhile, and what he was level with is long ago."""

    def served_and_given_up() -> None:
        command(east, west).promote(["p-0"])
        command(east, west).demote(["p-0"], "west")

    east.first, east.then = lambda table: table.owner == "", served_and_given_up
    with pytest.raises(RefusedError, match="somebody else has said at this moment"):
        command(east, west).promote(["p-0"])
    assert east.table().owner == "west"


def test_what_is_given_up_is_counted_once_though_the_answer_is_lost(west: Site, east: Site) -> None:
    west.loses = lambda table: table.owner == "east"
    assert command(west, east).demote(["p-0"], "east") == ["p-0"]
    assert command(west, east).demote(["p-0"], "east") == []
    assert (west.table().owner, west.table().claims) == ("east", 1)


def test_whatever_a_site_gives_up_is_counted_and_what_it_does_not_serve_is_not() -> None:
    """A node that starts finds that another site has taken it over, or somebody else has said so."""
    config: Any = SimpleNamespace(policies={"policy": SimpleNamespace(home="west")}, other_sites={"east": None})
    for owner, claims in (("", 1), ("south", 0)):
        site, east = Site("west", owner), Site("east", "")
        known = {"p-0": (0, msgspec.structs.replace(site.table(), owner=""))}
        _, table = returned(config, site.real, lambda name, there=east: reached(there), known, Member("west-A", 1))[  # type: ignore[misc]
            "p-0"
        ]
        assert (table.owner, table.claims) == (owner or "east", claims)


def test_of_several_that_are_given_up_those_are_told_that_were(west: Site, east: Site) -> None:
    """Somebody else gives the second one to another site at this moment."""
    told: list[str] = []
    west.first = lambda table: table.name == "p-1"
    west.then = lambda: change_table(west.real, "p-1", lambda now: msgspec.structs.replace(now, owner="south"))
    with pytest.raises(RefusedError, match="made south serve it") as caught:
        command(west, east).demote(["p-0", "p-1"], "east", done=told.append)
    assert "nothing was changed" not in str(caught.value)
    assert told == ["p-0"]
    assert (west.table().owner, west.table("p-1").owner) == ("east", "south")


def test_of_several_that_go_on_without_a_site_those_are_told_that_do(west: Site, east: Site) -> None:
    told = list[str]()

    def refused() -> None:
        raise RefusedError("the table of p-1 changes too often")

    west.first, west.then = lambda table: table.name == "p-1", refused
    with pytest.raises(RefusedError, match="too often"):
        command(west, east).let_go(["p-0", "p-1"], "east", done=told.append)
    assert told == ["p-0"]
    assert (west.table().let_go, west.table("p-1").let_go) == (("east",), ())


# --- holds ---


def test_a_takeover_that_is_refused_holds_nothing(west: Site, east: Site) -> None:
    west.first, west.then = lambda table: table.claims > 0, lambda: west.change(claims=7)
    with pytest.raises(RefusedError, match="somebody else was about to take it"):
        command(east, west).promote(["p-0"])
    assert retention.holds(east.real, "p-0") == {}


def test_what_is_taken_over_is_held_for_who_served_it(west: Site, east: Site) -> None:
    command(east, west).promote(["p-0"])
    assert list(retention.holds(east.real, "p-0")) == ["site-west"]
