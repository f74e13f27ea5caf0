"""docs/protocol.md suffices: a reader made of it alone finds in the logs of a cluster what the API shows."""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import enum
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, cast

import pytest
from hypothesis import given, settings

import halog
from halog.adapters.memory import MemoryLog
from halog.config.model import SnapshotConfig
from halog.errors import HalogError
from halog.ports import TopicPartition
from halog.runtime.rpc import frames
from halog.schema import Ref, Registry, TypeInfo, managed
from halog.testing.cluster import Cluster, wait_until
from halog.transactions import commit as commits
from tests.independent import reader
from tests.unit.schema.shapes_strategy import objects
from tests.unit.sites.test_restoring import part, restore
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("R1", "U2")
__all__ = ["east", "west"]

REGISTRY: Final = Registry()


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


@dataclasses.dataclass
class Point:
    x: float
    colour: Colour | None = None


@managed(key="name", registry=REGISTRY)
class Pilot:
    name: str
    flown: int = 0


@managed(key=("day", "number"), partition_by="number", registry=REGISTRY)
class Flight:
    day: dt.date
    number: Decimal
    late: bool = False
    seats: int = 0
    load: float = 0.0
    gate: str = ""
    tag: bytes = b""
    fare: Annotated[Decimal, halog.Decimals(12, 2)] = Decimal("0.00")
    tax: Decimal = Decimal("0")
    off: dt.datetime | None = None
    wake: dt.time | None = None
    id: uuid.UUID | None = None
    colour: Colour = Colour.RED
    place: Point | None = None
    path: list[Point] = dataclasses.field(default_factory=list)
    by_name: dict[str, list[Colour | None]] = dataclasses.field(default_factory=dict)
    pilot: Ref[Pilot] | None = None
    crew: list[Ref[Pilot]] = dataclasses.field(default_factory=list)
    prices: dict[str, Decimal] = dataclasses.field(default_factory=dict)


class Port:
    @dataclasses.dataclass
    class Berth:
        colour: Colour


@managed(key="name", registry=REGISTRY)
class Ship:
    """A name with a dot is a namespace to Avro, in which the other one would be looked for."""

    name: str
    berth: Port.Berth
    colour: Colour


@managed(registry=REGISTRY)
class Cargo(Flight):
    tons: float = 0.0


def plain(value: Any) -> Any:
    """What the reader shows for it."""
    match value:
        case dt.datetime():  # the same instant, in UTC
            return value.astimezone(dt.UTC).replace(fold=0)
        case enum.Enum():
            return value.name
        case Ref():
            return {"ref": value.raw, "type": value.type_name, "key": value.key}
        case list():
            return [plain(v) for v in value]
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            return value


# --- the reader itself ---


def test_the_reader_knows_nothing_of_halog() -> None:
    tree = ast.parse(Path(reader.__file__).read_text())
    named = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    named += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    roots = {name.partition(".")[0] for name in named}
    assert roots - sys.stdlib_module_names == {"fastavro"}
    assert not roots & {"importlib", "runpy", "pkgutil"}


@given(objects())
@settings(max_examples=150, deadline=None)
def test_any_object_is_read_by_its_definition(case: tuple[TypeInfo, Any]) -> None:
    info, obj = case
    types = reader.Types([(info.type_id, info.definition.encode())])
    name, key, fields = types.object(info.index_key(info.key_of(obj)), info.encode(obj))
    assert (name, key) == (info.name, info.key_of(obj))
    assert repr(fields) == repr(plain(obj))


def test_names_with_dots_are_no_namespaces() -> None:
    info: TypeInfo = Ship.__halog__  # type: ignore[attr-defined]
    ship = Ship("Ann", Port.Berth(Colour.RED), Colour.GREEN)
    types = reader.Types([(info.type_id, info.definition.encode())])
    _, _, fields = types.object(info.index_key(("Ann",)), info.encode(ship))
    assert fields == plain(ship)


# --- a cluster, and what its logs say ---


def logs(cluster: Cluster) -> dict[str, tuple[reader.History, Counter[str]]]:
    """Each partition's log, read by the reader, and how many of its records counted how."""
    found = {}
    log = MemoryLog(cluster.broker)
    for name, table in cluster.tables().items():
        tp = TopicPartition(table.topic, table.index)
        start, end = log.bounds(tp)
        site, at = cluster.config.site.name, 0
        history = reader.History(site, table.home if table.home != site else "")
        if start:
            state = TopicPartition(table.topic.removesuffix("log") + "state", table.index)
            history, at = reader.History.restored(log.read_keyed(state))
        found[name] = history, Counter(history.read(entry.value) for entry in log.read(tp, at, end))
    return found


def types(cluster: Cluster, decimal: str = reader._WRITTEN) -> reader.Types:
    return reader.Types(MemoryLog(cluster.broker).read_keyed(TopicPartition("test.schemas", 0)), decimal)


