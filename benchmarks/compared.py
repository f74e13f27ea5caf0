"""halog's figures beside those of its peers: which row stands beside which, and what is asked of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.figures import Row, Target, row


class Peer(NamedTuple):
    """One measurement of a peer: its lines have this name, this text in their configuration, so many clients and
    processes; None: what is measured without a closed loop has neither."""

    said: str
    peer: str
    config: str
    clients: int | None = 1
    figure: str = "p50_us"
    procs: int | None = 1


class Beside(NamedTuple):
    """One line of the table: halog's row (its name, where its client is), the peer's figure, and the target."""

    ours: str
    client_in: str
    peer: Peer | None
    target: Target


ACTIVE, TASKS, CLIENT = "the active node", "the active node, tasks", "a client node"
RAW, ALONE = "a Python program", "idempotent produce alone"
UNLOGGED = "sync replica, local NO_SYNC"
WRITTEN = "sync replica, local WRITE_NO_SYNC"
FLUSHED = "sync replica, local SYNC"

_PUSH = "commit waits for the replica only"
_BOTH = "commit waits for both"
_BARE = "fastavro schemaless, one reader thread wakes callers"
_JE = "local NO_SYNC, replica NO_SYNC, ack SIMPLE_MAJORITY; Python client"
_JE_SYNC = "local SYNC, replica NO_SYNC, ack SIMPLE_MAJORITY; Java threads"

# Not idempotent: it may write twice, and out of order. The idempotent one is a baseline of `policies`.
PARALLEL = Peer("raw push and produce in parallel", "kafka", f"(linger 0); fastavro; {_BOTH}")
PARALLEL_16 = PARALLEL._replace(clients=16, figure="ops_s")
PUSH_16 = Peer("raw push, the log following", "kafka", f"(linger 0); fastavro; {_PUSH}", 16, "ops_s")
BARE = Peer("bare Python TCP replica", "floor", _BARE)
JE = Peer("JE, NO_SYNC both, Python front", "je-ha", _JE)
JE_16 = JE._replace(clients=16, figure="ops_s")
JE_SYNC = Peer("JE, SYNC, Java threads", "je-ha", _JE_SYNC, procs=0)
JE_SYNC_16 = JE_SYNC._replace(clients=16, figure="ops_s")
ETCD = Peer("etcd", "etcd", "WAL on disk")
ETCD_16 = ETCD._replace(clients=16, figure="ops_s")
HAZELCAST = Peer("Hazelcast, Python client", "hazelcast", "Python client, one shared")
HAZELCAST_16 = HAZELCAST._replace(clients=16, figure="ops_s")


def _once(said: str, peer: str, config: str, figure: str) -> Peer:
    return Peer(said, peer, config, None, figure, None)


FAILOVERS = (
    _once("etcd, heartbeat 10 ms, election 100 ms", "etcd", "heartbeat 10 ms, election 100 ms", "failover_ms"),
    _once("etcd at its defaults", "etcd", "heartbeat 100 ms, election 1000 ms", "failover_ms"),
    _once("Hazelcast", "hazelcast", "backup-count=1 async=0, heartbeat", "failover_ms"),
    _once("JE", "je-ha", "NO_SYNC, ack SIMPLE_MAJORITY, feeder", "failover_ms"),
    _once("Redis Sentinel, WAIT 1", "redis", "failover-timeout 2 s; writes WAIT 1", "failover_ms"),
    _once(
        "Kafka Streams, exactly once",
        "kstreams",
        "exactly_once_v2, commit 100 ms, session.timeout 1000 ms, heartbeat 200 ms, transaction.timeout 1500 ms",
        "failover_ms",
    ),
)
RESTORES = (
    _once("Redis, diskless", "redis", "diskless sync, repl-diskless-sync-delay=0", "seconds"),
    _once("etcd", "etcd", "100k keys readable (snapshot-count 100000", "seconds"),
    _once("Kafka Streams", "kstreams", "fresh standby instance: JVM start", "seconds"),
    _once("Hazelcast", "hazelcast", "2nd member: JVM start", "seconds"),
    _once("JE", "je-ha", "fresh 3rd node: JVM start", "seconds"),
)
READS = (
    Peer("Hazelcast, within its JVM", "hazelcast", "read-backup-data, embedded Java member", 1, "ops_s", 0),
    Peer("JE, within its JVM", "je-ha", "read on a replica, Java threads in replica JVM", 1, "ops_s", 0),
    Peer("Redis, Python client", "redis", "GET on the replica, redis-py", 1, "ops_s"),
)
REDIS = Peer("Redis, WAIT 1, Python client", "redis", "SET+WAIT 1 0 pipelined, no persistence, redis-py + hiredis")


def _at_most(times: float, *, hard: bool = True) -> Target:
    return Target(times, "ratio", "lower", hard)


def _at_least(times: float, *, hard: bool = True) -> Target:
    return Target(times, "ratio", "higher", hard)


P50, RATE = "1 client, p50", "16 clients, throughput"
_TRANSFER = "planned transfer at 100 writes/s a partition, longest pause"
_FAILOVER = "failover of a killed process, first new acknowledged write"
_RESTORE = "cold restore of 100,000 objects of 200 bytes"
_READ = "local read in a transaction of 1,000 different objects out of 10,000"

TABLE: Sequence[Beside] = (
    Beside(f"{WRITTEN}, {P50}", ACTIVE, None, _at_most(1.2)),
    Beside(f"{WRITTEN}, {P50}", ACTIVE, PARALLEL, Target()),
    Beside(f"{WRITTEN}, {P50}", ACTIVE, HAZELCAST, _at_most(1.0)),
    Beside(f"{WRITTEN}, {P50}", ACTIVE, REDIS, Target()),
    Beside(f"{ALONE}, WRITE_NO_SYNC, {P50}", RAW, HAZELCAST, Target()),
    Beside(f"{WRITTEN}, {RATE}", TASKS, None, _at_least(0.8)),
    Beside(f"{WRITTEN}, {RATE}", TASKS, PARALLEL_16, Target()),
    Beside(f"{WRITTEN}, {RATE}", TASKS, HAZELCAST_16, Target()),
    Beside(f"{UNLOGGED}, {P50}", ACTIVE, BARE, _at_most(2.0)),
    Beside(f"{UNLOGGED}, {P50}", ACTIVE, JE, _at_most(1.0, hard=False)),
    Beside(f"{UNLOGGED}, {RATE}", TASKS, PUSH_16, _at_least(0.8)),
    Beside(f"{UNLOGGED}, {RATE}", TASKS, JE_16, _at_least(1.0, hard=False)),
    Beside(f"{FLUSHED}, {P50}", ACTIVE, JE_SYNC, _at_most(1.0)),
    Beside(f"{FLUSHED}, {P50}", ACTIVE, ETCD, _at_most(1.0)),
    Beside(f"{ALONE}, SYNC, {P50}", RAW, JE_SYNC, Target()),
    Beside(f"{FLUSHED}, {RATE}", TASKS, None, _at_least(1.0)),
    Beside(f"{FLUSHED}, {RATE}", TASKS, ETCD_16, _at_least(2.0)),
    Beside(f"{FLUSHED}, {RATE}", TASKS, JE_SYNC_16, _at_least(1.5, hard=False)),
    Beside(f"{_FAILOVER}, median", CLIENT, None, Target(100, "value", hard=True)),
    Beside(f"{_FAILOVER}, p99", CLIENT, None, Target(400, "value", hard=True)),
    *(Beside(f"{_FAILOVER}, median", CLIENT, p, _at_most(1.0, hard=False)) for p in FAILOVERS),
    Beside("acknowledged writes lost in these kills", CLIENT, None, Target(0, "value", hard=True)),
    Beside("failover of a frozen process, first new acknowledged write, median", CLIENT, None, Target(700, "value")),
    Beside(f"{_TRANSFER}, p99", CLIENT, None, Target(100, "value", hard=True)),
    Beside(_RESTORE, "the fresh node", None, Target()),
    Beside(f"{_RESTORE}, from its process's start", "the fresh node", None, Target(1.5, "value")),
    *(Beside(f"{_RESTORE}, from its process's start", "the fresh node", p, Target()) for p in RESTORES),
    Beside(_READ, ACTIVE, None, Target(300_000, "value", "higher")),
    *(Beside(_READ, ACTIVE, p, Target()) for p in READS),
)


def figures(lines: Iterable[Mapping[str, Any]]) -> dict[Peer, list[float]]:
    """The peers' runs that the table asks for, in ms or per second."""
    found: dict[Peer, list[float]] = {}
    asked = {b.peer for b in TABLE if b.peer is not None}
    for line in lines:
        for p in asked:
            same = (line.get("peer"), line.get("clients"), line.get("procs")) == (p.peer, p.clients, p.procs)
            if same and p.config in line["config"] and p.figure in line:
                value = float(line[p.figure])
                found.setdefault(p, []).append(value / 1000 if p.figure == "p50_us" else value)
    return found


