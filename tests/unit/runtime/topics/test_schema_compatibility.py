"""Of every difference between two definitions: who may publish the newer one, and while who is up (U2, U3)?"""

from __future__ import annotations

import dataclasses
import enum
import re
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest

from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.errors import SchemaChangedError
from halog.ports import TopicPartition
from halog.runtime.topics.schema_compatibility import Runs
from halog.runtime.topics.schema_publication import publish
from halog.runtime.topics.schemas import Definitions
from halog.schema import Decimals, Definition, Ref, Registry, managed

pytestmark = pytest.mark.feature("U2", "U3")

TOPIC = "c.schemas"
TP = TopicPartition(TOPIC, 0)
NONE = dataclasses.MISSING


class RG(enum.Enum):
    R = 1
    G = 2


class RGB(enum.Enum):
    R = 1
    G = 2
    B = 3


class GR(enum.Enum):
    G = 2
    R = 1


class Other(enum.Enum):
    R = 1
    G = 2


for _enum in (RG, RGB, GR):
    _enum.__name__ = _enum.__qualname__ = "Color"


def record(name: str, **fields: Any) -> type[Any]:
    """A plain dataclass of this name; a field is its type, or (type, default)."""
    pairs = [f if isinstance(f, tuple) else (f,) for f in fields.values()]
    made = [
        (n, p[0], dataclasses.field(default=p[1])) if len(p) > 1 else (n, p[0])
        for n, p in zip(fields, pairs, strict=True)
    ]
    return dataclasses.make_dataclass(name, made)


class Case(NamedTuple):
    """`reads`: can the newer read what the older wrote; `is_read`: the other way round."""

    old: dict[str, Any]
    new: dict[str, Any]
    reads: bool
    is_read: bool
    field: str = "f"


def f(kind: Any, default: Any = NONE) -> dict[str, Any]:
    return {"f": kind if default is NONE else (kind, default)}


def computed() -> Any:
    return dataclasses.field(default_factory=lambda: 4)


P, Q = record("Point", x=int), record("Spot", x=int)
D2, D4, S3 = (Annotated[Decimal, Decimals(*digits)] for digits in ((6, 2), (9, 2), (6, 3)))

ONE: Any = Ref["One"] | None  # type: ignore[name-defined]
TWO: Any = Ref["Two"] | None  # type: ignore[name-defined]
BOTH = {"key": ("k", "f")}

CASES = {
    "a field more, with a default": Case({}, f(int, 7), True, True),
    "a field more, without a default": Case({}, f(int), False, True),
    "a field more, with a default that code makes": Case({}, f(int, computed()), False, True),
    "a field less, which had a default": Case(f(int, 7), {}, True, True),
    "a field less, which had none": Case(f(int), {}, True, False),
    "a field less, whose default code made": Case(f(int, computed()), {}, True, False),
    "a field renamed": Case(f(int), {"g": int}, False, False, ""),
    "a field renamed, both with a default": Case(f(int, 1), {"g": (int, 1)}, True, True),
    "another default": Case(f(int, 1), f(int, 2), True, True),
    "a default more": Case(f(int), f(int, 2), True, True),
    "a default less": Case(f(int, 2), f(int), True, True),
    "another order": Case({"f": int, "g": str}, {"g": str, "f": int}, True, True),
    "int to float": Case(f(int), f(float), True, False),
    "float to int": Case(f(float), f(int), False, True),
    "int to str": Case(f(int), f(str), False, False),
    "nullable": Case(f(int), f(int | None), True, False),
    "nullable no more": Case(f(int | None), f(int), False, True),
    "a decimal of more digits": Case(f(D2), f(D4), True, False),
    "a decimal of fewer digits": Case(f(D4), f(D2), False, True),
    "a decimal of another scale": Case(f(D2), f(S3), False, False),
    "an enum symbol more": Case(f(RG), f(RGB), True, False),
    "an enum symbol less": Case(f(RGB), f(RG), False, True),
    "enum symbols in another order": Case(f(RG), f(GR), True, True),
    "an enum of another name": Case(f(RG), f(Other), False, False),
    "a list's items wider": Case(f(list[int]), f(list[float]), True, False, "f[]"),
    "a list's items others": Case(f(list[int]), f(list[str]), False, False, "f[]"),
    "a dict's values nullable": Case(f(dict[str, int]), f(dict[str, int | None]), True, False, "f[]"),
    "a list of enums with a symbol more": Case(f(list[RG]), f(list[RGB]), True, False, "f[]"),
    "a list becomes a dict": Case(f(list[int]), f(dict[str, int]), False, False),
    "a nested field more, with a default": Case(f(P), f(record("Point", x=int, y=(int, 0))), True, True),
    "a nested field more, without": Case(f(P), f(record("Point", x=int, y=int)), False, True, "f.y"),
    "a nested field less": Case(f(record("Point", x=int, y=int)), f(P), True, False, "f.y"),
    "a nested class renamed": Case(f(P), f(Q), False, False),
    "a reference to another type": Case(f(ONE, None), f(TWO, None), False, False),
    "another key": Case({"key": "k", **f(int)}, {"key": ("k", "f"), **f(int)}, False, False, ""),
    "another partition_by": Case({**BOTH, **f(int)}, {**BOTH, "by": "k", **f(int)}, False, False, ""),
    "a key of another type": Case({"k": int}, {"k": str}, False, False, "k"),
    "a key's enum with a symbol more": Case({"k": RG}, {"k": RGB}, True, False, "k"),
    "a base": Case({}, {"base": True}, False, False, ""),
    "a version": Case({}, {"version": 2}, True, True),
    "another name": Case({}, {"name": "Gadget2"}, True, True),
}


