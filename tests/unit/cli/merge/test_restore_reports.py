"""What an operator is told of a merge, and which site he is led to (M2, M3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halog.cli.merge import reports as merged, restore
from halog.cli.sites import group as sites
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import RefusedError, UnreachableError
from halog.ports import Versioned
from restore.compensation import Defer
from restore.merge import Difference, Instance, Kind
from restore.plan import Choice
from restore.report import merged as evidence
from restore.waiting import MergeReport

pytestmark = pytest.mark.feature("M2", "M3")


def test_what_waits_for_an_operator_is_shown_also_where_both_sites_came_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, now = Instance(b"r" * 24, b"1"), Instance(b"r" * 24, b"2")
    found = Difference(b"k", Kind.ALIKE, base, now, now, (), ())
    one = evidence(Choice(found, Defer("count them"), now), "the trigger")
    monkeypatch.setattr(merged, "reports", lambda connection, table: [MergeReport(b"aa", 7, (one,))])
    monkeypatch.setattr(merged, "told", lambda connection, found, then, by, why: {"deferred": why})
    table: Any = SimpleNamespace(name="p")
    nobody: Any = None
    shown = [{"deferred": "count them", "open": True, "closed": ""}]
    assert [d["objects"] for d in merged._documents(nobody, table, None, merged._told)] == [shown]
    assert [d["objects"] for d in merged._open(nobody, table, None)] == [shown]


def connection(active: str) -> Any:
    """Two other sites: one that cannot be reached, one where this node is active."""
    table = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A",), 0, active=Member(active, 1))
    coordinator = SimpleNamespace(get=lambda path: Versioned(table.to_bytes(), 0))

    def reach(site: str) -> Any:
        if site == "dr":
            raise UnreachableError("site dr cannot be reached")
        return SimpleNamespace(coordinator=coordinator, close=lambda: None)

    config = SimpleNamespace(other_sites=("dr", "east"))
    return SimpleNamespace(config=config, adapters=SimpleNamespace(reach=reach))


def test_a_named_node_is_found_though_another_site_cannot_be_reached() -> None:
    assert restore._site_of(connection("east-1"), "p", "east-1") == "east"


def test_a_named_node_that_is_not_found_may_be_where_nobody_answers() -> None:
    with pytest.raises(RefusedError, match=r"east-2 is not active for p at any other site.*dr cannot be reached"):
        restore._site_of(connection("east-1"), "p", "east-2")


def tables(*policies: str) -> list[PartitionTable]:
    return [PartitionTable(f"{name}-0", bytes(16).hex(), "t", 0, name, ("A",), 0) for name in policies]


def mapped(**mappers: str) -> Any:
    return SimpleNamespace(policies={name: SimpleNamespace(mapper=mapper) for name, mapper in mappers.items()})


@pytest.mark.feature("P6")
@pytest.mark.parametrize("mapper", ["round_robin", "least_loaded", "at_create:app:where"])
def test_what_keeps_a_directory_is_left_out_and_holds_up_nothing_else(mapper: str) -> None:
    """A key may be in two partitions of two sites; that is no reason not to merge the others."""
    config = mapped(a="consistent_hash", b=mapper)
    found, left = restore.mergeable(config, tables("a", "b"), named=False)
    assert [t.name for t in found] == ["a-0"]
    assert left.keys() == {"b-0"}
    assert f"(mapper {mapper})" in left["b-0"]
    assert "halog site demote" in left["b-0"]
    with pytest.raises(RefusedError, match="partition b-0: policy b keeps a directory"):
        restore.mergeable(config, tables("a", "b"), named=True)
    with pytest.raises(RefusedError, match="b-0"):
        restore.mergeable(config, tables("b"), named=False)
    assert restore.mergeable(config, tables("a"), named=True) == (tables("a"), {})


@pytest.mark.feature("P6")
def test_who_may_part_is_told_what_cannot_be_merged_again(capsys: pytest.CaptureFixture[str]) -> None:
    sites.warn_of_directories(mapped(a="consistent_hash", b="round_robin"), tables("a", "b", "b"))
    said = capsys.readouterr().err
    assert said.startswith("policy b keeps a directory of keys (mapper round_robin)")
    assert said.count("\n") == 1