def shown(cluster: Cluster, partition: str) -> dict[bytes, reader.Row]:
    """What the active node of a partition has: reference, version and bytes."""
    found = cluster.client().backend.scan(partition, b"")
    return {f.key: reader.Row(f.ref, f.version, f.value) for f in found}


def both_agree(cluster: Cluster) -> dict[str, tuple[reader.History, Counter[str]]]:
    """The logs, once nothing in them is in doubt. Everything that the active nodes show is what the reader found."""

    def settled() -> Any:
        found = logs(cluster)
        return None if any(history.in_doubt for history, _ in found.values()) else found

    found: dict[str, tuple[reader.History, Counter[str]]] = wait_until(settled, "something is in doubt")
    for partition, (history, _) in found.items():
        assert history.objects == shown(cluster, partition)
    return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(3, partitions=4, registry=REGISTRY)
    made.config = replace(made.config, timing=replace(made.config.timing, doubt_timeout_ms=300)).validate()
    with made.start():
        yield made


DAY = dt.date(2026, 2, 28)
MOMENT = dt.datetime(2026, 2, 28, 23, 59, 59, 999_999, dt.UTC)


def fill(cluster: Cluster) -> None:
    """Objects with every scalar and container, changed and deleted, in transactions over one partition and several."""
    node = cluster.client()

    @node.transactional()
    def create() -> None:
        halog.current().create(Pilot("Ada"))
        halog.current().create(Pilot("Bob"))

    @node.transactional()
    def fly() -> None:
        tx = halog.current()
        ada, bob = (node.ref(tx.get(Pilot, name)) for name in ("Ada", "Bob"))
        for n in range(12):
            number = Decimal(n) / 4
            tx.create(Flight(DAY, number, pilot=ada, crew=[ada, bob]))
        tx.create(
            Cargo(
                dt.date.min,
                Decimal("-1E+3"),
                True,
                -(1 << 63),
                float("-inf"),
                "ZRH \U0001f6eb",
                b"\0\xff",
                Decimal("-1.50"),
                Decimal("-0.00"),
                MOMENT,
                dt.time.max,
                uuid.UUID(int=7),
                Colour.GREEN,
                Point(-0.0, Colour.GREEN),
                [Point(1.5), Point(float("nan"), Colour.RED)],
                {"a": [None, Colour.GREEN], "": []},
                bob,
                [],
                {"x": Decimal("2.50"), "y": Decimal("1E+3"), "z": Decimal("0")},
                tons=0.1,
            )
        )

    @node.transactional()
    def change() -> None:
        tx = halog.current()
        for n in range(0, 12, 2):
            tx.get(Flight, DAY, Decimal(n) / 4).path.append(Point(float(n)))
        tx.delete(tx.get(Flight, DAY, Decimal("0.25")))
        gone = tx.get(Flight, DAY, Decimal("0.75"))
        tx.delete(gone)
        tx.create(Flight(DAY, Decimal("0.75"), gate="again"))

    create()
    fly()
    change()
    for n in range(5):
        with node.transaction() as tx:
            tx.get(Pilot, "Ada").flown = n


def leave_in_doubt(cluster: Cluster, *, decided: bool) -> bytes:
    """Do what an initiator does that dies behind the votes, or behind the decision."""
    client = cluster.client()
    tx = client.transaction()
    tx.begin()
    for n in range(12):
        if n not in (1, 3):
            tx.get(Flight, DAY, Decimal(n) / 4).seats += 100
    presented = commits.prepare(tx)
    assert presented is not None
    assert presented.works is not None
    assert tx.id is not None
    parts = tuple(sorted(presented.works))
    ballots, until = client.backend.ballots, time.monotonic() + 5  # type: ignore[attr-defined]
    for name in parts:
        ballots.prepare(frames.PrepareRequest(name, tx.id, parts[0], parts, b"x", presented.works[name]), until)
    if decided:
        decide(cluster, tx.id, parts[0])
    return tx.id


def decide(cluster: Cluster, tx: bytes, first: str) -> None:
    ballots = cluster.client().backend.ballots  # type: ignore[attr-defined]
    assert ballots.decide(frames.Decide(first, tx, True, True), time.monotonic() + 5)[0] == "committed"


def test_objects_and_versions_are_those_of_the_api(cluster: Cluster) -> None:
    fill(cluster)
    found = both_agree(cluster)
    known = types(cluster)
    read = {}
    for history, _ in found.values():
        for key, row in history.objects.items():
            name, parts, fields = known.object(key, row.value)
            read[name, parts] = row, fields
    with cluster.client().transaction() as tx:
        for kind in (Pilot, Flight):
            for obj in cast("Iterable[Any]", tx.extent(kind)):
                name = type(obj).__halog__.name
                parts = (obj.name,) if isinstance(obj, Pilot) else (obj.day, obj.number)
                row, fields = read.pop((name, parts))
                assert repr(fields) == repr(plain(obj))
                assert row.ref == cluster.client().ref(obj).raw
    assert not read
    assert len({h.lsn for h, _ in found.values()}) > 1


