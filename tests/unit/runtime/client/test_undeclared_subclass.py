"""Objects of a subclass that a process does not declare are in nobody's way there: named behind all others (U2)."""

from __future__ import annotations

from typing import Any

import pytest

import halog
from halog.errors import RecordFormatError
from halog.schema import Registry
from halog.testing.cluster import Cluster

pytestmark = [pytest.mark.nodes, pytest.mark.feature("U2", "D2")]


def declared(*subclasses: str) -> tuple[Registry, type[Any], dict[str, type[Any]]]:
    """A base, and these subclasses of it."""
    registry = Registry()

    @halog.managed(key="name", registry=registry)
    class Base:
        name: str
        n: int = 0

    made = {}
    for name in subclasses:
        cls = type(name, (Base,), {"__annotations__": {name.lower(): "int"}, name.lower(): 0, "__module__": __name__})
        made[name] = halog.managed(registry=registry)(cls)
    return registry, Base, made


def test_an_extent_gives_all_that_is_declared_here() -> None:
    """Of the branch of another subclass it tells nothing: that is none of the extent."""
    older, base, has = declared("One")
    newer, _, more = declared("One", "Two")
    with Cluster(2, partitions=2, registry=older) as cluster:
        client = cluster.client()
        with client.transaction() as tx:
            for n in range(6):
                tx.create(base(f"b{n}"))
                tx.create(has["One"](f"o{n}"))
        cluster.registry = newer
        with cluster.client().transaction() as tx:
            for n in range(3):
                tx.create(more["Two"](f"t{n}"))
        got: list[str] = []
        with client.transaction() as tx, pytest.raises(RecordFormatError, match="3 objects of the ") as told:
            got.extend(one.name for one in tx.extent(base))
        assert sorted(got) == sorted([*(f"b{n}" for n in range(6)), *(f"o{n}" for n in range(6))])
        assert "Two: not declared with halog.managed in this process" in told.value.message
        assert sorted(told.value.evidence["objects"]) == ["Base 't0'", "Base 't1'", "Base 't2'"]
        with client.transaction() as tx:
            assert sorted(one.name for one in tx.extent(has["One"])) == [f"o{n}" for n in range(6)]
