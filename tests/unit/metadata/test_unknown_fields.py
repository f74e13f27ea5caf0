"""Whoever changes a znode leaves there what a later version of halog has written (U1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.ids import EpochId
from halog.core.keys.mapping import Layout, begun
from halog.core.table.table import PartitionTable, Target
from halog.metadata import groups, log_holds, mapped_policies, restore_requests, zone_switches
from halog.metadata.partition_tables import change_table
from halog.ports import Coordinator
from halog.runtime.placement import plan as plans
from halog.runtime.sites import split_watch, voting

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
    """The field that differs afterwards."""


def vote(coordinator: Coordinator) -> None:
    now, version = voting.held(coordinator, "p-0")
    voting.write(coordinator, "p-0", "west", "B", now, version, EpochId(5, "west", 1))


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
]


@pytest.mark.feature("U1")
@pytest.mark.parametrize("change", CHANGES, ids=[f"{c.path} {c.changes}" for c in CHANGES])
def test_an_older_node_leaves_what_it_does_not_know(change: Change) -> None:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    before: dict[str, Any] = {**json.loads(json.dumps(change.before)), **LATER}
    coordinator.create(change.path, json.dumps(before).encode())
    change.do(coordinator)
    found = coordinator.get(change.path)
    assert found is not None
    after = json.loads(found.data)
    assert after.get(change.changes) != before.get(change.changes)
    assert {name: after[name] for name in LATER} == LATER
    assert set(before) - set(after) == set()