def test_any_reader_of_avro_has_the_same_numbers(cluster: Cluster) -> None:
    fill(cluster)
    written, avro = types(cluster), types(cluster, "decimal")
    rows = [item for history, _ in both_agree(cluster).values() for item in history.objects.items()]
    assert len(rows) == 14
    for key, row in rows:
        (_, _, exact), (_, _, plain_) = written.object(key, row.value), avro.object(key, row.value)
        assert [exact[f] for f in ("fare", "tax", "prices") if f in exact] == [
            plain_[f] for f in ("fare", "tax", "prices") if f in plain_
        ]


def test_transactions_over_several_partitions_that_nobody_ended(cluster: Cluster) -> None:
    fill(cluster)
    aborted = leave_in_doubt(cluster, decided=False)
    before = {p: history.objects for p, (history, _) in both_agree(cluster).items()}
    committed = leave_in_doubt(cluster, decided=True)
    found = both_agree(cluster)
    verdicts = [(h.decided.get(aborted), h.decided.get(committed)) for h, _ in found.values()]
    assert verdicts.count((False, True)) > 1
    for partition, (history, _) in found.items():
        changed = {k for k in history.objects if history.objects[k] != before[partition][k]}
        assert bool(changed) == (committed in history.decided)
        assert len({history.objects[k].version for k in changed}) <= 1


def test_a_failover_and_records_that_do_not_count(cluster: Cluster) -> None:
    fill(cluster)
    log = MemoryLog(cluster.broker)
    lost = cluster.active_for(Pilot, "Ada")
    cluster.kill(lost)
    cluster.settle()
    with cluster.client().transaction() as tx:
        tx.get(Pilot, "Ada").flown = 100
    table = cluster.tables()[cluster.partition_of(Pilot, "Ada")]
    tp = TopicPartition(table.topic, table.index)
    values = [entry.value for entry in log.read(tp, 0, log.bounds(tp)[1])]
    cluster.broker.overtake(tp, values[1])  # late, of an epoch that is over
    cluster.broker.overtake(tp, values[-1])  # of the epoch that is open: it does not continue, and the epoch is void

    @cluster.client().transactional()
    def go_on() -> None:
        halog.current().get(Pilot, "Ada").flown += 1

    wait_until(lambda: _did(go_on), "it does not go on")
    cluster.restart(lost)
    cluster.settle()
    history, counted = both_agree(cluster)[cluster.partition_of(Pilot, "Ada")]
    assert len(history.lineage) >= 3
    assert counted["skipped"] >= 1
    assert counted["voided"] >= 1
    with cluster.client().transaction() as tx:
        assert tx.get(Pilot, "Ada").flown == 101


def test_a_log_whose_beginning_is_gone() -> None:
    """It goes on from what the state topic has, with a transaction in doubt."""
    made = Cluster(3, partitions=4, registry=REGISTRY)
    timing = replace(made.config.timing, doubt_timeout_ms=60_000)
    snapshot = SnapshotConfig(every_records=10, every_ms=100, keep_records=1)
    made.config = replace(made.config, timing=timing, snapshot=snapshot).validate()
    with made.start() as cluster:
        fill(cluster)
        tx = leave_in_doubt(cluster, decided=False)
        log = MemoryLog(cluster.broker)
        places = [TopicPartition(table.topic, table.index) for table in cluster.tables().values()]

        def trimmed() -> bool:
            with cluster.client().transaction() as other:
                other.get(Pilot, "Bob").flown += 1
            return all(log.bounds(tp)[0] > 0 for tp in places)

        wait_until(trimmed, "a log is as long as ever")
        doubted = sorted(name for name, (history, _) in logs(cluster).items() if tx in history.in_doubt)
        assert len(doubted) > 1
        decide(cluster, tx, doubted[0])
        with cluster.client().transaction() as other:
            other.delete(other.get(Pilot, "Bob"))
        found = both_agree(cluster)
        assert [name for name, (history, _) in sorted(found.items()) if history.decided.get(tx)] == doubted


def _did(what: Any) -> bool:
    try:
        what()
    except HalogError:
        return False
    return True


@pytest.mark.feature("M5")
def test_logs_that_change_hands(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, *range(10))
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(10, 20))
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    wests, easts = logs(west), both_agree(east)
    for partition, (history, counted) in wests.items():
        other, _ = easts[partition]
        assert history.objects == other.objects
        assert (history.lsn, history.hash, history.lineage) == (other.lsn, other.hash, other.lineage)
        assert counted["switched"] == 1


@pytest.mark.feature("M2")
def test_histories_that_parted_and_were_merged(west: Cluster, east: Cluster) -> None:
    west.see(east)
    part(west, east)
    restore(west, east)
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    fly(east, *range(50, 60))
    level(west, east)
    wests, easts = logs(west), both_agree(east)
    assert sum(counted["held"] for _, counted in easts.values()) > 1
    for partition, (history, _) in wests.items():
        other, _ = easts[partition]
        assert history.objects == other.objects
        assert (history.lsn, history.hash, history.lineage) == (other.lsn, other.hash, other.lineage)
