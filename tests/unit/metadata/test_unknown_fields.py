"""Whoever changes a znode leaves there what a later version of halog has written (U1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.commit.sync_set import SyncSet
from halog.core.ids import EpochId, Member
from halog.core.keys.mapping import Layout, begun, cleaned, opened, turned_back
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.core.table import definitions, resync
from halog.core.table.table import ASYNC, SYNC, PartitionDefinition, PartitionTable, Replica, Resync, Target, arrange
from halog.errors import VersionMismatchError
from halog.metadata import (
    cluster_level,
    groups,
    log_holds,
    mapped_policies,
    mirrors,
    restore_requests,
    sync_waits,
    upgrades,
    zone_switches,
)
from halog.metadata.partition_tables import change_table
from halog.ports import Coordinator
from halog.runtime.membership.challenges import Challenging
from halog.runtime.membership.decision_relay import DecisionRelay
from halog.runtime.placement import plan as plans
from halog.runtime.rpc import frames
from halog.runtime.sites import split_watch, voting
from halog.testing.cluster import wait_until

PROTOCOL = (Path(__file__).parents[3] / "docs/protocol.md").read_text()
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
    """What has such fields, too; of a list, each of its items."""


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


def relaying(path: str, act: Callable[[DecisionRelay], object]) -> Callable[[Coordinator], None]:
    """What the node A does there."""

    def do(coordinator: Coordinator) -> None:
        before = coordinator.get(path)
        me = DecisionRelay(Member("A", 1), coordinator, lambda _: None, lambda _: "committed")
        try:
            act(me)
            wait_until(lambda: coordinator.get(path) != before, "it writes")
        finally:
            me.close()

    return do


QUESTION = {"partition": "p-0", "tx": "07" * 16, "commit": False, "decides": True, "participants": ["p-0", "p-1"]}

LISTED = msgspec.structs.replace(TABLE, replicas=(Replica("B", 2, SYNC), Replica("C", 3, ASYNC)))
DEFINED = msgspec.to_builtins(PartitionDefinition(("A", "B"), 1, "enabled"))
MIRRORED = mirrors.MirrorStatus(
    site="west", by="A", at_ms=1, checkpoint=Checkpoint(3, ChainState(bytes(16), "west")), behind=4
)


def arranged(table: PartitionTable) -> tuple[Replica, ...]:
    """As an election does, with one sync replica less."""
    return arrange(("A", "B", "C"), "A", [Member("B", 2), Member("C", 3)], 0, table.replicas)


def remirrored(coordinator: Coordinator) -> None:
    mirrors.write(coordinator, "p-0", msgspec.structs.replace(MIRRORED, at_ms=2, behind=0))


def rewaited(coordinator: Coordinator) -> None:
    sync_waits.note(coordinator, "p-0", sync_waits.SyncWait("west", False, True, 6))


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
        "policies/p",
        {**MAPPED, "mapping": 1, "changing": {"to": TO, "open": True, "clean": ["p-0"]}},
        lambda c: mapped_policies.step(c, "p", turned_back),
        "changing/back",
        ("changing",),
    ),
    Change(
        "partitions/p-0",
        json.loads(LISTED.to_bytes()),
        lambda c: change_table(c, "p-0", lambda t: msgspec.structs.replace(t, replicas=arranged(t))),
        "replicas",
        ("replicas",),
    ),
    Change(
        "partitions/p-0",
        {**json.loads(TABLE.to_bytes()), "definitions": {"B": DEFINED}},
        lambda c: change_table(c, "p-0", lambda t: definitions.defined(t, "B", Target(("A", "B"), 0))),
        "definitions",
        ("definitions/B",),
    ),
    Change(
        "partitions/p-0",
        {**json.loads(TABLE.to_bytes()), "definitions": {"B": DEFINED}},
        lambda c: change_table(c, "p-0", lambda t: definitions.disabled(t, "B")[0]),
        "definitions",
        ("definitions/B",),
    ),
    Change(
        "partitions/p-0",
        json.loads(msgspec.structs.replace(LISTED, resync=Resync(("B",))).to_bytes()),
        lambda c: change_table(c, "p-0", lambda t: resync.wished(t, ("C",))),
        "resync",
        ("resync",),
    ),
    Change(
        "holders/p-0/mine",
        {"offset": 3, "until_ms": 2**45, "why": "w"},
        lambda c: log_holds.hold(c, "p-0", "mine", log_holds.Hold(4, 2**46, "w"), 0),
        "offset",
    ),
    Change("mirrors/p-0", msgspec.to_builtins(MIRRORED), remirrored, "behind"),
    Change("awaited/p-0", {"site": "west", "waits": True, "may_drop": True, "at_ms": 5}, rewaited, "waits"),
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
    Change(
        "decisions/A/B",
        {"asker": 2, "of": 1, "number": 4, "questions": [QUESTION]},
        relaying("decisions/A/B", lambda me: me.lost_at("B")),
        "answered",
        ("questions",),
    ),
    Change(
        "decisions/B/A",
        {"asker": 1, "of": 2, "number": 4, "questions": []},
        relaying("decisions/B/A", lambda me: me.ask(Member("B", 2), frames.Decide("p-0", bytes(16), True, False), 0.1)),
        "questions",
    ),
    Change(
        "level",
        {"level": 2, "floor": 1, "since_ms": 5, "by": "ops"},
        lambda c: cluster_level.raise_level(c, 3, "ops", 6),
        "level",
    ),
    Change(
        "upgrade",
        {"to": "9.9", "before": {"A": "0.2.0"}, "order": ["A"], "state": "running"},
        lambda c: upgrades.change(c, lambda now: now and msgspec.structs.replace(now, done=("A",))),
        "done",
    ),
]


ANEW = {
    "nodes": "a run's own registration, which ends with it",
    "cluster": "never changed",
    "upgrading": "a command's own, which ends with it",
    "recovery": "one recovery's, deleted behind it",
    "recovering": "a process's own, which ends with it",
    "bindings": "a map of all types, which has no other fields",
    "changes": "a copy of a table",
    "mirroring": "a run's own, which ends with it",
    "places": "another place each time",
    "closed": "the end of another branch each time",
    "classified": "another job's each time",
    "config": "each version is another one, with the keys that were not known (tests/unit/test_config_later_keys.py)",
    "snapshots": "another marker's each time",
    "plans": "a copy of a plan",
    "rebalanced": "by `msgspec.structs.replace` of what stands there, in one place",
    "drained": "another drain's each time",
    "sweeps": "another job's each time",
    "trimmed": "a number",
}
"""Znodes that no change is tried of, by their first names, and why."""


def at(document: dict[str, Any], path: str) -> Any:
    of, _, name = path.rpartition("/")
    return (document[of] if of else document).get(name)


def structs(document: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """What stands there: a struct, or the items of a list."""
    found: Any = document
    for name in path.split("/"):
        found = found[name]
    return found if isinstance(found, list) else [found]


@pytest.mark.feature("U1")
@pytest.mark.parametrize("change", CHANGES, ids=[f"{c.path} {c.changes}" for c in CHANGES])
def test_an_older_node_leaves_what_it_does_not_know(change: Change) -> None:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    before: dict[str, Any] = {**json.loads(json.dumps(change.before)), **LATER}
    for name in change.nested:
        for struct in structs(before, name):
            struct |= LATER
    coordinator.create(change.path, json.dumps(before).encode())
    change.do(coordinator)
    found = coordinator.get(change.path)
    assert found is not None
    after = json.loads(found.data)
    assert at(after, change.changes) != at(before, change.changes)
    for where in (after, *(struct for name in change.nested for struct in structs(after, name))):
        assert {name: where.get(name) for name in LATER} == LATER
    assert set(before) - set(after) == set()


@pytest.mark.feature("U1")
def test_every_kind_of_znode_is_tried_or_begins_anew() -> None:
    """Whoever brings in a new kind says which of the two it is."""
    kinds = re.findall(r"^\| `([a-z_]+)[/`]", PROTOCOL.split("## Znodes")[1].split("\n## ")[0], re.MULTILINE)
    tried = {change.path.split("/")[0] for change in CHANGES}
    assert len(kinds) > 20
    assert sorted([*tried, *ANEW]) == sorted(set(kinds))


@pytest.mark.feature("U1")
def test_the_wait_set_leaves_what_it_does_not_know() -> None:
    """It sets the list anew all the time; and for a field that it does not know it sets nothing."""
    document = json.loads(LISTED.to_bytes())
    for replica in document["replicas"]:
        replica |= LATER
    table = PartitionTable.from_bytes(json.dumps(document).encode())
    members = [Member("B", 2), Member("C", 3)]
    sync = SyncSet(table)
    assert sync.plan(table, members, {}, 5, 1) is None
    planned = sync.plan(table, members, {}, 5, 0)
    assert planned is not None
    assert [r.kind for r in planned] == [ASYNC, ASYNC]
    written = json.loads(msgspec.structs.replace(table, replicas=planned).to_bytes())
    assert [r["later"] for r in written["replicas"]] == [LATER["later"]] * 2


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