def comparisons(own: Iterable[Row], peers: Mapping[Peer, Sequence[float]]) -> list[Row]:
    """The table. A row whose peer was not measured does not meet its target: nobody knows."""
    measured = {(r.name, r.client_in): r for r in own}
    return [_line(b, measured[b.ours, b.client_in], peers) for b in TABLE if (b.ours, b.client_in) in measured]


def absent(own: Iterable[Row]) -> list[str]:
    """Rows of halog's that the table asks for and no suite has measured: as good as missed."""
    measured = {(r.name, r.client_in) for r in own}
    return list(dict.fromkeys(f"{b.ours} ({b.client_in})" for b in TABLE if (b.ours, b.client_in) not in measured))


def _line(beside: Beside, mine: Row, peers: Mapping[Peer, Sequence[float]]) -> Row:
    target, peer = beside.target, beside.peer
    if peer is None:
        ok = target.holds(mine.value, mine.ratio)
        return Row(**{**mine.to_dict(), "target": str(target), "hard": target.hard, "ok": ok})
    name = f"{mine.name}; beside {peer.said}"
    baselines = peers.get(peer, ())
    made = row(name, mine.unit, [mine.value], baselines, target=target, clients=mine.clients, client_in=mine.client_in)
    return Row(**{**made.to_dict(), "runs": mine.runs})
