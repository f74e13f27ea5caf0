"""May nodes stop: what a partition needs to survive it (X4)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.core.placement.stop_check import ACTIVE, CLOSE, CopyFact, judge
from halog.core.table.table import ASYNC, SYNC, Group, Replica
from tests.unit.core.kit import A, table

pytestmark = pytest.mark.feature("X4")

LEVEL = (CopyFact("A", ACTIVE, 0), CopyFact("B", SYNC, 0), CopyFact("C", ASYNC, 0))


@pytest.mark.parametrize(
    ("stopping", "changes", "copies", "heir", "why"),
    [
        ("A", {}, LEVEL, "B", "B takes over, it has everything, without a sync replica until one is back"),
        ("B", {}, LEVEL, "A", "A stays active, without a sync replica until one is back"),
        ("C", {}, LEVEL, "A", "A stays active"),
        ("BC", {}, LEVEL, "A", "A stays active, without a sync replica until one is back"),
        ("AB", {}, LEVEL, "", "only C (async) would be left, and no commit waits for an async replica"),
        ("AB", {"sync": 0}, LEVEL, "C", "C takes over, it has everything"),
        ("ABC", {}, LEVEL, "", "no copy would be left"),
        ("A", {}, LEVEL[:1], "", "no copy would be left"),
        ("A", {"group": Group(priorities={"B": 0})}, LEVEL, "", "only B (sync) would be left, with priority never"),
        ("A", {}, (LEVEL[0], CopyFact("B", SYNC, CLOSE + 1)), "", "B is 1,001 records behind"),
        ("A", {}, (LEVEL[0], CopyFact("B", SYNC, CLOSE)), "B", "B takes over"),
        ("C", {}, LEVEL[1:], "", "it has no active node now"),
        ("A", {"quorum": 2}, LEVEL, "B", "B takes over"),
        ("AC", {"quorum": 2}, LEVEL, "", "1 node would be left, commits and elections need 2"),
        ("AC", {"quorum": 2, "group": Group(required=1)}, LEVEL, "B", "B takes over"),
        ("C", {"quorum": 2, "group": Group(priorities={"B": 0})}, LEVEL, "", "1 node would be left"),
        ("A", {"configured": ("A", "B"), "quorum": 2, "group": Group(designated="B")}, LEVEL[:2], "B", "B takes over"),
        ("A", {"configured": ("A", "C")}, LEVEL[:2], "", "no copy would be left"),
    ],
)
def test_it_is_safe_if_somebody_is_left_who_has_everything_and_a_quorum(
    stopping: str, changes: dict[str, Any], copies: tuple[CopyFact, ...], heir: str, why: str
) -> None:
    verdict = judge(table(**changes), stopping, copies)
    assert (verdict.safe, verdict.heir) == (bool(heir), heir), verdict
    assert why in verdict.why


@pytest.mark.feature("M5")
@pytest.mark.parametrize(("stopping", "safe"), [("A", True), ("ABC", False)])
def test_what_another_site_serves_needs_a_copy_here_and_no_active_node(stopping: str, safe: bool) -> None:
    copies = [CopyFact(n, "mirror", 0) for n in "ABC"]
    verdict = judge(table(owner="west"), stopping, copies)
    assert (verdict.safe, "site west serves it" in verdict.why) == (safe, True)


@pytest.mark.parametrize(
    ("unlogged", "replicas", "lag", "safe", "why"),
    [
        (False, (), 0, True, "C takes over, it has everything"),
        (False, (), 900, True, "C takes over when it has read 900 records more from the log"),
        (True, (), 900, True, "C takes over when it has read 900 records more from the log"),
        (False, (Replica("B", 2, SYNC),), 900, True, "C takes over when it has read 900 records more from the log"),
        (True, (Replica("B", 2, SYNC),), 0, False, "and the log may lack what the others hold"),
        (True, (Replica("B", 2, SYNC),), 900, False, "and the log may lack what the others hold"),
    ],
)
@pytest.mark.feature("R6")
def test_an_async_replica_follows_where_the_log_has_what_was_acknowledged(
    unlogged: bool, replicas: tuple[Replica, ...], lag: int, safe: bool, why: str
) -> None:
    """No sync replica is asked for (any more). One that the table still names may hold what the log lacks."""
    t = table(sync=0, active=A, replicas=replicas)
    verdict = judge(t, "AB", (CopyFact("A", ACTIVE, 0), CopyFact("C", ASYNC, lag)), unlogged=unlogged)
    assert verdict.safe is safe
    assert why in verdict.why


@pytest.mark.feature("R6")
def test_a_sync_replica_follows_whether_or_not_the_log_is_waited_for() -> None:
    t = table(active=A, replicas=(Replica("B", 2, SYNC),))
    assert judge(t, "A", LEVEL, unlogged=True).heir == "B"
