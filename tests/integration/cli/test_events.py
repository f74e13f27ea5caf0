"""The event history with real processes, Kafka and ZooKeeper: a killed node, and a record that lands too late."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.core.log import records
from halog.ports import TopicPartition

pytestmark = pytest.mark.timeout(600)
"""Thirty commands, one after the other: each is a second where the machine has much to do."""


def eventually(cluster: Any, *args: str, holds: Callable[[list[Any]], object], limit_s: float = 60) -> list[Any]:
    """The document, once it is as expected."""
    until = time.monotonic() + limit_s
    while True:
        ran = cluster.halog(*args, "--format", "json")
        assert ran.code == 0, ran
        if holds(ran.json):
            found: list[Any] = ran.json
            return found
        assert time.monotonic() < until, ran.json
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.feature("Q4", "O2", "X9")
def test_the_history_says_why_a_killed_node_was_replaced_and_what_was_discarded(prepared: Any, site: Any) -> None:
    """kill -9 of the active: its successor says how it was seen to go, the log and the events agree on the epochs; a
    record of the dead epoch that lands behind them counts for nobody, and is listed and exported, decoded."""
    cluster = prepared
    timing = "[timing]\ncall_deadline_ms = 4_000\n"  # so long late records may come, and are waited for
    cluster.toml.write_text(cluster.toml.read_text() + timing)
    cluster.start("A", "B", "C")
    cluster.settle()
    cluster.load(30)
    place = cluster.halog("get", "Aircraft", "N1", "--format", "json").json["partition"]
    shown = cluster.halog("partition", "show", place, "--format", "json").json
    dead, last = shown["active"], shown["epoch"]  # at the start several may be active, one after the other
    assert dead is not None, shown
    cluster.stop(dead, signal.SIGKILL)
    cluster.settle(4, served=True)

    def replaced(found: list[Any]) -> bool:
        return any(e["code"] == "HALOG-1010" and e["epoch"] == last + 1 for e in found)

    found = eventually(cluster, "events", "--partition", place, holds=replaced)
    took = next(e for e in found if e["code"] == "HALOG-1010" and e["epoch"] == last + 1)
    assert took["cause"].startswith(f"{dead}: "), took
    assert took["more"] == {"role": "active", "was": "replica"}
    assert took["node"] != dead
    # Where the machine stalls a node that lives may be dropped, too, and come back: that is told beside it.
    removed = next(e for e in found if e["code"] == "HALOG-1006" and e["node"] == dead)
    assert (removed["by"], removed["epoch"]) == (took["node"], last + 1)
    assert took["cause"] == f"{dead}: {removed['cause']}"

    def left(found: list[Any]) -> list[str]:
        return sorted(e["by"] for e in found if e["code"] == "HALOG-1004" and e["node"] == dead)

    others = sorted({*"ABC"} - {dead})
    everything = eventually(cluster, "events", holds=lambda found: set(left(found)) >= set(others))
    assert left(everything) == others, "each of the others saw it, once"
    assert f"HALOG-1006 partition {place}: {dead} leaves the node list" in cluster.said(took["node"])

    *_, first, second = cluster.halog("history", place, "--why", "--format", "json").json
    assert (first["epoch"], first["active"], first["ended"]) == (last, dead, f"fenced by epoch {last + 1}")
    assert (second["epoch"], second["active"], second["because"]) == (last + 1, took["node"], took["cause"])
    assert first["lsn"] < second["lsn"]
    assert took["cause"] in cluster.halog("history", place, "--why").out

    late = land_late(cluster, site, place, last)
    (skipped,) = cluster.halog("history", place, "--discarded", "--format", "json").json
    assert (skipped["epoch"], skipped["verdict"], skipped["outcome"]) == (last, "skipped", "discarded")
    assert skipped["tx"] == late.hex()
    assert skipped["changes"][0]["type"] == "Aircraft"
    exported = cluster.halog("history", place, "--discarded", "--export", "d.jsonl", "--format", "json")
    assert exported.json["records"] == 1
    assert json.loads((cluster.directory / "d.jsonl").read_text()) == skipped

    def told(found: list[Any]) -> bool:
        ids = [t["tx"] for e in found if e["code"] == "HALOG-1014" for t in e["more"]["transactions"]]
        return ids == [late.hex()]

    eventually(cluster, "events", "--partition", place, holds=told)  # callers may try for 9 s


def land_late(cluster: Any, site: Any, place: str, epoch: int) -> bytes:
    """Append what the dead node might still have had on its way: a commit of its epoch; its transaction id."""
    index = int(place.removeprefix("p-"))
    tp = TopicPartition(f"{cluster.name}.p.log", index)
    log = KafkaLog(KafkaAccess(site.info.bootstrap))
    try:
        decoded = [records.decode(e.value) for e in log.read(tp, *log.bounds(tp))]
    finally:
        log.close()
    commit = next(r for r in decoded if isinstance(r, records.Commit) and r.header.epoch.number == epoch)
    tx = (1 << 126).to_bytes(16, "big")
    header = records.Header(commit.header.log_id, commit.header.epoch, commit.header.lsn + 100, bytes(16), tx)
    producer: Any = Producer({"bootstrap.servers": site.info.bootstrap})
    producer.produce(tp.topic, value=records.encode(records.Commit(header, commit.changes)), partition=index)
    assert producer.flush(10) == 0
    return tx


@pytest.mark.feature("O2", "R5")
def test_a_history_that_cannot_be_written_slows_down_nobody_and_is_completed_later(prepared: Any, site: Any) -> None:
    """Kafka is away while a node is killed: nobody dies of it, and when it is back the history has what happened."""
    prepared.start("A", "B", "C")
    prepared.settle()
    prepared.load(12)
    site.pause("kafka")
    try:
        prepared.stop("C", signal.SIGKILL)
        time.sleep(2.0)
    finally:
        site.resume("kafka")
    prepared.settle(4, served=True)

    def told(found: list[Any]) -> bool:
        return {e["by"] for e in found if e["code"] == "HALOG-1004" and e["node"] == "C"} == {"A", "B"}

    found = eventually(prepared, "events", holds=told)
    ids = [e["id"] for e in found]
    assert len(set(ids)) == len(ids)
    assert not [e for e in found if e["code"] == "HALOG-1016"]
    for n in (0, 5, 11):
        assert prepared.halog("get", "Aircraft", f"N{n}", "--format", "json").json["fields"]["miles"] == n


@pytest.mark.feature("Q3", "Q4", "O2")
def test_an_override_that_is_given_while_every_node_is_dead_is_in_the_history_once(prepared: Any) -> None:
    """With its reason; the node that goes by it then, and another one that comes later, tell it no more."""
    prepared.start("A", "B", "C")
    prepared.settle()
    for name in "ABC":
        prepared.stop(name, signal.SIGKILL)
    ran = prepared.halog(
        "partition", "require", "p-0", "1", "--may-fork", "--cluster", prepared.name, "--reason", "while nobody was up"
    )
    assert ran.code == 0, ran

    def active(found: list[Any]) -> bool:
        return any(e["code"] == "HALOG-1010" and e["more"].get("may_fork") for e in found)

    prepared.start("A")
    eventually(prepared, "events", "--partition", "p-0", holds=active)
    prepared.start("B", "C")
    prepared.settle()
    found = prepared.halog("events", "--format", "json").json
    ((cause, may_fork, by),) = [
        (e["cause"], e["more"]["may_fork"], e["by"]) for e in found if e["code"] == "HALOG-1011"
    ]
    assert (cause, may_fork, by.startswith("halog-cli-")) == ("while nobody was up", True, True)
