"""Whose trigger is asked about an object: its type's, or that of the nearest type it derives from (M3, P6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import halog
from halog.runtime.compensating import Compensation
from halog.schema.registry import Registry
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


def asked_about(cls: type[Any], *values: Any) -> tuple[str, bool]:
    """Who decided, and whether the initiating site's state stands."""
    info = registry.info(cls)
    ours, theirs = (Instance(b"r" * 24, info.encode_values((1, note, *values))) for note in ("ours", "theirs"))
    definitions: Any = SimpleNamespace(of=lambda value: info.parsed, find=lambda id_: info.parsed)
    found = Difference(info.index_key((1,)), Kind.STATE_CONFLICT, None, ours, theirs, (), ())
    (decided,) = Compensation(definitions, registry, 1_000, lambda *_: "p").decide((found,))
    return decided.by.rpartition(".")[2], decided.choice.then == theirs


def of_craft(conflict: Conflict) -> Verdict:
    return KeepInitiating()


def of_plane(conflict: Conflict) -> Verdict:
    return KeepSource() if conflict.type_name == "Glider" else KeepInitiating()


def test_a_type_has_the_trigger_of_the_nearest_type_it_derives_from() -> None:
    try:
        assert asked_about(Plane, 2) == ("", False), "the manual's defaults"
        halog.on_conflict(Craft, registry=registry)(of_craft)
        assert asked_about(Craft) == ("of_craft", True)
        assert asked_about(Plane, 2) == ("of_craft", True)
        halog.on_conflict(Plane, registry=registry)(of_plane)
        assert asked_about(Craft) == ("of_craft", True)
        assert asked_about(Glider, 2, "") == ("of_plane", False), "told by its own name"
    finally:
        registry.triggers.clear()
