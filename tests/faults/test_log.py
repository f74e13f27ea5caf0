"""A log that others wrote to, cut, deleted or damaged: the history stays one, or the partition stops and says why.

Others serve on, and no copy deletes what it holds.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from halog.core.log.records import KINDS, SCHEMAS
from halog.embedded import EmbeddedSite
from tests.faults.clients import Clients
from tests.faults.conftest import MODULE, mend
from tests.faults.judge import judge
from tests.faults.scene import GIVES_UP_S, SERVER_BACK_S, SERVES_AGAIN_S, active, complete, epochs
from tests.faults.verdict import explained
from tests.integration.cluster.checker import History, copies_equal, entries, history
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_log_damage import recreate, stopped, write
from tests.integration.cluster.test_restore import log_start, wipe

pytestmark = [pytest.mark.timeout(240), pytest.mark.feature("R1", "P1")]


@pytest.fixture
def two(make: Make, site: EmbeddedSite) -> Iterator[Cluster]:
    """Nodes A and B with two partitions: p-0 active on A, p-1 on B. Both servers run afterwards."""
    cluster = make(nodes="AB", partitions=2, async_=0, module=MODULE)
    cluster.start()
    cluster.whole()
    yield cluster
    mend(site)


def log_of(cluster: Cluster, index: int = 0) -> list[bytes]:
    return [data for _, data in entries(cluster.site.info.bootstrap, f"{cluster.name}.p.log", index)]


def commits(cluster: Cluster) -> list[bytes]:
    return [data for data in log_of(cluster) if data[1] == KINDS["Commit"]]


# --- what a foreign producer may write ---


def changed(data: bytes, **values: object) -> bytes:
    """A record with other values in it."""
    kind = next(name for name, number in KINDS.items() if number == data[1])
    schema = parse_schema(SCHEMAS[kind])
    record: Any = schemaless_reader(io.BytesIO(data[2:]), schema, None)
    out = io.BytesIO()
    schemaless_writer(out, schema, {**record, **values})
    return data[:2] + out.getvalue()


MANY = b"\x80\x80\x9a\xa6\xea\xaf\xe3\x01"
"""10^15, as Avro writes it."""
HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "of a later version": lambda record: b"\x02" + record[1:],
    "of an unknown kind": lambda record: b"\x01\x63" + record[2:],
    "with bytes behind it": lambda record: record + b"more",
    "cut short": lambda record: record[: len(record) // 2],
    "that announces 10^15 changes": lambda record: changed(record, changes=[])[:-2] + MANY + b"\x00",
    "of one byte": lambda record: b"\x01",
    "of nothing": lambda record: b"",
}


@pytest.mark.promise(2)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_record_nobody_can_read(two: Cluster, what: str) -> None:
    """Skipping it would make objects differ between readers: its partition stops, says so, and keeps what it holds."""
    with Clients(two.client(), "before") as before:
        pass
    known = {p: h.objects for p, h in judged(two, before).items()}
    write(two, 0, HOSTILE[what](commits(two)[-1]))
    wait(stopped(two, "record"), "both copies of p-0 say so", 20)
    with Clients(two.client(), "after", only=["p-1"]) as after:
        after.flows(SERVES_AGAIN_S)
    assert after.errors == []
    explained(after.pairs())
    for node in "AB":
        assert held(two, node) == known["p-0"], f"{node} keeps what it holds"


def judged(cluster: Cluster, clients: Clients) -> dict[str, History]:
    judge(cluster, clients)
    return {p: history(cluster, p) for p in cluster.partitions()}


def held(cluster: Cluster, node: str) -> dict[bytes, tuple[bytes, int, bytes]]:
    return {f.key: (f.ref, f.version, f.value) for f in cluster.stored(node, "p-0")}


@pytest.mark.promise(3)
def test_records_of_its_own_are_written_again(two: Cluster) -> None:
    """Copies of everything the log holds, dead epochs and the living one's: they count for nothing, at most an epoch
    ends for them."""
    with Clients(two.client(), "replayed") as clients:
        two.client().runtime.operators.hand_over("p-0", "B")
        clients.flows(SERVES_AGAIN_S)
        for data in log_of(two)[:30] + log_of(two)[-3:]:
            write(two, 0, data)
        clients.flows(GIVES_UP_S)
        complete(two)
        clients.flows(SERVES_AGAIN_S)
    judge(two, clients)


@pytest.mark.promise(3)
def test_a_forged_epoch_far_above_all_others(two: Cluster) -> None:
    """A foreign `EpochStarted` fences the active: whoever is elected raises above it (E4), and what was acknowledged is
    there."""
    with Clients(two.client(), "forged") as clients:
        clients.flows(SERVES_AGAIN_S)
        started = next(data for data in log_of(two) if data[1] == KINDS["EpochStarted"])
        write(two, 0, changed(started, epoch=1_000_000, nonce=7))
        wait(lambda: epochs(two)["p-0"] > 1_000_000, "an epoch above the forged one", GIVES_UP_S)
        clients.flows(GIVES_UP_S)
        complete(two)
    judge(two, clients)


@pytest.mark.promise(2)
def test_commits_forged_in_the_living_epoch(two: Cluster) -> None:
    """A well-formed commit with a wrong hash voids the rest of its epoch, the same for every reader; a new one goes
    on, and callers are told the truth about what was in flight."""
    with Clients(two.client(), "forger") as clients:
        clients.flows(SERVES_AGAIN_S)
        for _ in range(3):
            write(two, 0, changed(commits(two)[-1], prev=bytes(16), tx=bytes(range(16))))
            clients.flows(GIVES_UP_S)
        complete(two)
    found = judge(two, clients)
    assert not any(p.ended is not None and p.ended.tx == bytes(range(16)).hex() for p in found)
    assert bytes(range(16)) not in history(two, "p-0").ids


# --- what a broker may lose ---


@pytest.mark.promise(1)
def test_the_topic_is_deleted_and_created_again(two: Cluster) -> None:
    """Copies are ahead of the log then: they keep what they hold and say so, rather than follow an empty log."""
    with Clients(two.client(), "before") as before:
        before.flows(SERVES_AGAIN_S)
    known = judged(two, before)["p-0"].objects
    recreate(two)
    wait(stopped(two, "nothing was deleted here"), "both copies of p-0 say so", SERVER_BACK_S)
    assert held(two, "A") == held(two, "B") == known


def segment(cluster: Cluster) -> Path:
    site = cluster.site
    assert isinstance(site, EmbeddedSite), "the log of a broker beside us"
    data = Path(site.info.data_dir, "kafka/data")
    (found,) = (data / f"{cluster.name}.p.log-0").glob("*.log")
    return found


@pytest.mark.promise(1)
def test_the_end_of_the_log_is_cut_off(two: Cluster, site: EmbeddedSite) -> None:
    """As after a power cut of an unflushed broker, which says nothing of it (fact 4): no node goes on with other
    records at the same places; the copies keep what was acknowledged."""
    with Clients(two.client(), "before") as before:
        before.flows(SERVES_AGAIN_S)
    known = judged(two, before)["p-0"].objects
    site.kill("kafka")
    raw = segment(two).read_bytes()
    starts = list(batches(raw))
    segment(two).write_bytes(raw[: starts[-20]])
    site.start_server("kafka")
    wait(stopped(two, "nothing was deleted here"), "both copies of p-0 say so", 2 * SERVER_BACK_S)
    assert held(two, "A") == held(two, "B") == known


def batches(raw: bytes) -> Iterator[int]:
    """Where each record batch of a segment begins."""
    at = 0
    while at + 12 <= len(raw):
        size = int.from_bytes(raw[at + 8 : at + 12], "big")
        if size == 0:
            return  # preallocated
        yield at
        at += 12 + size


FLIPPED = 10
"""The number of the batch in which a bit is flipped."""


@pytest.mark.promise(2)
def test_a_byte_of_a_segment_is_flipped(two: Cluster, site: EmbeddedSite) -> None:
    """Who has read it before serves on; a node that must read it takes nothing from there on, and says which record it
    is. With the byte put right it catches up."""
    with Clients(two.client(), "flipped") as clients:
        clients.flows(SERVES_AGAIN_S)
        wait(lambda: len(list(batches(segment(two).read_bytes()))) > FLIPPED + 1, "the log has enough batches")
        two.kill("B")
        wipe(two, "B")
        site.shut("kafka")
        flip(two)
        site.start_server("kafka")
        clients.flows(SERVER_BACK_S)
        two.launch("B")
        wait(lambda: "offset" in str(two.copies("B").get("p-0", {}).get("error")), "B says what it cannot read", 30)
        assert two.table("p-0").node_list == ("A",)
        clients.flows(SERVES_AGAIN_S)
        site.shut("kafka")
        flip(two)
        site.start_server("kafka")
        two.kill("B")
        two.start("B")
        complete(two)
        clients.flows(SERVER_BACK_S)
    judge(two, clients)


def flip(cluster: Cluster) -> None:
    """One bit in the middle of a batch; twice is as before."""
    raw = bytearray(segment(cluster).read_bytes())
    starts = list(batches(bytes(raw)))
    raw[(starts[FLIPPED] + starts[FLIPPED + 1]) // 2 + 30] ^= 1
    segment(cluster).write_bytes(raw)


@pytest.mark.promise(2)
@pytest.mark.parametrize("away", ["killed", "frozen"])
def test_the_log_is_trimmed_past_a_slow_replica(make: Make, away: str) -> None:
    """What it lacks is no longer in the log: it is rebuilt from the snapshot and skips nothing."""
    cluster = make(nodes="AB", partitions=1, async_=0, every=100, keep=20, module=MODULE)
    cluster.start()
    cluster.whole()
    with Clients(cluster.client(), "trimmed") as clients:
        victim = "B" if active(cluster) == "A" else "A"
        cluster.kill(victim) if away == "killed" else cluster.freeze(victim)
        clients.flows(SERVES_AGAIN_S)
        stood = max(offset for offset, _ in entries(cluster.site.info.bootstrap, f"{cluster.name}.p.log", 0))
        wait(lambda: log_start(cluster, 0) > stood + 50, "the log begins behind where it stood", 60)
        cluster.start(victim) if away == "killed" else cluster.wake(victim)
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    clients.read_all(cluster.client())
    explained(clients.pairs())
    wait(lambda: copies_equal(cluster), "both copies hold the same", 30)