def declared(said: dict[str, Any]) -> Registry:
    """A registry with the class Gadget, declared so."""
    made, said = Registry(), {"k": str, **said}
    options = {n: said.pop(n) for n in ("key", "name", "version") if n in said}
    by, base = said.pop("by", None), said.pop("base", False)
    fields = {n: v if isinstance(v, tuple) else (v,) for n, v in said.items()}
    body: dict[str, Any] = {n: v[1] for n, v in fields.items() if len(v) > 1}
    body |= {"__module__": __name__, "__annotations__": {n: v[0] for n, v in fields.items()}}
    if base:
        root: Any = managed(key="k", registry=made)(
            type("Root", (), {"__module__": __name__, "__annotations__": {"k": str}})
        )
        body["__annotations__"].pop("k")
        managed(registry=made)(type("Gadget", (root,), body))
        return made
    options.setdefault("key", "k")
    managed(partition_by=by, registry=made, **options)(type("Gadget", (), body))
    return made


def stored(log: MemoryLog) -> list[bytes]:
    return [d.type_id for d in Definitions(log, TOPIC).all()]


def of(registry: Registry) -> Definition:
    return next(i.parsed for i in registry.by_name.values() if i.name.startswith("Gadget"))


@pytest.mark.parametrize("up", ["nobody", "A runs it", "A does not say", "A runs another"])
@pytest.mark.parametrize("hosts", [True, False], ids=["node", "client"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_definition_is_published_if_all_who_count_can_live_with_it(case: Case, hosts: bool, up: str) -> None:
    """Both ways. What one that hosts brings while nobody runs the older one is told; whatever is refused changes
    nothing, and the text names class, field, both sides, and what to do."""
    log, older, newer = MemoryLog(MemoryBroker()), declared(case.old), declared(case.new)
    log.ensure_topic(TOPIC, 1, compacted=True)
    publish(log, TOPIC, older)
    old, new = of(older), of(newer)
    assert old.type_id != new.type_id
    types = {"nobody": {}, "A runs it": {"A": {old.type_id.hex()}}, "A does not say": {"A": None}}
    running: Runs = types.get(up, {"A": frozenset({"00"})})  # type: ignore[assignment]
    told: list[tuple[Definition, Definition]] = []
    before = stored(log)

    def begin() -> None:
        publish(log, TOPIC, newer, lambda: running, hosts=hosts, unread=lambda *pair: told.append(pair))

    counts = not hosts or up in ("A runs it", "A does not say")
    if case.reads and (case.is_read or not counts):
        begin()
        assert new.type_id in stored(log)
        assert told == ([] if case.is_read else [(new, old)])
        return
    with pytest.raises(SchemaChangedError) as caught:
        begin()
    assert (stored(log), told) == (before, [])
    text = str(caught.value)
    assert text.startswith(f"Gadget.{case.field}" if case.field else "Gadget")
    for said in (old.type_id.hex(), "Nothing was published", old.text, new.text):
        assert said in text
    if up in ("A runs it", "A does not say"):
        assert re.search(r"\bA\b", text.split("Definition in the cluster")[0])
        assert "deploy" in text or "stop them" in text
    elif not case.reads:
        assert f"`halog type retire Gadget {old.type_id.hex()}`" in text


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.reads], ids=[n for n, c in CASES.items() if c.reads])
def test_of_two_that_are_published_at_once_each_lives_with_the_other_or_one_goes(case: Case) -> None:
    """Both were judged when there was nothing, and both are registered: the later one in the topic gives way."""
    older, newer = declared(case.old), declared(case.new)
    log = MemoryLog(MemoryBroker())
    log.ensure_topic(TOPIC, 1, compacted=True)
    running: Runs = {"A": frozenset({of(older).type_id.hex()})}

    class Late(MemoryLog):
        """The older definition lands when all is judged and our writer is there."""

        def transaction(self, transactional_id: str) -> Any:
            if self.bounds(TP)[1] == 0:
                self.put(TP, of(older).type_id, of(older).text.encode())
            return super().transaction(transactional_id)

    if case.is_read:
        publish(Late(log.broker), TOPIC, newer, lambda: running)
        assert stored(log) == [of(older).type_id, *[i.type_id for i in newer.by_name.values()]]
        return
    with pytest.raises(SchemaChangedError):
        publish(Late(log.broker), TOPIC, newer, lambda: running)
    assert stored(log) == [of(older).type_id]


def test_who_has_just_died_is_waited_for() -> None:
    """The coordinator keeps the registration of a killed process for as long as its session."""
    log = MemoryLog(MemoryBroker())
    log.ensure_topic(TOPIC, 1, compacted=True)
    case = CASES["int to float"]
    publish(log, TOPIC, declared(case.old))
    looks: list[Runs] = [{"A": frozenset({of(declared(case.old)).type_id.hex()})}] * 3

    def running() -> Runs:
        return looks.pop() if looks else {}

    publish(log, TOPIC, declared(case.new), running, lasts_s=30)
    assert of(declared(case.new)).type_id in stored(log)


def test_nobody_is_asked_who_runs_what_where_nothing_is_new() -> None:
    log = MemoryLog(MemoryBroker())
    log.ensure_topic(TOPIC, 1, compacted=True)
    publish(log, TOPIC, declared({}))
    publish(log, TOPIC, declared({}), lambda: pytest.fail("a start costs a look at every registration"))
