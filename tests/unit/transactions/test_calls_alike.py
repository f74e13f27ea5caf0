"""Nobody can tell from a call where its method ran: what passes here passes from elsewhere, and fails alike (R5)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import halog.transactions as ht
from halog.errors import DeclarationError, FieldTypeError, HalogError, RemoteCallError, TransactionError
from halog.schema import Registry, managed
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode

pytestmark = pytest.mark.feature("R5", "D1")

REGISTRY = Registry()


class OwnError(Exception):
    """Of a module that is named."""


class Odd(OwnError):
    """It cannot be made again from its args."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Silent(OwnError):
    """Who asks it for its text is interrupted."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Ended(BaseException):
    """What is no Exception."""


@dataclasses.dataclass
class Part:
    name: str
    tags: list[str] = dataclasses.field(default_factory=list)


def counted(func: Callable[..., int]) -> Callable[..., int]:
    """A decorator as people write it, without functools.wraps."""

    def wrapper(self: Any, n: int) -> int:
        return func(self, n) + 1

    return wrapper


@managed(key="name", registry=REGISTRY)
class Named:
    """Methods are what they are called in the class."""

    name: str
    n: int = 0

    def add(self, n: int) -> int:
        self.n += n
        return self.n

    plus = add

    @counted
    def more(self, n: int) -> int:
        self.n += 10 * n
        return self.n

    @counted
    def less(self, n: int) -> int:
        self.n -= n
        return self.n

    def add_all(self, n: int) -> int:
        return self.plus(n) + self.more(n)

    def _hidden(self, n: int) -> int:
        return self.add(n)

    shown = _hidden


@managed(key="name", registry=REGISTRY)
class Thing:
    name: str
    n: int = 0
    share: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)
    rows: list[list[int]] = dataclasses.field(default_factory=list)
    part: Part = dataclasses.field(default_factory=lambda: Part("a part"))
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)

    def add(self, n: int, times: int = 1) -> int:
        self.n += n * times
        return self.n

    def untold(self, n) -> int:  # type: ignore[no-untyped-def]
        self.n = 99
        return 0

    def unsaid(self, n: int):  # type: ignore[no-untyped-def]
        self.n = 99

    def unsendable(self, what: object) -> None:
        self.n = 99

    def fill(self, into: list[str]) -> None:
        into.append(self.name)

    def fill_part(self, part: Part, more: dict[str, list[int]]) -> Part:
        part.tags.append(self.name)
        more.setdefault("x", []).append(1)
        return part

    def gather(self, into: list[int] = []) -> int:  # noqa: B006 - as people write it
        into.append(1)
        return len(into)

    def keep(self, tags: list[str]) -> None:
        self.tags = tags

    def show(self) -> list[str]:
        return self.tags

    def halve(self, share: float) -> float:
        return share

    def wrong(self) -> int:
        self.n = 5
        return "five"  # type: ignore[return-value]

    def spoil(self) -> None:
        self.n = "five"  # type: ignore[assignment]

    def stray(self) -> None:
        self.nowhere = 1

    def note(self) -> bool:
        """Did it know of anything beside the fields?"""
        knew = "_seen" in vars(self) or "double" in vars(self)
        self._seen = True
        self.n += 1
        return knew

    def look(self) -> bool:
        return "_seen" in vars(self)

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.n

    def doubled(self, n: int) -> int:
        self.n = n
        return self.double

    def make(self, name: str) -> None:
        made = ht.current().create(Thing(name, tags=self.tags))
        made._seen = True

    def drop(self, name: str) -> None:
        there = ht.current().get(Thing, name)
        there.tags.append("dropped")
        ht.current().delete(there)

    def tag(self, tag: str) -> None:
        self.tags.append(tag)

    def retag(self, tag: str) -> None:
        self.tags = [*self.tags, tag]

    def tag_and_fail(self, tag: str) -> None:
        self.tags.append(tag)
        raise OwnError("no")

    def put(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def add_row(self, at: int, row: list[int]) -> None:
        self.rows.insert(at, row)

    def drop_row(self, at: int) -> None:
        del self.rows[at]

    def add_in_row(self, at: int, n: int) -> None:
        self.rows[at].append(n)

    def repart(self, tag: str) -> None:
        self.part = Part("new", [tag])
        self.parts["p"] = Part("of a dict", [tag])
        self.parts["more"] = Part("more")

    def end(self, how: str) -> None:
        self.n = 5
        getattr(ht.current(), how)()

    def fail(self, how: str) -> None:
        self.n = 77
        raise FAILURES[how]()


FAILURES: dict[str, Callable[[], BaseException]] = {
    "own": lambda: OwnError("no slot", 3),
    "odd": lambda: Odd(1, 2),
    "builtin": lambda: KeyError("key"),
    "halog": lambda: halog_error(),
    "silent": lambda: Silent("x"),
    "file": lambda: FileNotFoundError(2, "No such file", "plan.txt"),
    "files": lambda: PermissionError(13, "Not permitted", "a", None, "b"),
    "parts": lambda: KeyError(("N1", 3)),
    "containers": lambda: ValueError([1, {"a": (True, None)}], {}, ()),
    "library": lambda: json.JSONDecodeError("bad", "{", 0),
    "nested": lambda: OwnError(ValueError("inside")),
}


def halog_error() -> HalogError:
    return FieldTypeError("Thing.n: made by hand", field="n")


@pytest.fixture(params=["active here", "active elsewhere"])
def thing(request: pytest.FixtureRequest) -> Iterator[Any]:
    remote = request.param == "active elsewhere"
    with MemoryNode(MemoryCluster(1), REGISTRY, remote=remote, application_modules=[__name__]) as node:
        with node.transaction():
            node.create(Thing("a", 1))
            node.create(Named("a"))
        with node.transaction() as tx:
            yield tx.get(Thing, "a")
            tx.rollback()


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda t: t.add("1"), FieldTypeError, "Thing.add n: expected int, got str"),
        (lambda t: t.add(True), FieldTypeError, "expected int, got bool"),
        (lambda t: t.add(2**63), FieldTypeError, "64 bits"),
        (lambda t: t.add(1, times="2"), FieldTypeError, "times: expected int"),
        (lambda t: t.add(), TypeError, "missing a required argument: 'n'"),
        (lambda t: t.add(1, 2, 3), TypeError, "too many positional"),
        (lambda t: t.add(1, wrong=2), TypeError, "unexpected keyword"),
        (lambda t: t.halve(2), FieldTypeError, "share: expected float, got int"),
        (lambda t: t.fill(("a",)), FieldTypeError, "into: expected"),
        (lambda t: t.fill([1]), FieldTypeError, "into"),
        (lambda t: t.untold(1), DeclarationError, "parameter 'n' has no annotation"),
        (lambda t: t.unsaid(1), DeclarationError, "the result has no annotation"),
        (lambda t: t.unsendable(1), DeclarationError, "unsendable"),
        (lambda t: t.wrong(), FieldTypeError, "result: expected int, got str"),
        (lambda t: t.spoil(), FieldTypeError, "Thing.n: expected int, got str"),
        (lambda t: t.stray(), FieldTypeError, "nowhere"),
        (lambda t: t.end("commit"), TransactionError, "a method cannot end the transaction"),
        (lambda t: t.end("rollback"), TransactionError, "a method cannot end the transaction"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    thing: Any, call: Callable[[Any], object], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as told:
        call(thing)
    assert type(told.value) is kind
    assert (thing.n, thing.tags) == (1, [])
    assert not hasattr(thing, "nowhere")
    assert thing.add(1) == 2, "the transaction goes on"


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("own", OwnError, "no slot"),
        ("odd", RemoteCallError, "Odd: 1 and 2"),
        ("builtin", KeyError, "'key'"),
        ("halog", FieldTypeError, "Thing.n: made by hand"),
        ("library", RemoteCallError, "json.decoder:JSONDecodeError: bad"),
        ("nested", RemoteCallError, "OwnError: inside"),
        ("silent", RemoteCallError, "Silent: its text cannot be had: KeyboardInterrupt"),
        ("file", FileNotFoundError, "No such file: 'plan.txt'"),
        ("files", PermissionError, "'a' -> 'b'"),
        ("parts", KeyError, "N1"),
        ("containers", ValueError, "None"),
    ],
)
def test_what_it_raises_is_the_same(thing: Any, how: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as told:
        thing.fail(how)
    assert type(told.value) is kind
    if kind is RemoteCallError:
        assert set(told.value.evidence) == {"class", "message", "args", "evidence", "traceback"}  # type: ignore[attr-defined]
        assert "in fail" in told.value.evidence["traceback"]  # type: ignore[attr-defined]
    assert thing.n == 1


@pytest.mark.parametrize("how", ["file", "files", "parts", "containers", "builtin", "own"])
def test_what_it_raises_has_what_it_was_made_with(thing: Any, how: str) -> None:
    raised = FAILURES[how]()
    with pytest.raises(type(raised)) as told:
        thing.fail(how)
    assert repr(told.value) == repr(raised)
    assert str(told.value) == str(raised)
    if isinstance(raised, OSError):
        assert isinstance(told.value, OSError)
        names = ("errno", "strerror", "filename", "filename2")
        assert [getattr(told.value, n) for n in names] == [getattr(raised, n) for n in names]


def test_a_method_is_called_by_the_name_it_has_in_its_class(thing: Any) -> None:
    """Whatever its function is called: under a second name, decorated, two of one decorator."""
    named = ht.current().get(Named, "a")
    assert (named.plus(1), named.more(1), named.less(1), named.add(1)) == (1, 12, 11, 11)
    assert (named.add_all(1), named.shown(1), named._hidden(1), named.n) == (12 + 23, 23, 24, 24)
    for name in ("plus", "more", "less", "shown"):
        with pytest.raises(FieldTypeError, match=rf"Named\.{name} n: expected int, got str"):
            getattr(named, name)("1")
    assert named.n == 24


def test_arguments_are_copies(thing: Any) -> None:
    into, part, more = ["x"], Part("p", ["x"]), {"y": [2]}
    thing.fill(into)
    made = thing.fill_part(part, more=more)
    assert (into, part, more) == (["x"], Part("p", ["x"]), {"y": [2]})
    assert made == Part("p", ["x", "a"])
    assert made is not part
    assert [thing.gather() for _ in range(3)] == [1, 1, 1], "defaults, too"


def test_what_is_kept_of_an_argument_or_given_away_is_nobody_elses(thing: Any) -> None:
    tags = ["x"]
    thing.keep(tags)
    tags.append("y")
    shown = thing.show()
    shown.append("z")
    assert thing.tags == ["x"]


def test_a_call_knows_of_fields_alone_and_leaves_nothing_else(thing: Any) -> None:
    assert thing.note() is False
    assert not hasattr(thing, "_seen")
    assert (thing.note(), thing.look()) == (False, False), "nor of what the call before has left"
    thing._seen = "mine"
    assert thing.double == 6
    assert (thing.note(), thing.look()) == (False, False)
    assert thing._seen == "mine", "what its caller has there stays"
    with pytest.raises(OwnError):
        thing.tag_and_fail("x")
    assert thing._seen == "mine"


def test_what_is_worked_out_from_fields_is_worked_out_anew(thing: Any) -> None:
    assert thing.double == 2
    assert thing.doubled(5) == 10
    assert thing.double == 10


def test_objects_that_a_call_makes_and_deletes_are_the_same(thing: Any) -> None:
    tx = ht.current()
    thing.tag("x")
    thing.make("b")
    made: Any = tx.get(Thing, "b")
    made.tags.append("y")
    assert (thing.tags, made.tags) == (["x"], ["x", "y"]), "what it put into two objects is of each"
    assert not hasattr(made, "_seen")
    made._seen = 1
    thing.drop("b")
    assert made.tags == ["x", "y"]
    assert made._seen == 1
    assert tx.find(Thing, "b") is None


def test_what_is_taken_out_before_a_call_stays_the_objects(thing: Any) -> None:
    tags = thing.tags
    for n, call in enumerate((thing.tag, thing.retag)):
        call(f"{n}")
        assert tags is thing.tags
        assert tags == [f"{i}" for i in range(n + 1)]
    with pytest.raises(OwnError):
        thing.tag_and_fail("lost")
    assert tags is thing.tags
    tags.append("mine")
    assert thing.show() == ["0", "1", "mine"]


def test_so_does_what_is_in_it(thing: Any) -> None:
    thing.put([[0], [1], [2]])
    one = thing.rows[1]
    thing.add_row(0, [9])
    thing.add_in_row(2, 11)
    assert one is thing.rows[2]
    thing.drop_row(0)
    thing.add_row(3, [3])
    assert one is thing.rows[1]
    one.append(12)
    thing.add_in_row(1, 13)
    assert thing.rows == [[0], [1, 11, 12, 13], [2], [3]]
    thing.drop_row(1)
    one.append(14)
    assert thing.rows == [[0], [2], [3]], "what was removed is no more"
    part, thing.parts["p"] = thing.part, Part("mine")
    mine = thing.parts["p"]
    thing.repart("x")
    assert thing.part is part
    assert part == Part("new", ["x"])
    assert thing.parts["p"] is mine
    assert thing.parts == {"p": Part("of a dict", ["x"]), "more": Part("more")}


def test_what_is_held_twice_is_two_things_behind_a_call(thing: Any) -> None:
    thing.put([[0], [0]])
    thing.rows[1] = thing.rows[0]
    thing.add_in_row(1, 1)
    assert thing.rows == [[0], [0, 1]]


def test_what_its_caller_left_that_does_not_fit_is_told_first(thing: Any) -> None:
    thing.rows = [(1,)]
    with pytest.raises(FieldTypeError, match="rows"):
        thing.put([])
    assert thing.rows == [(1,)]
    thing.rows = []
    thing.nowhere = 1
    with pytest.raises(FieldTypeError, match="nowhere"):
        thing.put([])
    del thing.nowhere


def test_calls_within_a_method_are_pythons_own() -> None:
    """They are part of it, wherever it runs."""
    registry = Registry()

    @managed(key="name", registry=registry)
    class Outer:
        name: str

        def inner(self, into: list[str]) -> None:
            into.append("seen")

        def outer(self) -> list[str]:
            found: list[str] = []
            self.inner(found)
            return found

    for remote in (False, True):
        with MemoryNode(MemoryCluster(1), registry, remote=remote) as node, node.transaction() as tx:
            assert tx.create(Outer("a")).outer() == ["seen"]


def test_what_ends_the_process_is_not_the_methods() -> None:
    """Here it may be a Ctrl-C; from elsewhere it is told by name."""
    registry = Registry()

    @managed(key="name", registry=registry)
    class Stops:
        name: str

        def stop(self) -> None:
            ht.current().create(Stops("b"))
            raise Ended("over")

    with MemoryNode(MemoryCluster(1), registry) as node, node.transaction() as tx:
        with pytest.raises(Ended):
            tx.create(Stops("a")).stop()
        assert tx.find(Stops, "b") is None
    with MemoryNode(MemoryCluster(1), registry, remote=True) as node, node.transaction() as tx:
        with pytest.raises(RemoteCallError, match="Ended: over"):
            tx.create(Stops("a")).stop()
        assert tx.find(Stops, "b") is None


@managed(key="name", registry=REGISTRY)
class Flat:
    """Nothing of it can be changed in place: only what a method changed is looked at."""

    name: str
    n: int = 0
    share: float = 0.0
    said: str | None = None

    def put(self, field: str, which: int) -> None:
        setattr(self, field, LEFT[which])

    def take_out(self) -> None:
        del self.n


LEFT = ["5", True, 5, 2**63, 5.0, [], None]
FITS: dict[str, list[object]] = {"n": [5], "share": [5.0], "said": ["5", None], "nowhere": [], "_own": LEFT}


@pytest.mark.parametrize("remote", [False, True], ids=["active here", "active elsewhere"])
def test_what_a_method_leaves_in_a_flat_object_fits(remote: bool) -> None:
    with MemoryNode(MemoryCluster(1), REGISTRY, remote=remote, application_modules=[__name__]) as node:
        with node.transaction() as tx:
            tx.create(Flat("a"))
        with node.transaction() as tx:
            flat: Any = tx.get(Flat, "a")
            for field, fits in FITS.items():
                for i, value in enumerate(LEFT):
                    if any(type(value) is type(one) and value == one for one in fits):
                        flat.put(field, i)
                    else:
                        with pytest.raises(FieldTypeError, match=rf"Flat\.{field}"):
                            flat.put(field, i)
            assert (flat.n, flat.share, flat.said) == (5, 5.0, None)
            flat.n = "wrong"  # before the call, which leaves it
            with pytest.raises(FieldTypeError, match=r"Flat\.n"):
                flat.put("share", 4)
            flat.n = 1
            flat.take_out()
            assert flat.n == 0, "as of the class"
