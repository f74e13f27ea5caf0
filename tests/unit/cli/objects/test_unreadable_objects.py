"""Objects whose bytes cannot be read, as an older halog may have written them: operators list, see and delete them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import MemoryLog
from halog.backend import Work, Write
from halog.core.keys.directory import packed
from halog.core.log.records import CREATE
from halog.errors import LaterRecordError, RecordFormatError
from halog.schema import Registry, managed
from halog.schema.definition import ID_BYTES
from halog.schema.scalars import write_long
from tests.unit.cli.conftest import TOML, Cluster, running

pytestmark = pytest.mark.feature("O1")

Run = Callable[..., Any]
HERE = Registry()
FAR = write_long(253_402_318_800_000_000)
"""Five hours behind the end of year 9999."""
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@managed(key="name", registry=HERE)
class Ticket:
    name: str
    until: dt.datetime


@managed(key=("place", "at"), partition_by="place", registry=HERE)
class Reading:
    place: str
    at: dt.datetime


def spoil(
    cluster: Cluster, info: Any, key: bytes, routing: bytes, rest: bytes, *, listed: bool = False, type_id: bytes = b""
) -> str:
    """Commit what no halog would write now; the partition."""
    runtime: Any = next(iter(cluster.nodes.values())).runtime
    partition = str(runtime.partition_of(info.name, routing))
    ref, index_key = runtime.new_reference().to_bytes(), info.family_id + key
    writes = [Write(CREATE, ref, index_key, (type_id or info.type_id) + key + rest, -1)]
    if listed:
        from halog.core.keys.directory import entry_key

        writes.append(Write(CREATE, ref, entry_key(index_key), packed(info.type_id, partition), -1))
    runtime.commit(partition, runtime.new_transaction_id(), Work((), tuple(writes)))
    return partition


@pytest.fixture
def tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path, TOML, HERE)
    with running(made, monkeypatch):
        made.settle()
        node = made.nodes["B"]
        with node.transaction():
            for n in range(5):
                node.create(Ticket(f"t{n}", NOON))
                node.create(Reading("here", NOON + dt.timedelta(hours=n)))
        yield made


def test_one_with_a_field_that_cannot_be_read(tickets: Cluster, halog: Run, tmp_path: Path) -> None:
    """It is listed beside the others, shown as bytes, named by an export, and deleted by its key."""
    info: Any = Ticket.__halog__  # type: ignore[attr-defined]
    key = info.encode_key(("spoilt",))
    partition = spoil(tickets, info, key, info.routing_key(("spoilt",)), FAR)
    listed = halog("list", "Ticket", "--format", "json").json
    assert {d["key"][0] for d in listed} == {"spoilt", *(f"t{n}" for n in range(5))}
    (bad,) = [d for d in listed if "fields" not in d]
    assert (bad["type"], bad["key_bytes"], "out of range" in bad["why"]) == ("Ticket", key.hex(), True)
    assert f"cannot be read (key bytes {key.hex()})" in halog("list", "Ticket").out

    shown = halog("get", "Ticket", "spoilt", "--format", "json").json
    assert (shown["partition"], bytes.fromhex(shown["bytes"])) == (partition, info.type_id + key + FAR)
    assert halog("get", "Ticket", "--key-bytes", key.hex(), "--format", "json").json == shown
    assert "out of range" in halog("get", "Ticket", "spoilt").out
    raw = halog("get", "Ticket", "t1", "--raw", "--format", "json").json
    assert ("why" in raw, bytes.fromhex(raw["bytes"])) == (False, info.encode(Ticket("t1", NOON)))

    ran = halog("export", "Ticket", "-o", tmp_path / "all.jsonl")
    assert (ran.code != 0, "Ticket spoilt cannot be read" in ran.err) == (True, True), ran

    refused = halog("delete", "Ticket", "spoilt")
    assert (refused.code, "nothing was changed" in refused.err, "--cluster ops" in refused.err) == (5, True, True)
    node = tickets.nodes["A"]
    with node.transaction(), pytest.raises(RecordFormatError, match="Ticket 'spoilt'"):
        list(node.extent(Ticket))
    done = halog("delete", "Ticket", "spoilt", "--cluster", "ops", "--format", "json")
    assert (done.code, done.json["bytes"]) == (0, shown["bytes"]), done
    with node.transaction():
        assert len(list(node.extent(Ticket))) == 5
        assert node.find(Ticket, "spoilt") is None
    assert halog("delete", "Ticket", "spoilt", "--cluster", "ops").code == 2
    told = [e for e in halog("events", "--format", "json").json if e["code"] == "HALOG-1108"]
    assert [e["more"]["object"] for e in told] == ["Ticket spoilt"]


def later_definition(cluster: Cluster, info: Any) -> bytes:
    """Publish a definition of the type as a later halog writes it; its type id."""
    text: bytes = b'{"unit":"km",' + info.definition.encode()[1:]
    type_id = hashlib.sha256(text).digest()[:ID_BYTES]
    MemoryLog(cluster.broker).put(cluster.nodes["A"].definitions.tp, type_id, text)
    return type_id


@pytest.mark.feature("U1")
def test_those_of_a_later_versions_definition_are_told_as_such(tickets: Cluster, halog: Run, tmp_path: Path) -> None:
    """Nothing of them is damaged, so nobody is told to delete them; the exit code says that it takes a later halog."""
    info: Any = Ticket.__halog__  # type: ignore[attr-defined]
    type_id = later_definition(tickets, info)
    node = tickets.nodes["A"]
    for name in ("later", "another"):
        spoil(tickets, info, info.encode_key((name,)), info.routing_key((name,)), b"", type_id=type_id)
        ran = halog("export", "Ticket", "-o", tmp_path / "all.jsonl")
        assert (ran.code, "a later version of halog wrote" in ran.err) == (7, True), ran
        names = set[str]()
        with node.transaction(), pytest.raises(LaterRecordError, match=r"Ticket 'later' in partition .*Upgrade") as met:
            names.update(t.name for t in node.extent(Ticket))
        assert "halog delete" not in str(met.value)
        assert names == {f"t{n}" for n in range(5)}
    assert sorted(met.value.evidence["objects"]) == ["Ticket 'another'", "Ticket 'later'"]
    with node.transaction(), pytest.raises(LaterRecordError, match="Ticket 'later' in partition"):
        node.get(Ticket, "later")
    shown = halog("get", "Ticket", "later", "--format", "json").json
    assert shown["bytes"].startswith(type_id.hex())
    assert "a later version of halog" in shown["why"]


def test_one_with_a_key_that_cannot_be_read(tickets: Cluster, halog: Run) -> None:
    """By the bytes of its key, as the list shows them."""
    info: Any = Reading.__halog__  # type: ignore[attr-defined]
    place = info.encode_key(("here", NOON))[:5]
    spoil(tickets, info, place + FAR, place, b"")
    (bad,) = [d for d in halog("list", "Reading", "--format", "json").json if "fields" not in d]
    assert bad["key"] == [(place + FAR).hex()]
    shown = halog("get", "Reading", "--key-bytes", bad["key_bytes"], "--format", "json")
    assert (shown.code, shown.json["bytes"]) == (0, bad["bytes"])
    assert halog("delete", "Reading", "--key-bytes", bad["key_bytes"], "--cluster", "ops").code == 0
    assert len(halog("list", "Reading", "--format", "json").json) == 5
    assert halog("get", "Reading").code == 2
    assert halog("get", "Reading", "--key-bytes", "xyz").code == 2


def test_any_object_is_deleted_together_with_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    """Where the mapper is no function of the key."""
    toml = TOML.replace("partitions = 6", 'partitions = 4\nmapper = "round_robin"')
    with running(Cluster(tmp_path, toml), monkeypatch) as cluster:
        cluster.create(*(cluster.Seaplane(f"S{n}") for n in range(8)))
        for n in range(4):
            assert halog("delete", "Aircraft", f"S{n}", "--cluster", "ops").code == 0
        assert len(halog("list", "Seaplane", "--format", "json").json) == 4
        cluster.create(cluster.Seaplane("S0"))
        node = cluster.nodes["C"]
        with node.transaction():
            assert sorted(a.tail for a in node.extent(cluster.Aircraft)) == ["S0", "S4", "S5", "S6", "S7"]
            assert node.find(cluster.Aircraft, "S1") is None
