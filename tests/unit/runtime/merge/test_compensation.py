"""Whose trigger is asked about an object: its type's, or that of the nearest type it derives from (M3, P6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import halog
from halog.runtime.merge.compensation import Compensation, TriggerCalls
from halog.runtime.merge.merge_paces import PACES, MergePaces
from halog.schema.definition import ID_BYTES
from halog.schema.registry import Registry
from halog.testing.cluster import wait_until
from restore.compensation import Conflict, KeepInitiating, KeepSource, Replace, Verdict
from restore.merge import Difference, Instance, Kind

pytestmark = pytest.mark.feature("M3")

registry = Registry()
SOON = MergePaces(hangs_s=0.2)
"""Nobody waits for long for a trigger that hangs."""


@halog.managed(key="number", registry=registry)
class Craft:
    number: int
    note: str = ""


@halog.managed(registry=registry)
class Plane(Craft):
    wings: int = 2


@halog.managed(registry=registry)
class Glider(Plane):
    tow: str = ""


@halog.managed(registry=registry)
class Twin(Craft):
    """Nothing but another name."""


def conflict_of(cls: type[Any], number: int, *values: Any) -> Difference:
    info = registry.info(cls)
    ours, theirs = (Instance(b"r" * 24, info.encode_values((number, note, *values))) for note in ("ours", "theirs"))
    return Difference(info.index_key((number,)), Kind.STATE_CONFLICT, None, ours, theirs, (), ())


def compensation(
    known: Registry = registry, asking: TriggerCalls | None = None, paces: MergePaces = PACES
) -> Compensation:
    """`known`: what the node that merges has declared."""
    definitions: Any = SimpleNamespace(
        of=lambda value: registry.info(value[:ID_BYTES]).parsed, find=lambda id_: registry.info(id_).parsed
    )
    return Compensation(definitions, known, lambda *_: 1_000, lambda *_: "p", asking, paces)


def asked_about(cls: type[Any], *values: Any) -> tuple[str, bool]:
    """Who decided, and whether the initiating site's state stands."""
    found = conflict_of(cls, 1, *values)
    (decided,) = compensation().decide((found,))
    return decided.by.rpartition(".")[2], decided.choice.then == found.initiating


@pytest.fixture
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def of_craft(conflict: Conflict) -> Verdict:
    return KeepInitiating()


def of_plane(conflict: Conflict) -> Verdict:
    return KeepSource() if conflict.type_name == "Glider" else KeepInitiating()


@pytest.mark.usefixtures("clean")
def test_a_type_has_the_trigger_of_the_nearest_type_it_derives_from() -> None:
    assert asked_about(Plane, 2) == ("", False), "the manual's defaults"
    halog.on_conflict(Craft, registry=registry)(of_craft)
    assert asked_about(Craft) == ("of_craft", True)
    assert asked_about(Plane, 2) == ("of_craft", True)
    halog.on_conflict(Plane, registry=registry)(of_plane)
    assert asked_about(Craft) == ("of_craft", True)
    assert asked_about(Glider, 2, "") == ("of_plane", False), "told by its own name"


def of(cls: type[Any], ref: bytes, *values: Any) -> Instance:
    return Instance(ref * 24, registry.info(cls).encode_values((1, *values)))


def between(source: Instance, initiating: Instance, base: Instance | None = None) -> Difference:
    """Both sites have created, or replaced, what is under this key."""
    return Difference(registry.info(Craft).index_key((1,)), Kind.KEY_CONFLICT, base, source, initiating, (), ())


CRAFT, PLANE, GLIDER = of(Craft, b"c", "a craft"), of(Plane, b"p", "a plane", 4), of(Glider, b"g", "a glider", 2, "car")
FIELDS: dict[Instance, dict[str, object]] = {
    CRAFT: {"number": 1, "note": "a craft"},
    PLANE: {"number": 1, "note": "a plane", "wings": 4},
    GLIDER: {"number": 1, "note": "a glider", "wings": 2, "tow": "car"},
}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(("source", "initiating"), [(CRAFT, PLANE), (PLANE, CRAFT), (GLIDER, PLANE), (CRAFT, GLIDER)])
def test_each_state_is_shown_as_its_own_type_has_it(source: Instance, initiating: Instance) -> None:
    seen: list[Conflict] = []

    def seeing(conflict: Conflict) -> Verdict:
        seen.append(conflict)
        return KeepInitiating()

    halog.on_conflict(Craft, registry=registry)(seeing)
    (decided,) = compensation().decide((between(source, initiating, CRAFT),))
    assert (decided.choice.deferred, decided.choice.then) == ("", initiating)
    (one,) = seen
    assert (one.base, one.source, one.initiating) == (FIELDS[CRAFT], FIELDS[source], FIELDS[initiating])
    names = [registry.info(s.value[:ID_BYTES]).name for s in (source, initiating) if s.value is not None]
    assert [one.source_type, one.initiating_type] == names
    assert one.type_name == names[0]


