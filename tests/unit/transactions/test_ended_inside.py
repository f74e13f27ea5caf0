"""A list, dict or nested object changed in place after its transaction has ended: an error, as an assignment is."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import heapq
import json
import pickle
import random
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from halog.errors import NoTransactionError
from halog.schema import Registry, managed
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode

pytestmark = pytest.mark.feature("D1")
HERE = Registry()


@dataclasses.dataclass
class Stop:
    city: str
    seen: list[str] = field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Leg:
    miles: int
    stops: list[Stop]


@dataclasses.dataclass(slots=True)
class Seat:
    row: int


@managed(key="k", registry=HERE)
class Trip:
    k: str
    notes: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    grid: list[list[int]] = field(default_factory=list)
    by_day: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    first: Stop | None = None
    legs: list[Leg] = field(default_factory=list)
    seat: Seat = field(default_factory=lambda: Seat(1))

    def note(self, text: str) -> int:
        self.notes.append(text)
        return len(self.notes)

    def go_on(self, city: str) -> None:
        self.marks[city] = len(self.marks)
        if self.first is not None:
            self.first.city = city
            self.first.seen.append(city)


def trip(k: str = "a") -> Trip:
    return Trip(
        k,
        ["x", "y"],
        {"a": 1},
        [[1], [2, 3]],
        {"mon": [{"n": 1}]},
        Stop("here", ["me"]),
        [Leg(7, [Stop("there", ["you"])])],
    )


CHANGES: list[tuple[str, Callable[[Any], Any]]] = [
    ("append", lambda t: t.notes.append("z")),
    ("extend", lambda t: t.notes.extend(["z"])),
    ("insert", lambda t: t.notes.insert(0, "z")),
    ("pop", lambda t: t.notes.pop()),
    ("remove", lambda t: t.notes.remove("x")),
    ("clear", lambda t: t.notes.clear()),
    ("sort", lambda t: t.notes.sort()),
    ("reverse", lambda t: t.notes.reverse()),
    ("shuffle", lambda t: random.shuffle(t.notes)),
    ("insort", lambda t: bisect.insort(t.notes, "z")),
    ("item", lambda t: t.notes.__setitem__(0, "z")),
    ("slice", lambda t: t.notes.__setitem__(slice(0, 1), [])),
    ("del item", lambda t: t.notes.__delitem__(0)),
    ("+=", lambda t: t.notes.__iadd__(["z"])),
    ("*=", lambda t: t.notes.__imul__(2)),
    ("dict item", lambda t: t.marks.__setitem__("b", 2)),
    ("dict del", lambda t: t.marks.__delitem__("a")),
    ("dict update", lambda t: t.marks.update(b=2)),
    ("dict |=", lambda t: t.marks.__ior__({"b": 2})),
    ("dict pop", lambda t: t.marks.pop("a")),
    ("dict popitem", lambda t: t.marks.popitem()),
    ("dict setdefault", lambda t: t.marks.setdefault("b", 1)),
    ("dict clear", lambda t: t.marks.clear()),
    ("list in list", lambda t: t.grid[1].append(4)),
    ("dict in list in dict", lambda t: t.by_day["mon"][0].update(n=2)),
    ("list in dict", lambda t: t.by_day["mon"].append({})),
    ("nested object", lambda t: setattr(t.first, "city", "z")),
    ("del of nested object", lambda t: delattr(t.first, "city")),
    ("list in nested object", lambda t: t.first.seen.append("z")),
    ("list in frozen object in list", lambda t: t.legs[0].stops.append(Stop("z"))),
    ("object in list in frozen object", lambda t: setattr(t.legs[0].stops[0], "city", "z")),
    ("list in object in list", lambda t: t.legs[0].stops[0].seen.append("z")),
    ("slotted object", lambda t: setattr(t.seat, "row", 9)),
]


@pytest.fixture(params=[False, True], ids=["here", "elsewhere"])
def node(request: pytest.FixtureRequest) -> Any:
    with MemoryNode(MemoryCluster(partitions=2), HERE, remote=request.param, application_modules=[__name__]) as node:
        yield node


@pytest.mark.parametrize("change", [c for _, c in CHANGES], ids=[n for n, _ in CHANGES])
@pytest.mark.parametrize("end", ["created", "read", "rolled back", "deleted"])
def test_a_change_in_place_is_refused(node: MemoryNode, change: Callable[[Any], Any], end: str) -> None:
    """Of what was created, read, rolled back, deleted; by class and field, whatever is nested how deep."""
    with node.transaction():
        one = node.create(trip())
    if end == "read":
        with node.transaction():
            one = node.get(Trip, "a")
    elif end == "rolled back":
        with pytest.raises(ZeroDivisionError), node.transaction():
            one = node.get(Trip, "a")
            one.marks["more"] = 1
            raise ZeroDivisionError
        assert one.marks == {"a": 1, "more": 1}
    elif end == "deleted":
        with node.transaction():
            one = node.get(Trip, "a")
            node.delete(one)
            with pytest.raises(NoTransactionError):
                change(one)
    before = repr(one)
    with pytest.raises(NoTransactionError, match=r"(Trip|Stop|Seat)\b"):
        change(one)
    assert repr(one) == before


@pytest.mark.parametrize(
    ("change", "field", "kind"),
    [
        (lambda t: heapq.heappush(t.notes, "z"), "notes", "list"),
        (lambda t: heapq.heappop(t.notes), "notes", "list"),
        (lambda t: list.append(t.notes, "z"), "notes", "list"),
        (lambda t: list.__init__(t.notes, ["z"]), "notes", "list"),
        (lambda t: dict.update(t.marks, z=1), "marks", "dict"),
        (lambda t: dict.clear(t.marks), "marks", "dict"),
    ],
)
def test_what_asks_no_method_cannot_be_refused_and_is_told_at_the_next_look(
    node: MemoryNode, change: Callable[[Any], Any], field: str, kind: str
) -> None:
    with node.transaction():
        one = node.create(trip())
    change(one)
    with pytest.raises(NoTransactionError, match=rf"Trip\.{field}: this {kind} had . items .* that is lost"):
        getattr(one, field)
    assert one.k == "a"
    with node.transaction() as tx:
        assert getattr(tx.get(Trip, "a"), field) == getattr(trip(), field), "nothing of it is kept"


def test_it_looks_like_what_it_was(node: MemoryNode) -> None:
    """Equal, of the same class as far as anybody asks, the same `repr` and JSON."""
    with node.transaction():
        node.create(trip())
    with node.transaction():
        one = node.get(Trip, "a")
    assert one == trip()
    assert repr(one) == repr(trip())
    assert json.dumps([one.notes, one.by_day, one.marks]) == json.dumps([trip().notes, trip().by_day, trip().marks])
    assert isinstance(one.notes, list)
    assert one.notes.__class__ is list
    assert isinstance(one.first, Stop)
    assert one.notes is one.notes


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - the test's own


def test_copies_are_the_applications(node: MemoryNode) -> None:
    """Whatever makes another one of it makes one that may be changed."""
    with node.transaction():
        node.create(trip())
    with node.transaction():
        one = node.get(Trip, "a")
    plain: list[Any] = [
        one.notes[:],
        one.notes.copy(),
        [*one.notes],
        list(one.notes),
        copy.copy(one.notes),
        one.notes * 2,
        one.notes.__add__(["z"]),
        copy.deepcopy(one.notes),
        pickled(one.notes),
        dataclasses.asdict(one)["notes"],
        one.grid.copy(),
        copy.deepcopy(one.grid),
        copy.deepcopy(one.grid)[0],
    ]
    assert {type(p) for p in plain} == {list}
    dicts: list[Any] = [
        one.marks | {},
        one.marks.copy(),
        {**one.marks},
        copy.copy(one.marks),
        copy.deepcopy(one.by_day),
        copy.deepcopy(one.by_day)["mon"][0],
        pickled(one.marks),
        dataclasses.asdict(one)["marks"],
    ]
    assert {type(p) for p in dicts} == {dict}
    assert one.first is not None
    for made in (copy.deepcopy(one.first), pickled(one.first)):
        made.seen.append("z")
        made.city = "there"
        assert type(made) is Stop
    for whole in (copy.deepcopy(one), pickled(one)):
        whole.notes.append("z")
        whole.legs[0].stops[0].seen.append("z")
        assert type(whole) is Trip
    assert one == trip()


def test_what_the_application_has_given_stays_its_own(node: MemoryNode) -> None:
    """A list or an object that it goes on with is not touched."""
    notes, stop = ["x"], Stop("here")
    with node.transaction():
        one = node.create(Trip("a", notes, first=stop))
    with pytest.raises(NoTransactionError):
        one.notes.append("y")
    with pytest.raises(NoTransactionError):
        one.first.city = "there"  # type: ignore[union-attr]
    notes.append("y")
    stop.city = "there"
    with node.transaction():
        node.create(Trip("b", notes, first=stop))
    with node.transaction():
        assert (node.get(Trip, "a").notes, node.get(Trip, "b").notes) == (["x"], ["x", "y"])


def test_what_an_ended_object_has_may_be_given_to_another(node: MemoryNode) -> None:
    """In a new object it is that one's own; assigned to one it is written."""
    with node.transaction():
        one = node.create(trip())
    with node.transaction():
        other = node.create(Trip("b", one.notes, one.marks, one.grid, one.by_day, one.first, one.legs, one.seat))
        other.notes.append("z")
        other.grid[0].append(9)
        other.first.seen.append("z")  # type: ignore[union-attr]
        node.get(Trip, "a").notes = one.notes[1:]
    with node.transaction():
        third = node.create(Trip("c"))
        third.notes, third.legs, third.first = one.notes, one.legs, one.first
    with node.transaction():
        assert node.get(Trip, "b") == dataclasses.replace(
            trip("b"), notes=["x", "y", "z"], grid=[[1, 9], [2, 3]], first=Stop("here", ["me", "z"])
        )
        assert node.get(Trip, "a").notes == ["y"]
        assert (node.get(Trip, "c").notes, node.get(Trip, "c").legs) == (trip().notes, trip().legs)
    assert node.load([Trip("d", one.notes, first=one.first)]).objects == 1


