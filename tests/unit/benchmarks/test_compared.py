"""Which figure of a peer stands beside which of halog's."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.compared import (
    BARE,
    ETCD,
    ETCD_16,
    JE_SYNC,
    TABLE,
    UNLOGGED,
    WRITTEN,
    absent,
    comparisons,
    figures,
)
from benchmarks.figures import Row, missed

BOTH = "change to replica by direct TCP + produce acks=all (linger 0); fastavro; commit waits for both"


def line(peer: str, config: str, clients: int | None = 1, procs: int | None = 1, **more: Any) -> dict[str, Any]:
    """As the peers' harness writes them."""
    return {"peer": peer, "workload": "W1", "config": config, "clients": clients, "procs": procs, **more}


def own(name: str, value: float, client_in: str = "the active node") -> Row:
    return Row(name, value, "ms", None, None, "-", False, True, 5, 1, client_in)


def test_a_peers_runs_are_told_apart_by_configuration_clients_and_processes() -> None:
    etcd = "3 members, WAL on disk (fdatasync per commit batch), client at the leader"
    found = figures(
        [
            line("etcd", etcd, ops_s=467, p50_us=1920),
            line("etcd", etcd, ops_s=500, p50_us=2100),
            line("etcd", etcd, 16, ops_s=1277, p50_us=11_828),
            line("etcd", etcd, 16, 4, ops_s=962, p50_us=15_663),
            line("etcd", "3 members, data dir on tmpfs, client at the leader", ops_s=617, p50_us=1450),
            line("etcd", "3 members, heartbeat 20 ms, election 200 ms", None, None, failover_ms=360),
        ]
    )
    assert found == {ETCD: [1.92, 2.1], ETCD_16: [1277]}


def test_java_threads_are_no_processes_of_the_harness() -> None:
    said = "3 nodes, local SYNC, replica NO_SYNC, ack SIMPLE_MAJORITY; Java threads in master JVM"
    assert figures([line("je-ha", said, procs=0, ops_s=481, p50_us=1336.2)]) == {JE_SYNC: [1.3362]}


def test_each_row_is_judged_by_its_own_peer() -> None:
    rows = comparisons(
        [own(f"{WRITTEN}, 1 client, p50", 0.5), own(f"{UNLOGGED}, 1 client, p50", 0.5)],
        {**figures([line("kafka", BOTH, p50_us=478)]), BARE: [0.2]},
    )
    said = {r.name: (r.ratio, r.ok) for r in rows}
    parallel = f"{WRITTEN}, 1 client, p50; beside raw push and produce in parallel"
    assert said[parallel] == (pytest.approx(1.046, abs=0.001), True)
    assert said[f"{UNLOGGED}, 1 client, p50; beside bare Python TCP replica"] == (2.5, False)


def test_a_peer_that_was_not_measured_proves_nothing() -> None:
    (row,) = [r for r in comparisons([own(f"{WRITTEN}, 1 client, p50", 0.1)], {}) if "Hazelcast" in r.name]
    assert (row.baseline, row.ratio, row.ok) == (None, None, False)
    assert row in missed([row])


def test_what_needs_no_peer_is_judged_by_its_value() -> None:
    name = "failover of a killed process, first new acknowledged write, p99"
    (row,) = comparisons([own(name, 401.0, "a client node")], {})
    assert (row.name, row.target, row.hard, row.ok) == (name, "≤ 400", True, False)


def test_a_row_that_no_suite_measures_is_as_good_as_missed() -> None:
    """One that was renamed must not leave the table, and the command end well."""
    everything = [own(b.ours, 1.0, b.client_in) for b in TABLE]
    assert absent(everything) == []
    gone = f"{WRITTEN}, 1 client, p50"
    assert absent([r for r in everything if r.name != gone]) == [f"{gone} (the active node)"]


def test_every_peer_of_the_table_is_named_once() -> None:
    peers = {b.peer for b in TABLE if b.peer is not None}
    assert len({(p.said, p.clients, p.figure) for p in peers}) == len(peers)


def test_failovers_and_restores_of_peers_stand_beside_ours() -> None:
    """What is measured without a closed loop has no clients; seconds and ms are as the harness writes them."""
    etcd, redis = "3 members, heartbeat 10 ms, election 100 ms", "GET on the replica, redis-py"
    found = figures(
        [
            line("etcd", etcd, None, None, failover_ms=185),
            line("etcd", etcd, None, None, error="no success in 60s"),
            line("redis", redis, ops_s=3_798, p50_us=237),
        ]
    )
    assert {p.said: v for p, v in found.items()} == {
        "etcd, heartbeat 10 ms, election 100 ms": [185],
        "Redis, Python client": [3_798],
    }
    failover = "failover of a killed process, first new acknowledged write, median"
    rows = {r.name: r for r in comparisons([own(failover, 74.0, "a client node")], found)}
    tuned, default = (
        rows[f"{failover}; beside etcd{e}"] for e in (", heartbeat 10 ms, election 100 ms", " at its defaults")
    )
    assert (tuned.ratio, tuned.ok, tuned.target) == (pytest.approx(0.4), True, "≤ 1 ×")
    assert (default.ratio, default.ok, default.hard) == (None, False, False), "it was not measured"