@pytest.mark.usefixtures("clean")
def test_of_two_types_the_trigger_of_one_that_both_are_is_asked() -> None:
    """A trigger is shown nothing but what it was declared for."""
    halog.on_conflict(Plane, registry=registry)(of_plane)
    for source, initiating in ((CRAFT, PLANE), (PLANE, CRAFT)):
        assert compensation().decide((between(source, initiating),))[0].by == ""
    assert compensation().decide((between(GLIDER, PLANE),))[0].by.endswith("of_plane")
    halog.on_conflict(Craft, registry=registry)(of_craft)
    assert compensation().decide((between(PLANE, CRAFT),))[0].by.endswith("of_craft")
    assert compensation().decide((between(GLIDER, PLANE),))[0].by.endswith("of_plane")
    assert compensation().decide((between(GLIDER, PLANE, CRAFT),))[0].by.endswith("of_craft"), "it sees the base, too"


@pytest.mark.usefixtures("clean")
def test_what_a_verdict_makes_has_the_type_of_the_instance_that_is_there() -> None:
    said: dict[str, Verdict] = {"": Replace(FIELDS[CRAFT] | {"note": "both"})}
    halog.on_conflict(Craft, registry=registry)(lambda c: said[""])
    (decided,) = compensation().decide((between(CRAFT, PLANE),))
    assert decided.choice.then == of(Craft, b"c", "both")
    said[""] = Replace(FIELDS[PLANE])
    (decided,) = compensation().decide((between(CRAFT, PLANE),))
    assert "Craft: missing or unknown field 'wings'" in decided.choice.deferred
    assert decided.choice.then == CRAFT


@pytest.mark.usefixtures("clean")
def test_what_is_created_beside_it_has_the_type_whose_fields_it_has() -> None:
    halog.on_conflict(Craft, registry=registry)(
        lambda c: KeepSource(also=({**(c.initiating or {}), "number": 2}, {**(c.source or {}), "number": 3}))
    )
    (decided,) = compensation().decide((between(CRAFT, PLANE),))
    assert [new.value for new in decided.also] == [
        registry.info(Plane).encode_values((2, "a plane", 4)),
        registry.info(Craft).encode_values((3, "a craft")),
    ]
    twin = of(Twin, b"t", "a twin")
    (decided,) = compensation().decide((between(CRAFT, twin),))
    assert "Craft and Twin have the same fields" in decided.choice.deferred


@pytest.mark.usefixtures("clean")
def test_a_type_that_this_node_does_not_know_is_left_to_an_operator() -> None:
    """One side was upgraded. What it derives from has a trigger, which cannot be asked."""
    old = Registry()
    old.add(registry.info(Craft))
    halog.on_conflict(Craft, registry=old)(of_craft)
    for found in (between(CRAFT, PLANE), between(PLANE, CRAFT)):
        (decided,) = compensation(old).decide((found,))
        assert "Plane: not declared" in decided.choice.deferred


@pytest.mark.usefixtures("clean")
def test_a_merge_that_is_begun_anew_does_not_ask_what_still_hangs() -> None:
    """At most one execution of it is running; about other objects it is asked, and about this one when it has ended."""
    goes_on, asked, asking = threading.Event(), list[int](), TriggerCalls()

    def hangs(conflict: Conflict) -> Verdict:
        asked.append(conflict.key["number"])
        if asked == [1]:
            goes_on.wait(60)
        return KeepInitiating()

    halog.on_conflict(Craft, registry=registry)(hangs)
    compensation(asking=asking, paces=SOON).decide((conflict_of(Craft, 1),))
    again = compensation(asking=asking, paces=SOON).decide((conflict_of(Craft, 1), conflict_of(Craft, 2)))
    assert [d.choice.deferred.partition(" is ")[2] for d in again] == [
        "still at it since an earlier merge, and was not asked again",
        "",
    ]
    assert again[0].failed
    assert asked == [1, 2]
    goes_on.set()
    wait_until(lambda: asking.begins(hangs, conflict_of(Craft, 1).key), "it ends")
    asking.ended(hangs, conflict_of(Craft, 1).key)
    assert compensation(asking=asking).decide((conflict_of(Craft, 1),))[0].choice.deferred == ""


def test_once_a_trigger_hangs_no_other_conflict_of_the_merge_is_asked_about() -> None:
    """What was said before is heard; what it says late is not; what no trigger is asked about goes by the rules."""
    goes_on, asked, threads = threading.Event(), list[int](), threading.active_count()

    def hangs(conflict: Conflict) -> Verdict:
        asked.append(conflict.key["number"])
        if conflict.key["number"] == 2:
            goes_on.wait(60)
        return KeepInitiating()

    halog.on_conflict(Craft, registry=registry)(hangs)
    of_a_merge = compensation(paces=SOON)
    taken = conflict_of(Craft, 5)._replace(kind=Kind.TAKEN)
    told = of_a_merge.decide((*(conflict_of(Craft, n) for n in range(5)), taken))
    next_ones = of_a_merge.decide((conflict_of(Craft, 7),))
    goes_on.set()
    wait_until(lambda: threading.active_count() <= threads, "it ends")
    whys = [d.choice.deferred for d in (*told, *next_ones)]
    by = f"{__name__}.{hangs.__qualname__}"
    hung, unasked = f"{by} did not answer within 0.2 s", f"a trigger has hung: {by} was not asked"
    assert whys == ["", "", hung, unasked, unasked, "", unasked]
    assert [d.by for d in told] == [by] * 5 + [""]
    assert [d.choice.then == d.choice.found.initiating for d in told] == [True, True, False, False, False, True]
    assert asked == [0, 1, 2], "nor is it asked when it goes on"
    assert compensation().decide((conflict_of(Craft, 7),))[0].choice.deferred == "", "another merge asks"