def test_a_rolled_back_create_may_be_done_again(node: MemoryNode) -> None:
    """Also if somebody has looked into the object between the two."""
    one = trip()
    with pytest.raises(ZeroDivisionError), node.transaction():
        node.create(one)
        raise ZeroDivisionError
    with pytest.raises(NoTransactionError):
        one.grid[0].append(4)
    with node.transaction():
        node.create(one)
        one.grid[0].append(4)
        one.first.seen.append("z")  # type: ignore[union-attr]
        assert one.note("z") == 3
    with node.transaction():
        again = node.get(Trip, "a")
        assert (again.grid[0], again.notes, again.first) == ([1, 4], ["x", "y", "z"], Stop("here", ["me", "z"]))


def kept(node: MemoryNode, take: Callable[[Trip], Any]) -> Any:
    """What is taken out of an object in a transaction."""
    with node.transaction():
        return take(node.get(Trip, "a"))


TAKEN: list[tuple[str, Callable[[Trip], Any], Callable[[Any], Any]]] = [
    ("notes", lambda t: t.notes, lambda v: v.append("z")),
    ("marks", lambda t: t.marks, lambda v: v.update(z=1)),
    ("grid", lambda t: t.grid[1], lambda v: v.append(1)),
    ("by_day", lambda t: t.by_day["mon"][0], lambda v: v.clear()),
    ("by_day", lambda t: t.by_day, lambda v: v["mon"].append(1)),
    ("first", lambda t: t.first, lambda v: setattr(v, "city", "z")),
    ("first", lambda t: t.first and t.first.seen, lambda v: v.append("z")),
    ("legs", lambda t: t.legs[0].stops[0].seen, lambda v: v.append("z")),
    ("seat", lambda t: t.seat, lambda v: setattr(v, "row", 9)),
]


