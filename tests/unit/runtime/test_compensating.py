"""Whose trigger is asked about an object: its type's, or that of the nearest type it derives from (M3, P6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import halog
from halog.runtime import compensating
from halog.runtime.compensating import Compensation
from halog.schema.registry import Registry
from halog.testing.cluster import wait_until
from restore.compensation import Conflict, KeepInitiating, KeepSource, Verdict
from restore.merge import Difference, Instance, Kind

pytestmark = pytest.mark.feature("M3")

registry = Registry()


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


def conflict_of(cls: type[Any], number: int, *values: Any) -> Difference:
    info = registry.info(cls)
    ours, theirs = (Instance(b"r" * 24, info.encode_values((number, note, *values))) for note in ("ours", "theirs"))
    return Difference(info.index_key((number,)), Kind.STATE_CONFLICT, None, ours, theirs, (), ())


def compensation(cls: type[Any]) -> Compensation:
    info = registry.info(cls)
    definitions: Any = SimpleNamespace(of=lambda value: info.parsed, find=lambda id_: info.parsed)
    return Compensation(definitions, registry, 1_000, lambda *_: "p")


def asked_about(cls: type[Any], *values: Any) -> tuple[str, bool]:
    """Who decided, and whether the initiating site's state stands."""
    found = conflict_of(cls, 1, *values)
    (decided,) = compensation(cls).decide((found,))
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


@pytest.mark.usefixtures("clean")
def test_once_a_trigger_hangs_no_other_conflict_of_the_merge_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said before is heard; what it says late is not; what no trigger is asked about goes by the rules."""
    monkeypatch.setattr(compensating, "HANGS_S", 0.2)
    goes_on, asked, threads = threading.Event(), list[int](), threading.active_count()

    def hangs(conflict: Conflict) -> Verdict:
        asked.append(conflict.key["number"])
        if conflict.key["number"] == 2:
            goes_on.wait(60)
        return KeepInitiating()

    halog.on_conflict(Craft, registry=registry)(hangs)
    of_a_merge = compensation(Craft)
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
    assert compensation(Craft).decide((conflict_of(Craft, 7),))[0].choice.deferred == "", "another merge asks"
