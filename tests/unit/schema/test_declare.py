"""Declaring managed classes: what is accepted, what is refused, and that the refusal names the culprit."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, ClassVar, NewType, TypeVar

import pytest

from halog.errors import DeclarationError, FieldTypeError, UnknownTypeError
from halog.schema import Decimals, Definition, Ref, Registry, managed
from halog.schema.declare import KeyField
from tests.unit.schema import shapes_strategy as shapes

HERE = Registry()
T = TypeVar("T")


class Status(enum.Enum):
    FLYING = 1
    PARKED = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Empty(enum.Enum):
    pass


@dataclasses.dataclass
class Reckoned:
    """Its field is another one each time it is looked at."""

    n: int = 0

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return found + 1 if name == "n" else found


@dataclasses.dataclass
class Position:
    lat: float
    lon: float = 0.0


@dataclasses.dataclass(frozen=True)
class Fixed:
    x: int


@dataclasses.dataclass(frozen=True)
class FixedAround:
    xs: list[int]


@dataclasses.dataclass
class Chain:
    next: Chain | None


@dataclasses.dataclass
class Nothing:
    pass


Tail = NewType("Tail", str)


@managed(key="tail", registry=HERE)
class Aircraft:
    kinds: ClassVar[int] = 3
    tail: Tail
    landings: int = 0
    mother: Ref[Aircraft] | None = None
    pilot: Ref[Later] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def land(self, miles: int = 1) -> int:
        """Doc."""
        self.landings += miles
        return self.landings

    @property
    def double(self) -> int:
        return 2 * self.landings

    @staticmethod
    def of() -> int:
        return 1


@managed(key="name", registry=HERE)
class Later:
    name: str


@managed(registry=HERE)
class Jet(Aircraft):
    engines: int = 2

    def land(self, miles: int = 1) -> int:
        return super().land(miles) + 1000


@pytest.mark.feature("D1")
def test_a_declared_class_is_a_dataclass() -> None:
    """Positional and keyword construction, defaults, equality by fields; two objects share no default list."""
    a, b = Aircraft(Tail("N1"), landings=2), Aircraft(tail=Tail("N1"), landings=2)
    assert a == b
    assert a != Aircraft(Tail("N2"), 2)
    a.notes.append("x")
    assert b.notes == []


def test_type_info_describes_the_class() -> None:
    """Names, key, partition_by (default: the whole key) and the class are found by class, name, type id and object."""
    info = HERE.info(Aircraft)
    assert (info.name, info.key_fields, info.partition_fields) == ("Aircraft", ("tail",), ("tail",))
    assert info.fields == ("tail", "landings", "mother", "pilot", "notes")
    obj = Aircraft(Tail("N1"))
    assert HERE.info("Aircraft") is HERE.info(info.type_id) is HERE.info(obj) is HERE.by_class[Aircraft] is info
    assert info.key_of(obj) == ("N1",)
    assert info.values_of(obj) == ("N1", 0, None, None, [])


@pytest.mark.parametrize("what", ["Boat", b"\0" * 8, int, 3])
def test_an_unknown_type_is_named(what: object) -> None:
    """What nobody declared raises UnknownTypeError, whether asked by name, id, class or object."""
    with pytest.raises(UnknownTypeError, match="not declared"):
        HERE.info(what)


def test_a_subclass_inherits_key_and_family() -> None:
    """One family: same key and partition_by, same index key for the same key, different type ids."""
    base, sub = HERE.info(Aircraft), HERE.info(Jet)
    assert (sub.key_fields, sub.partition_fields, sub.bases) == (("tail",), ("tail",), ("Aircraft",))
    assert sub.index_key(("N1",)) == base.index_key(("N1",))
    assert sub.type_id != base.type_id
    assert HERE.subtypes(Aircraft) == (base, sub)
    assert HERE.subtypes("Jet") == (sub,)
    assert HERE.info(Later).index_key(("N1",)) != base.index_key(("N1",))


def test_a_key_field_cannot_be_assigned_or_deleted() -> None:
    """After construction the key stands; an inherited one too. The refusal says what to do, and nothing changed."""
    for obj in (Aircraft(Tail("N1")), Jet(Tail("N1"))):
        with pytest.raises(FieldTypeError, match=r"\.tail: .*cannot be assigned.*create another"):
            obj.tail = Tail("N2")
        with pytest.raises(FieldTypeError, match="cannot be deleted"):
            del obj.tail
        assert obj.tail == "N1"


def test_reading_a_key_field_passes_no_python_code() -> None:
    """The guard has no __get__, so reading the key costs what reading any attribute costs."""
    assert not hasattr(KeyField, "__get__")
    assert isinstance(vars(Aircraft)["tail"], KeyField)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def call(self, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls.append((obj, name, args, kwargs))
        return HERE.info(obj).methods[name].func(obj, *args, **kwargs)


@pytest.mark.feature("D1")
def test_a_bound_object_calls_through_its_binding() -> None:
    """A public method of a bound object goes to the binding with name and arguments; a property does not."""
    obj, binding = Aircraft(Tail("N1")), Recorder()
    obj.__dict__["_halog"] = binding
    assert obj.land(miles=3) == 3
    assert binding.calls == [(obj, "land", (), {"miles": 3})]
    assert (obj.double, obj.of()) == (6, 1)
    assert len(binding.calls) == 1


def test_an_override_that_calls_super_is_one_call() -> None:
    """super().land() inside the call belongs to it: the binding hears of one call, and it does not recurse."""
    obj, binding = Jet(Tail("N1")), Recorder()
    obj.__dict__["_halog"] = binding
    assert obj.land(5) == 1005
    assert len(binding.calls) == 1


def test_the_wrapper_keeps_the_functions_face() -> None:
    """Name, docstring and the function itself stay reachable."""
    assert (Aircraft.land.__name__, Aircraft.land.__doc__) == ("land", "Doc.")
    func: Any = HERE.info(Aircraft).methods["land"].func
    assert func is Aircraft.land.__wrapped__  # type: ignore[attr-defined]
    assert HERE.info(Jet).methods["land"].func is not func


def test_the_binding_is_no_field() -> None:
    """A bound object encodes, compares and prints like an unbound one."""
    plain, bound = Aircraft(Tail("N1")), Aircraft(Tail("N1"))
    bound.__dict__["_halog"] = Recorder()
    assert HERE.info(Aircraft).encode(plain) == HERE.info(Aircraft).encode(bound)
    assert plain == bound
    assert repr(plain) == repr(bound)


GOOD: list[Any] = [
    bool,
    int,
    float,
    str,
    bytes,
    Decimal,
    Annotated[Decimal, Decimals(10, 2)],
    Annotated[int, "metres"],
    dt.datetime,
    dt.date,
    dt.time,
    uuid.UUID,
    Status,
    list[int],
    dict[str, int],
    int | None,
    Position,
    Ref[Aircraft],
    Ref[Aircraft] | None,
    list[dict[str, Position | None]],
    dict[str, list[Ref[Aircraft]]],
    Tail,
    "list[Status]",
]


def declare(annotation: Any, **options: Any) -> Any:
    body = {"__annotations__": {"k": int, "x": annotation}, "__module__": __name__}
    return managed(**{"key": "k", "registry": Registry(), **options})(type("Probe", (), body))


@pytest.mark.parametrize("annotation", GOOD, ids=str)
def test_allowed_annotations(annotation: Any) -> None:
    """Every annotation the documentation lists can be declared, and fastavro accepts its schema."""
    assert declare(annotation).__halog__.schema


BAD: list[tuple[Any, str]] = [
    (object, "allowed are"),
    (Any, "allowed are"),
    (complex, "allowed are"),
    (set[int], "allowed are"),
    (tuple[int, int], "allowed are"),
    (list, "allowed are"),
    (dict, "allowed are"),
    (T, "allowed are"),
    (None, "allowed are"),
    (int | str, "union"),
    (int | str | None, "union"),
    (dict[int, str], "keys must be str"),
    (Access, "Flag"),
    (Empty, "without members"),
    (Chain, "recursive"),
    (Nothing, "no fields"),
    (Aircraft, r"write Ref\[Aircraft\]"),
    (Ref[int], "refers to a class declared"),
    (Ref[Position], "refers to a class declared"),
    (Annotated[Decimal | None, Decimals(10, 2)], r"write Annotated\[Decimal, Decimals\(10, 2\)\] \| None"),
    (Annotated[float, Decimals(10, 2)], "Decimals says how many digits a Decimal has"),
    (list[Annotated[list[Decimal], Decimals(10, 2)]], "Decimals says how many digits a Decimal has"),
    (Annotated[Decimal, Decimals(10, 2), Decimals(5, 1)], "Decimals twice"),
    (Reckoned, "__getattribute__"),
    ("Missing", "is not defined"),
    ("list[Missing]", "is not defined"),
    ("in valid", "cannot be read"),
]


@pytest.mark.parametrize(("annotation", "why"), BAD, ids=str)
def test_refused_annotations(annotation: Any, why: str) -> None:
    """What has no single stored form is refused at declaration, naming class and field."""
    with pytest.raises(DeclarationError, match=why) as caught:
        declare(annotation)
    assert "Probe" in str(caught.value)


@pytest.mark.parametrize("annotation", [float, list[int], int | None, Position, dt.time, Ref[Aircraft]], ids=str)
def test_what_cannot_be_a_key(annotation: Any) -> None:
    """A key field has one stored form and is always there."""
    with pytest.raises(DeclarationError, match=r"Probe\.x: a key field must be"):
        declare(annotation, key="x")


@pytest.mark.parametrize(
    "annotation", [str, int, bytes, bool, Status, dt.date, dt.datetime, Decimal, uuid.UUID], ids=str
)
def test_what_can_be_a_key(annotation: Any) -> None:
    """The key types of the documentation."""
    assert declare(annotation, key="x").__halog__.key_fields == ("x",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "y"}, "'y' is not a field"),
        ({"key": ()}, "which field identifies"),
        ({"key": ("k", "k")}, "different fields"),
        ({"partition_by": "x"}, "'x' is not in it"),
        ({"partition_by": ("k", "k")}, "different ones"),
        ({"name": "a/b"}, "a name is made of"),
        ({"name": "x" * 101}, "a name is made of"),
        ({"version": "1"}, "version must be an int"),
    ],
)
@pytest.mark.feature("D1", "P6")
def test_refused_options(options: dict[str, Any], why: str) -> None:
    """Key, partition_by, name and version are checked at declaration."""
    with pytest.raises(DeclarationError, match=why):
        declare(int, **options)


def test_partition_by_a_part_of_the_key() -> None:
    """The routing key is the Avro of the partition_by values alone, so types partitioned alike live together."""
    flight = declare(str, key=("k", "x"), partition_by="x").__halog__
    assert flight.partition_fields == ("x",)
    assert flight.routing_key((7, "N1")) == HERE.info(Aircraft).routing_key(("N1",))


@pytest.mark.parametrize("by", ["k", "x", ("k", "x"), ("x", "k")])
def test_both_keys_of_an_object_at_once(by: str | tuple[str, ...]) -> None:
    """They are those of its key, whether it routes whole, in part, or the other way round."""
    cls = declare(str, key=("k", "x"), partition_by=by)
    info = cls.__halog__
    assert info.keys_of(cls(7, "N1")) == (info.index_key((7, "N1")), info.routing_key((7, "N1")))


def test_a_subclass_cannot_change_the_key() -> None:
    """Bases and subclasses share a key space: another key, partition_by or key type is refused, as are two roots."""
    with pytest.raises(DeclarationError, match="inherited from Aircraft"):
        managed(key="landings")(type("A", (Aircraft,), {"__module__": __name__}))
    with pytest.raises(DeclarationError, match="inherited key field"):
        managed()(type("B", (Aircraft,), {"__annotations__": {"tail": str}, "__module__": __name__}))
    with pytest.raises(DeclarationError, match="different families"):
        managed()(type("C", (Aircraft, Later), {"__module__": __name__}))


def test_one_name_in_two_modules_is_refused() -> None:
    """Names do not hold the module, so a second class of the same name elsewhere would be read as the first."""
    registry = Registry()
    body = {"__annotations__": {"k": int}}
    managed(key="k", registry=registry)(type("Twice", (), {**body, "__module__": "a"}))
    with pytest.raises(DeclarationError, match="Twice: declared in b and already in a"):
        managed(key="k", registry=registry)(type("Twice", (), {**body, "__module__": "b"}))
    named: Any = managed(key="k", name="Other", registry=registry)(type("Twice", (), {**body, "__module__": "b"}))
    assert registry.by_name["Other"].cls is named


def test_a_reloaded_module_replaces_its_class() -> None:
    """The same name from the same module takes the old one's place everywhere."""
    registry = Registry()
    first = declare(int, registry=registry)
    second = declare(str, registry=registry)
    assert registry.info("Probe").cls is second
    assert list(registry.by_class) == [second]
    assert first.__halog__.type_id not in registry.by_type_id