@pytest.mark.parametrize(("field_", "take", "change"), TAKEN)
@pytest.mark.parametrize("when", ["begin", "close"])
def test_what_was_taken_out_and_changed_later_is_told(
    node: MemoryNode, caplog: pytest.LogCaptureFixture, field_: str, take: Any, change: Any, when: str
) -> None:
    """It is the plain list, so nobody can refuse that: a warning says so when the next transaction begins, or at the
    end; once for a field."""
    with node.transaction():
        node.create(trip())
    one = kept(node, take)
    change(one)
    if when == "begin":
        with node.transaction():
            pass
        change(kept(node, take))
    node.close()
    told = [r.getMessage() for r in caplog.records if r.name == "halog.transactions"]
    assert len(told) == 1, told
    assert told[0].startswith(f"Trip.{field_}: a ")
    assert "taken out of Trip 'a' was changed after its transaction had ended" in told[0]


def test_a_later_change_is_told_at_the_second_look(
    node: MemoryNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halog.transactions.kept.AGAIN_S", 0.0)
    with node.transaction():
        node.create(trip())
    notes = kept(node, lambda t: t.notes)
    with node.transaction():
        pass
    notes.append("z")
    assert not [r for r in caplog.records if r.name == "halog.transactions"]
    with node.transaction():
        pass
    assert len([r for r in caplog.records if r.name == "halog.transactions"]) == 1
    assert not node.space.lent, "nothing is kept any more"


def test_what_is_read_dropped_copied_or_changed_inside_is_no_reason_to_tell(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor what the application itself has made."""
    mine = ["x"]
    with node.transaction():
        node.create(dataclasses.replace(trip(), notes=mine))
    mine.append("y")
    with node.transaction():
        one = node.get(Trip, "a")
        one.notes.append("in time")
        copied = list(one.notes)
        assert [n for n in one.notes] and one.grid[1][0] == 2  # noqa: C416, PT018
        assert not any(held(map(one.__dict__.get, (name,))) for name, held, _ in Trip.__halog__.kept)  # type: ignore[attr-defined]
    copied.append("mine")
    unchanged = kept(node, lambda t: t.grid)
    assert unchanged == [[1], [2, 3]]
    node.close()
    assert not [r for r in caplog.records if r.name == "halog.transactions"]


def test_what_was_only_read_is_not_written_and_what_was_changed_is(node: MemoryNode) -> None:
    """However it was changed, also into what is equal to it; what was put back as it was is no change."""
    with node.transaction():
        node.create(trip())
    before = node.state_hash()
    with node.transaction() as tx:
        one = node.get(Trip, "a")
        assert (one.notes, one.first) == (["x", "y"], Stop("here", ["me"]))
        one.notes.append("z")
        one.notes.pop()
        one.marks.update(a=1)
        one.grid[0] = [1]
    assert (tx.lsn, node.state_hash()) == (None, before)
    for change in (
        lambda t: t.grid[0].__setitem__(0, True),
        lambda t: t.by_day["mon"][0].update(n=1.0),
        lambda t: setattr(t.first, "more", 1),
    ):
        with pytest.raises(Exception, match="Trip"), node.transaction():
            change(node.get(Trip, "a"))
    for change in (
        lambda t: t.grid[1].reverse(),
        lambda t: t.marks.update(b=1),
        lambda t: t.legs[0].stops[0].seen.clear(),
        lambda t: setattr(t.seat, "row", 2),
        lambda t: t.by_day["mon"][0].update(n=2),
        lambda t: setattr(t, "first", None),
        lambda t: t.marks.update(a=t.marks.pop("a")),
        lambda t: t.legs.clear(),
    ):
        with node.transaction() as tx:
            change(node.get(Trip, "a"))
        assert tx.lsn is not None


def test_what_was_taken_out_is_the_objects_own_still_when_a_method_has_run(node: MemoryNode) -> None:
    """Wherever it ran: what is changed in it then is written."""
    with node.transaction():
        node.create(trip())
    with node.transaction():
        one = node.get(Trip, "a")
        notes, marks, first = one.notes, one.marks, one.first
        assert first is not None
        seen = first.seen
        one.note("z")
        one.go_on("there")
        assert (notes, marks, first) == (["x", "y", "z"], {"a": 1, "there": 1}, Stop("there", ["me", "there"]))
        assert (one.notes is notes, one.marks is marks, one.first is first, first.seen is seen) == (True,) * 4
        notes.append("more")
        seen.append("more")
    with node.transaction():
        again = node.get(Trip, "a")
        assert (again.notes, again.first) == (["x", "y", "z", "more"], Stop("there", ["me", "there", "more"]))


def test_few_are_kept(node: MemoryNode) -> None:
    """However many somebody takes out."""
    with node.transaction():
        for n in range(400):
            node.create(Trip(f"{n}"))
    for _ in range(2):
        with node.transaction():
            taken = [t.notes for t in node.extent(Trip)]
        assert len(node.space.kept._new) == 256
    assert len(node.space.kept._later) == 256
    assert len(taken) == 400
