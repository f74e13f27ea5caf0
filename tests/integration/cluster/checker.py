"""The judge: a reader of the log that shares no code with halog's, and the comparison of every copy with what it reads.

It follows docs/protocol.md ("What a reader owes") with nothing but the documented Avro schemas: which records count,
which objects they leave, which transaction ids happened.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from fastavro import parse_schema, schemaless_reader

from halog.core.log.records import KINDS, SCHEMAS
from halog.runtime.rpc import frames
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait

if TYPE_CHECKING:
    from tests.integration.cluster.load import Load

_PARSED = {KINDS[name]: (name, parse_schema(schema)) for name, schema in SCHEMAS.items()}


def entries(bootstrap: str, topic: str, index: int, frm: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of everything in a log partition now, at `frm` and behind it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": False,
            "fetch.message.max.bytes": 8_000_000,
        }
    )
    try:
        start, end = bounds(consumer, TopicPartition(topic, index))
        at = max(start, frm)
        consumer.assign([TopicPartition(topic, index, at)])
        while at < end:
            message = consumer.poll(60)
            assert message is not None, f"{topic}/{index} gives nothing at {at} of {end}"
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            at = offset + 1
            yield offset, value
    finally:
        consumer.close()


def bounds(consumer: Consumer, seat: TopicPartition) -> tuple[int, int]:
    """The offsets of a log partition. A consumer that has just begun may not know it yet."""
    found: list[tuple[int, int]] = []

    def told() -> bool:
        with suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(seat, timeout=20))
        return bool(found)

    wait(told, f"Kafka tells the offsets of {seat}")
    return found[0]


class History:
    """One partition's accepted history, folded to objects. `owner`: the other site whose records count at the log's
    beginning (F1)."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.epoch = (0, "", 0)
        self.void = self.opened = False
        self.next_offset = 0
        self.lsn = 0
        self.hash = bytes(16)
        self.ids: dict[bytes, list[int]] = defaultdict(list)
        """Transaction id → the lsns it happened at."""
        self.objects: dict[bytes, tuple[bytes, int, bytes]] = {}
        """Index key → (reference, lsn, value)."""
        self.prepared: dict[bytes, list[Any]] = {}
        """Of transactions over several partitions: what they would change, until they are decided; then nothing."""
        self.state = 0
        """The hash of the objects (U1), as a number."""
        self.marks: dict[int, bytes] = {}
        """That hash at the lsns at which copies remember it."""
        self.skipped = 0
        self.kinds: list[str] = []

    def read(self, data: bytes) -> None:
        name, schema = _PARSED[data[1]]
        assert data[0] == 1
        record: Any = schemaless_reader(io.BytesIO(data[2:]), schema, None)
        epoch = (record["epoch"], record["site"], record["nonce"])
        if name == "EpochStarted":
            if epoch[0] > self.epoch[0]:
                self.owner = ""
                self.epoch = epoch
                self.void = False
                self.opened = False
            return
        if name == "SiteSwitched":
            self.owner = record["to"] if epoch == self.epoch and not self.void else self.owner
            return
        if self.owner:  # what it mirrors is the next of the chain, or nothing (F2)
            if (record["lsn"], record["prev"]) == (self.lsn + 1, self.hash):
                self.epoch = epoch
                self._take(name, record, hashlib.blake2b(data, digest_size=16).digest())
            else:
                self.skipped += 1
            return
        if epoch != self.epoch or self.void:
            assert epoch[0] <= self.epoch[0], f"epoch {epoch} writes and never started"
            self.skipped += 1
        elif record["lsn"] != self.lsn + 1 or record["prev"] != self.hash:
            assert name != "EpochOpened" or self.opened, "an epoch was opened on another history"
            self.void = True
        else:
            self._take(name, record, hashlib.blake2b(data, digest_size=16).digest())

    def _take(self, name: str, record: Any, digest: bytes) -> None:
        self.lsn = record["lsn"]
        self.hash = digest
        self.kinds.append(name)
        self.void = name == "HandedOver"
        self.opened |= name == "EpochOpened"
        tx = record["tx"]
        if name == "Prepare":
            self.prepared.setdefault(tx, record["changes"])
        elif name == "Outcome":
            changes, self.prepared[tx] = self.prepared.get(tx, []), []
            if record["commit"] and tx not in self.ids:
                self._change(tx, changes)
        elif name == "Commit":
            self._change(tx, record["changes"])
        if self.lsn % 64 == 0:
            self.marks[self.lsn] = self.state_hash

    @property
    def state_hash(self) -> bytes:
        """What a copy at this lsn says of its objects."""
        return self.state.to_bytes(16, "big")

    def _change(self, tx: bytes, changes: list[Any]) -> None:
        self.ids[tx].append(self.lsn)
        for change in changes:
            key = change["key"]
            self.state -= _term(key, self.objects.pop(key, None))
            if change["value"] is not None:
                self.objects[key] = (change["ref"], self.lsn, change["value"])
                self.state += _term(key, self.objects[key])
        self.state %= 1 << 128


