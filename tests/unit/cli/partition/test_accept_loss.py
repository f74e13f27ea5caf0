"""`halog partition accept-loss`: what is lost is confirmed with the cluster's name, and told with who did it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.cli.log.epochs import epochs_of
from halog.core.ids import Member
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica
from halog.events import ROLE, UNLOGGED_LOST, Event, EventPlace, event
from halog.metadata.identity import who
from tests.unit.cli.conftest import TOML, Cluster, Ran, running
from tests.unit.cli.log.test_events import EVENTS, Log, eventually, made, table

pytestmark = pytest.mark.feature("R6", "Q4", "O1")
Halog = Callable[..., Ran]
UNLOGGED = TOML.replace("async_replicas = 1", 'async_replicas = 1\nlocal_sync = "NO_SYNC"')
GONE = (Replica("A", 77, SYNC), Replica("C", 78, ASYNC))


@pytest.fixture
def unlogged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Of p-0 the last ones that had it in memory, A and B, are gone, as is everybody."""
    with running(Cluster(tmp_path, UNLOGGED), monkeypatch) as cluster:
        for name in "ABC":
            cluster.stop(name)
        left = cluster.tree.get("partitions/p-0")
        assert left is not None
        lost = msgspec.structs.replace(PartitionTable.from_bytes(left.data), active=Member("B", 76), replicas=GONE)
        cluster.tree.set("partitions/p-0", lost.to_bytes(), left.version)
        yield cluster


def told(halog: Halog) -> list[Any]:
    return [e for e in halog("events", "--partition", "p-0", "--format", "json").json if e["code"] == "HALOG-1019"]


@pytest.mark.parametrize("said", [(), ("--cluster", "prod")], ids=["not confirmed", "of another cluster"])
def test_without_the_name_of_the_cluster_nothing_is_given_up(
    unlogged: Cluster, halog: Halog, said: tuple[str, ...]
) -> None:
    before = unlogged.tables()[0]
    ran = halog("partition", "accept-loss", "p-0", *said)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "halog: what A, B may have of p-0 in memory would be lost for good; nothing was changed. If they do not come "
        "back, confirm it with the name of this cluster: --cluster ops\n"
    )
    assert unlogged.tables()[0] == before
    assert told(halog) == []


@pytest.mark.parametrize("reason", ["", "both burnt down"])
def test_it_is_told_who_gave_up_what_and_why(unlogged: Cluster, halog: Halog, reason: str) -> None:
    """In the event history, and beside the epoch that begins with it."""
    epoch = unlogged.tables()[0].epoch.number
    why = ("--reason", reason) if reason else ()
    ran = halog("partition", "accept-loss", "p-0", "--cluster", "ops", *why, "--format", "json")
    assert ran.code == 0, ran
    assert ran.json == {"partition": "p-0", "given_up": ["A", "B"]}
    assert unlogged.tables()[0].sync_set == frozenset()
    (one,) = told(halog)
    cause = f"what A, B may have in memory, by {who()}" + (f": {reason}" if reason else "")
    assert (one["cause"], one["node"], one["severity"], one["epoch"]) == (cause, who(), "error", epoch)
    assert one["text"] == f"partition p-0: commits the log did not have are given up: {cause}"
    assert one["more"] == {"given_up": ["A", "B"], "by": who(), "reason": reason}
    for name in "ABC":
        unlogged.start(name)
    unlogged.settle()
    args = ("history", "p-0", "--why")
    by = f"by {who()}" + (f": {reason}" if reason else "")
    epochs = eventually(halog, *args, holds=lambda f: any("no node was" in (e["because"] or "") for e in f))
    assert [e["because"] for e in epochs if by in (e["because"] or "")] == [f"no node was active; {by}"]


def test_what_gives_up_nothing_is_refused_and_not_told(unlogged: Cluster, halog: Halog) -> None:
    assert halog("partition", "accept-loss", "p-0", "--cluster", "ops").code == 0
    for _ in range(2):
        ran = halog("partition", "accept-loss", "p-0", "--cluster", "ops")
        assert (ran.code, "p-0 has nothing to give up" in ran.err) == (5, True), ran
    assert len(told(halog)) == 1


def test_where_the_history_does_not_take_it_that_is_said_and_it_is_done(unlogged: Cluster, halog: Halog) -> None:
    unlogged.broker.hold(EVENTS)
    ran = halog("partition", "accept-loss", "p-0", "--cluster", "ops")
    assert (ran.code, "the event history does not have it" in ran.err) == (0, True), ran
    assert unlogged.tables()[0].active is None


def test_an_operators_word_stands_beside_the_first_epoch_that_opened_since() -> None:
    """Not beside one that came to nothing, nor beside a later one; and a node's word of a loss is none."""
    log = Log()
    log.epoch(1)
    log.started(2)
    log.epoch(3)
    log.epoch(4)
    at = EventPlace("ops", "halog-cli", "p-0", 1)
    more = {"given_up": ["A"], "by": "op"}
    by_hand = event(UNLOGGED_LOST, at, name="x", time_ms=5, node="op", cause="of A, by op", more=more)
    events = [
        by_hand,
        Event.from_bytes(made(UNLOGGED_LOST, 3, 6, node="C", cause="A had it in memory, and was started anew")),
        Event.from_bytes(made(ROLE, 4, 7, node="C", cause="an operator gave up A", role="active", was="replica")),
    ]
    found = epochs_of((), log.judged(), events, table(4, "C"))
    assert [(e.epoch, e.because) for e in found] == [(1, None), (2, None), (3, "by op"), (4, "an operator gave up A")]