ONE = """
import halog
@halog.managed(key="k", registry=registry)
class Twice:
    k: int
"""
BELOW = ONE + ONE.replace("k: int", "k: str")
NAMED = ONE + ONE.replace("class Twice", "class Other").replace('key="k"', 'key="k", name="Twice"')


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (BELOW, r"Twice: \S+ declares it \(line 8\) and already \(line 3\); call one of the classes otherwise"),
        (NAMED, r"Twice: \S+ declares Other \(line 8\) and already Twice \(line 3\) by this name; give one of them"),
    ],
)
def test_two_classes_of_one_name_in_one_module_are_refused(source: str, said: str) -> None:
    """The second one would take the first one's place, whose objects nobody could read."""
    registry = Registry()
    with pytest.raises(DeclarationError, match=said):
        exec(source, {"__name__": __name__, "registry": registry})  # noqa: S102 - the source of this test
    assert registry.by_name["Twice"].cls.__qualname__ == "Twice"
    assert registry.by_name["Twice"].cls.__annotations__ == {"k": "int"}


def test_a_class_that_is_declared_by_other_code_of_its_module_takes_its_place() -> None:
    """A module that is read again, and a notebook's cell, whatever stands above the class by then."""
    registry = Registry()
    globals_ = {"__name__": __name__, "registry": registry}
    for source in (ONE, ONE, "\n\n" + ONE):
        exec(source, globals_)  # noqa: S102 - the source of this test
        assert registry.by_name["Twice"].cls is globals_["Twice"]
    assert list(registry.by_class) == [globals_["Twice"]]