def _term(key: bytes, held: tuple[bytes, int, bytes] | None) -> int:
    if held is None:
        return 0
    data = len(key).to_bytes(4, "big") + key + held[0] + held[2]
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")


def history(cluster: Cluster, partition: str) -> History:
    """What anybody who reads the log to its end knows."""
    table = cluster.table(partition)
    found = History(table.home)
    read_on(cluster, table.topic, table.index, found)
    return found


def read_on(cluster: Cluster, topic: str, index: int, h: History) -> None:
    """What has come since."""
    for offset, data in entries(cluster.site.info.bootstrap, topic, index, h.next_offset):
        h.read(data)
        h.next_offset = offset + 1


def check(cluster: Cluster, *loads: Load, copies: bool = True) -> dict[str, History]:
    """Everything acknowledged happened exactly once, where it was said to; every copy holds what the log says; the
    application sees what it did."""
    wait(lambda: _has_arrived(cluster, loads), "the log has what was acknowledged before it had it")
    histories = {p: history(cluster, p) for p in cluster.partitions()}
    doubled = {tx.hex(): at for h in histories.values() for tx, at in h.ids.items() if len(at) > 1}
    assert not doubled, "transactions that happened twice"
    for load in loads:
        lost = {tx.hex(): ack for tx, ack in load.acked.items() if histories[ack[0]].ids.get(tx) != [ack[1]]}
        assert not lost, f"{len(lost)} of {len(load.acked)} acknowledged transactions are not in the log as told"
        load.check_objects(cluster.client())
    if copies:
        for partition, h in histories.items():
            for node in cluster.table(partition).configured:
                check_copy(cluster, node, partition, h)
    return histories


def _has_arrived(cluster: Cluster, loads: tuple[Load, ...]) -> bool:
    """A commit that does not wait for the log may still be on its way there."""
    told: dict[str, int] = defaultdict(int)
    for load in loads:
        for partition, lsn in load.acked.values():
            told[partition] = max(lsn, told[partition])
    for partition, lsn in told.items():
        active = cluster.table(partition).active
        copy = None if active is None else cluster.copies(active.node).get(partition)
        if copy is None or copy["lsn"] < lsn:
            return False
    return True


def check_copy(cluster: Cluster, node: str, partition: str, h: History) -> None:
    """One node's copy is at the end of the log and holds exactly its objects. The log may have grown since it was read:
    outcomes are told to partitions, and horizons move, when their time has come; and a copy may show what the log does
    not have yet. So it is compared with what it shows while it shows what the log has, before and behind that."""
    table = cluster.table(partition)
    held: dict[str, dict[bytes, tuple[bytes, int, bytes]]] = {}
    hashes: list[frames.StateHashesReply] = []

    def level() -> bool:
        copy = cluster.copies(node).get(partition)
        if copy is not None and copy["lsn"] > h.lsn:
            read_on(cluster, table.topic, table.index, h)
        return copy is not None and (copy["lsn"], copy["hash"], copy["shown"]) == (h.lsn, h.hash.hex(), h.lsn)

    def still() -> bool:
        if not level():
            return False
        at = h.lsn
        held.update(now={f.key: (f.ref, f.version, f.value) for f in cluster.stored(node, partition)})
        hashes[:] = [cluster.hashes(node, partition)]
        return level() and h.lsn == at

    wait(still, lambda: f"{node}'s copy of {partition} is at lsn {h.lsn}, as the log")
    its = held["now"]
    wrong = sorted(k for k in its.keys() | h.objects.keys() if its.get(k) != h.objects.get(k))
    assert not wrong, f"{node}'s copy of {partition} differs from the log in {len(wrong)} objects"
    said = hashes[0]
    told, marks = (said.lsn, said.hash, said.scanned), dict(said.marks)
    assert told == (h.lsn, h.state_hash, h.state_hash), f"{node}'s copy of {partition} says another hash of its objects"
    assert marks == {lsn: h.marks[lsn] for lsn in marks}, f"{node}'s copy of {partition} had another hash before"


def copies_equal(cluster: Cluster) -> bool:
    """For a log that was trimmed: do all copies hold the same objects now?"""
    for partition in cluster.partitions():
        nodes = cluster.table(partition).configured
        held = [{f.key: (f.ref, f.version, f.value) for f in cluster.stored(n, partition)} for n in nodes]
        if any(h != held[0] for h in held):
            return False
        said = [cluster.hashes(n, partition) for n in nodes]
        assert all(reply.hash == reply.scanned for reply in said), f"a copy of {partition} says another hash"
        if len({(reply.lsn, reply.hash) for reply in said}) > 1:
            return False
    return True
