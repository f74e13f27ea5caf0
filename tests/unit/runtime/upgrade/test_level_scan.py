"""What is above a level is found where it stands first (U1)."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.log import records
from halog.metadata.cluster_level import raise_level, read_level
from halog.metadata.nodes import NodeInfo
from halog.ports import Entry, TopicPartition
from halog.runtime.topics.state_topic import MARKER
from halog.runtime.upgrade.level_raise import against, named
from halog.runtime.upgrade.level_scan import in_definitions, in_log, in_state_topic, in_znodes
from tests.golden.samples import HEADER, all_samples

pytestmark = pytest.mark.feature("U1")

TP = TopicPartition("t", 3)


def entries(*values: bytes) -> list[Entry]:
    return [Entry(TP, 100 + i, value, 0) for i, value in enumerate(values)]


def test_a_log_is_looked_through_up_to_the_first_that_is_later() -> None:
    known = [bytes.fromhex(data) for data in all_samples()["records"].values()]
    told: list[int] = []
    found = in_log(TP, entries(*known), 1, told.append)
    assert (found.fault, found.looked_at, sum(told)) == ("", len(known), len(known))
    later = in_log(TP, entries(known[0], bytes((2, 1, 0)), known[1]), 1, told.append)
    assert (later.looked_at, later.fault.startswith("offset 101: a record of version 2")) == (1, True)
    damaged = in_log(TP, entries(b"text"), 1, told.append)
    assert "offset 100: damaged" in damaged.fault


def test_a_level_that_a_log_states_counts_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LEVEL", 3)
    stated = [records.encode(records.LevelStated(HEADER, level)) for level in (1, 3)]
    assert in_log(TP, entries(*stated), 3, lambda count: None).fault == ""
    found = in_log(TP, entries(*stated), 2, lambda count: None)
    assert (found.looked_at, found.fault) == (1, "offset 101: what follows may be of level 3")


def test_a_state_topic_and_definitions_are_looked_through_up_to_the_first_that_is_later() -> None:
    assert in_state_topic(TP, [(b"kx", b"1"), (b"zx", None)], 1).fault == ""
    assert "a row of kind 7a" in in_state_topic(TP, [(b"kx", b"1"), (b"zx", b"1")], 1).fault
    assert "format 99" in in_state_topic(TP, [(MARKER, b"\x81\xa6formatc")], 1).fault
    assert in_definitions(TP, [(b"k", None)]).fault == ""
    assert "key 6b: " in in_definitions(TP, [(b"k", b"{}")]).fault


def test_a_level_is_raised_once_and_never_lowered() -> None:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    raised = raise_level(coordinator, 3, "me@here", 7)
    assert (raised.level, raised.floor, raised.by, raised.since_ms) == (3, 1, "me@here", 7)
    assert raise_level(coordinator, 2, "you@there", 8) == raised == read_level(coordinator)
    assert "raised by me@here" in in_znodes(coordinator, 2).fault
    assert in_znodes(coordinator, 3).fault == ""


def test_who_stands_against_a_level_is_named_up_to_a_point() -> None:
    nodes = {
        n: NodeInfo(n, 1, "", 1, n != "app", 1, "0.2.0", level=1 if n in ("B", "app") else 2) for n in ("B", "C", "app")
    }
    found = against(2, ["A", "B", "C"], nodes)
    assert found == [
        "node A is not registered",
        "node B runs halog 0.2.0, which knows levels up to 1",
        "client app runs halog 0.2.0, which knows levels up to 1",
    ]
    assert len(against(2, ["A", "B", "C"], nodes, clients=False)) == 2
    assert against(2, ["A"], {}, "west") == ["node A of site west is not registered"]
    assert named(["x"] * 7) == "x; x; x; x; x; and 2 more"
