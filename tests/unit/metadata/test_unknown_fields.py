"""Whoever changes a znode leaves there what a later version of halog has written (U1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.ids import EpochId, Member
from halog.core.keys.mapping import Layout, begun, cleaned, opened
from halog.core.table.table import PartitionTable, Target
from halog.errors import VersionMismatchError
from halog.metadata import groups, log_holds, mapped_policies, restore_requests, zone_switches
from halog.metadata.partition_tables import change_table
from halog.ports import Coordinator
from halog.runtime.membership.challenges import Challenging
from halog.runtime.placement import plan as plans
from halog.runtime.sites import split_watch, voting
from halog.testing.cluster import wait_until

LATER = {"later": {"of": ["version", 9, None]}}
TABLE = PartitionTable("p-0", "00" * 16, "c.p", 0, "p", ("A", "B"), 1)
PLAN = plans.Plan("abc", 1, (plans.PlannedMove("p-0", ("A",), Target(("B",), 0), 0, "why"),))


def asked(c: Coordinator) -> restore_requests.RestoreRequest:
    found = restore_requests.restore_of(c, "p-0")
    assert found is not None
    return found


class Change(NamedTuple):
    """One thing that an older node does to a znode."""

    path: str
    before: object
    do: Callable[[Coordinator], object]
    changes: str
    """The field that differs afterwards; one of another by `of/field`."""
    nested: tuple[str, ...] = ()
    """What has such fields, too."""


def vote(coordinator: Coordinator) -> None:
    now, version = voting.held(coordinator, "p-0")
    voting.write(coordinator, "p-0", "west", "B", now, version, EpochId(5, "west", 1))


def recount(coordinator: Coordinator) -> None:
    now, version = split_watch.told_at(coordinator, "p-0")
    assert now is not None
    counts = [split_watch.BranchCount(n, False, 20 + n, 99) for n in (6, 7)]
    again = split_watch.counted(now, split_watch.ForkPoint(3, "west", 8), *counts)
    split_watch.write(coordinator, "p-0", again, version)


LINE = {"asker": 1, "of": 2, "asked": 4, "answered": 4}


def on_line(path: str, act: Callable[[Challenging], object], *, met: bool = True) -> Callable[[Coordinator], None]:
    """What the node A does there."""

    def do(coordinator: Coordinator) -> None:
        before = coordinator.get(path)
        heard: list[int] = []
        me = Challenging(Member("A", 1), coordinator, lambda *told: heard.append(told[2]), lambda _: None, lambda: "")
        try:
            if met:
                me.met_soon("B")
            if met and path.startswith("lines/B"):
                wait_until(lambda: bool(heard), "it has seen the line")
            act(me)
            wait_until(lambda: coordinator.get(path) != before, "it writes")
        finally:
            me.close()

    return do


MAPPED = {"mapper": "md5", "partitions": 2, "ring_size": 8}
TO = {"mapper": "md5", "partitions": 3, "ring_size": 8}

CHANGES = [
    Change(
        "partitions/p-0",
        json.loads(TABLE.to_bytes()),
        lambda c: change_table(c, "p-0", lambda t: msgspec.structs.replace(t, sync_replicas=0)),
        "sync_replicas",
    ),
    Change(
        "partitions/p-0",
        json.loads(TABLE.to_bytes()),
        lambda c: groups.change_group(c, "p-0", groups.priority_of("A", "high")),
        "group",
    ),
    Change(
        "holders/p-0/mine",
        {"offset": 3, "until_ms": 2**45, "why": "w"},
        lambda c: log_holds.prolong(c, "p-0", "mine", 2**46),
        "until_ms",
    ),
    Change(
        "zones/z",
        {"off": False, "reason": "", "since_ms": 0},
        lambda c: zone_switches.set_switch(c, "z", zone_switches.ZoneSwitch(True, "storm", 5)),
        "off",
    ),
    Change(
        "restores/p-0",
        {"site": "west", "by": "me", "at_ms": 5},
        lambda c: restore_requests.progress(c, "p-0", msgspec.structs.replace(asked(c), phase="merging")),
        "phase",
    ),
    Change("plan", json.loads(PLAN.to_bytes()), plans.cancel, "cancelled"),
    Change(
        "parted/p-0",
        {"site": "west", "by": "A", "since_ms": 1},
        lambda c: split_watch.tell(c, "p-0", "west", "B"),
        "by",
    ),
    Change("site_votes/p-0", {"site": "west", "by": "A", "beat": 4}, vote, "beat"),
    Change(
        "policies/p",
        {"mapper": "md5", "partitions": 4, "ring_size": 8},
        lambda c: mapped_policies.step(c, "p", lambda m: begun(m, Layout("md5", 5, 8))),
        "changing",
    ),
    Change(
        "policies/p",
        {**MAPPED, "changing": {"to": TO}},
        lambda c: mapped_policies.step(c, "p", opened),
        "changing/open",
        ("changing",),
    ),
    Change(
        "policies/p",
        {**MAPPED, "mapping": 1, "changing": {"to": TO, "open": True, "clean": ["p-0"]}},
        lambda c: mapped_policies.step(c, "p", lambda m: cleaned(m, "p", 1, ["p-1"])),
        "changing/clean",
        ("changing",),
    ),
    Change(
        "parted/p-0",
        {
            "site": "west",
            "by": "A",
            "since_ms": 1,
            "fork": {"epoch": 2, "site": "west", "lsn": 7},
            **{side: {"objects": 4, "at_least": True, "lsn": 9, "at_ms": 5} for side in ("here", "there")},
        },
        recount,
        "here/objects",
        ("fork", "here", "there"),
    ),
    Change(
        "lines/A/B",
        {"asker": 2, "of": 1, "asked": 4},
        on_line("lines/A/B", lambda me: None),
        "answered",
    ),
    Change(
        "lines/B/A",
        LINE,
        on_line("lines/B/A", lambda me: me.ask(Member("B", 2), 5, lost=True)),
        "asked",
    ),
    Change(
        "lines/B/A",
        {**LINE, "asker": 0},
        on_line("lines/B/A", lambda me: me.ask(Member("B", 2), 5, lost=True), met=False),
        "asker",
    ),
]


def at(document: dict[str, Any], path: str) -> Any:
    of, _, name = path.rpartition("/")
    return (document[of] if of else document).get(name)


@pytest.mark.feature("U1")
@pytest.mark.parametrize("change", CHANGES, ids=[f"{c.path} {c.changes}" for c in CHANGES])
def test_an_older_node_leaves_what_it_does_not_know(change: Change) -> None:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    before: dict[str, Any] = {**json.loads(json.dumps(change.before)), **LATER}
    for name in change.nested:
        before[name] |= LATER
    coordinator.create(change.path, json.dumps(before).encode())
    change.do(coordinator)
    found = coordinator.get(change.path)
    assert found is not None
    after = json.loads(found.data)
    assert at(after, change.changes) != at(before, change.changes)
    for where in (after, *(after[name] for name in change.nested)):
        assert {name: where.get(name) for name in LATER} == LATER
    assert set(before) - set(after) == set()


@pytest.mark.feature("U1")
def test_what_a_later_version_says_of_where_keys_will_belong_is_not_passed_over() -> None:
    """It decides that differently from what this version would take it for. Nothing is changed."""
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    data = json.dumps({**MAPPED, "changing": {"to": {**TO, **LATER}}}).encode()
    coordinator.create("policies/p", data)
    with pytest.raises(VersionMismatchError, match=r"policies/p.*`later`.*nothing was done") as caught:
        mapped_policies.step(coordinator, "p", opened)
    assert caught.value.evidence["policy"] == "p"
    found = coordinator.get("policies/p")
    assert found is not None
    assert found.data == data