def test_limits_hold_at_declaration() -> None:
    """More than 1,000 fields or 32 levels are refused where they are written, not where they are read."""
    many = {f"f{i}": int for i in range(1001)}
    with pytest.raises(DeclarationError, match="more than 1000 fields"):
        managed(key="f0", registry=Registry())(type("Many", (), {"__annotations__": many, "__module__": __name__}))
    deep: Any = int
    for _ in range(32):
        deep = list[deep]
    with pytest.raises(DeclarationError, match="nested deeper than 32"):
        declare(deep)


def test_mutable_says_whether_values_change_in_place() -> None:
    """Lists, dicts and nested dataclasses count; frozen ones only for what they hold."""
    assert [declare(a).__halog__.mutable for a in (int, list[int], dict[str, int], Position, Fixed, FixedAround)] == [
        False,
        True,
        True,
        True,
        False,
        True,
    ]


def _symbols(count: int) -> Any:
    return enum.Enum("Symbols", {f"M{i}": i for i in range(count)})


def _deep(annotation: Any, levels: int) -> Any:
    for _ in range(levels):
        annotation = list[annotation]
    return annotation


@pytest.mark.parametrize(
    ("fields", "body", "version", "why"),
    [
        ({"f": _symbols(1_000)}, {}, None, ""),
        ({"f": _symbols(1_001)}, {}, None, "an Enum of 1,001 members, more than 1,000; use a str"),
        ({"f": _deep(int, 30)}, {}, None, ""),
        ({"f": _deep(int, 31)}, {}, None, "Probe: nested deeper than 32"),
        ({"f": Annotated[int | None, "x"] | None}, {}, None, ""),
        ({"f": list[Annotated[Annotated[str | None, 1] | None, 2] | None]}, {}, None, ""),
        ({f"f{i}": int for i in range(999)}, {}, None, ""),
        ({f"f{i}": int for i in range(1_000)}, {}, None, "more than 1000 fields"),
        ({"f": str}, {"f": "x" * 524_127}, None, ""),
        ({"f": str}, {"f": "x" * 524_128}, None, "Probe: its definition has 524,289 bytes, more than 524,288"),
        ({"f": str}, {"f": "é" * 100_000}, None, "its definition has 600,161 bytes.*is a default very long"),
        ({}, {}, 2**63 - 1, ""),
        ({}, {}, 2**63, "Probe: version must be an int of at most 64 bits, larger is newer"),
        ({}, {}, 10**40, "Probe: version must be an int of at most 64 bits"),
    ],
)
def test_what_is_declared_is_read_by_others(fields: Any, body: Any, version: int | None, why: str) -> None:
    """Or is refused at import: a definition that is published and not read would let no process start."""
    if why:
        with pytest.raises(DeclarationError, match=why):
            shapes.declare({"k": int, **fields}, body=body, version=version)
        return
    info = shapes.declare({"k": int, **fields}, body=body, version=version)
    assert Definition.parse(info.definition, info.type_id).text == info.definition
