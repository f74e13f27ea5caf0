"""`halog type list|retire`; and a class that came by mistake keeps nobody out, whoever is up (U2, U3)."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import Attempt
from halog.errors import SchemaChangedError
from halog.runtime.rpc import frames
from halog.schema import Registry, managed
from halog.transactions import commit as commits
from tests.unit.cli.conftest import TOML, Cluster, running, wait_until

pytestmark = pytest.mark.feature("U2", "U3", "O1")

Run = Callable[..., Any]


class Two(enum.Enum):
    ON = 1
    OFF = 2


class Three(enum.Enum):
    ON = 1
    OFF = 2
    AUTO = 3


for _enum in (Two, Three):
    _enum.__name__ = _enum.__qualname__ = "Mode"


def registry(mode: type[enum.Enum] = Two, **more: Any) -> tuple[Registry, type[Any]]:
    """With the class Gadget: `label` unless it is None, and what else is said."""
    made = Registry()
    fields: dict[str, Any] = {"k": str, "label": str, "mode": mode} | more
    said = {n: v for n, v in fields.items() if v is not None}
    body: dict[str, Any] = {n: v[1] for n, v in said.items() if isinstance(v, tuple)}
    body |= {"__module__": __name__}
    body["__annotations__"] = {n: v[0] if isinstance(v, tuple) else v for n, v in said.items()}
    return made, managed(key="k", registry=made)(type("Gadget", (), body))


RIGHT, Gadget = registry()
STRAY = {"a symbol more": registry(mode=Three), "a field less": registry(label=None)}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A and B run the right class, and there is an object; C is down."""
    made = Cluster(tmp_path, TOML, RIGHT)
    with running(made, monkeypatch):
        made.stop("C")
        node = made.nodes["A"]
        with node.transaction():
            node.create(Gadget(k="a", label="x", mode=Two.ON))
        yield made


def listed(halog: Run, *more: str) -> dict[str, Any]:
    found = halog("type", "list", "Gadget", "--format", "json", *more)
    assert found.code == 0, found
    return {d["id"]: d for d in found.json}


def events(halog: Run, code: str) -> list[Any]:
    return [e["more"] for e in halog("events", "--format", "json").json if e["code"] == code]


def id_of(made: Registry) -> str:
    return made.info("Gadget").type_id.hex()


@pytest.mark.parametrize("who", ["C", "client-1"])
@pytest.mark.parametrize("stray", STRAY)
def test_while_the_right_class_runs_a_stray_one_is_refused_and_everybody_else_starts(
    site: Cluster, halog: Run, stray: str, who: str
) -> None:
    with pytest.raises(SchemaChangedError, match=r"A, B, which run definition .* Nothing was published"):
        site.start(who, STRAY[stray][0])
    assert set(listed(halog)) == {id_of(RIGHT)}
    for name in ("C", "client-2"):
        site.start(name)
    site.stop("A")
    site.start("A")
    node = site.nodes["client-2"]
    with node.transaction():
        assert [g.label for g in node.extent(Gadget)] == ["x"]


@pytest.mark.parametrize("stray", STRAY)
def test_a_client_alone_is_refused_and_what_a_node_alone_brought_is_taken_back(
    site: Cluster, halog: Run, stray: str
) -> None:
    """No node need be up for that. The error of the right class names the command."""
    made, _ = STRAY[stray]
    for name in "AB":
        site.stop(name)
    with pytest.raises(SchemaChangedError, match="start a hosting node with this class first"):
        site.start("client-1", made)
    site.start("C", made)
    wait_until(lambda: events(halog, "HALOG-1120"))
    (told,) = events(halog, "HALOG-1120")
    assert told == {"type": "Gadget", "id": id_of(made), "older": id_of(RIGHT)}
    ran = halog("type", "retire", "Gadget", id_of(made))
    assert (ran.code, "is run by C" in ran.err) == (5, True), ran
    site.stop("C")
    with pytest.raises(SchemaChangedError, match=f"`halog type retire Gadget {id_of(made)}`"):
        site.start("A")
    ran = halog("type", "retire", "Gadget", id_of(made)[:6], "--dry-run", "--format", "json")
    assert (ran.code, ran.json) == (0, {"type": "Gadget", "id": id_of(made), "retired": False})
    ran = halog("type", "retire", "Gadget", id_of(RIGHT))
    assert (ran.code, "by the logs" in ran.err) == (5, True), ran
    ran = halog("type", "retire", "Gadget", id_of(made)[:6], "--format", "json")
    assert (ran.code, ran.json) == (0, {"type": "Gadget", "id": id_of(made), "retired": True})
    for name in "AB":
        site.start(name)
    assert set(listed(halog)) == {id_of(RIGHT)}
    assert events(halog, "HALOG-1121") == [{"type": "Gadget", "id": id_of(made)}]


def test_what_objects_use_stays_until_each_of_them_was_changed(site: Cluster, halog: Run) -> None:
    """A compatible class goes on beside the older one; once nothing is left of that, it can go."""
    wider, new = registry(note=(str, "-"))
    client = site.start("client-1", wider)
    with client.transaction():
        client.create(new(k="b", label="y", mode=Two.ON))
    found = listed(halog, "--objects")
    assert {i: (d["objects"], d["run_by"]) for i, d in found.items()} == {
        id_of(RIGHT): (1, ["A", "B"]),
        id_of(wider): (1, ["client-1"]),
    }
    client.close()
    del site.nodes["client-1"]
    ran = halog("type", "retire", "Gadget", id_of(wider), "--format", "json")
    assert (ran.code, "is used by 1 objects, in p-" in ran.err) == (5, True), ran
    node = site.nodes["A"]
    with node.transaction():
        node.get(Gadget, "b").label = "z"
    ran = halog("type", "retire", "Gadget", id_of(wider))
    assert (ran.code, "was taken back" in ran.out) == (0, True), ran
    with node.transaction():
        assert sorted(g.label for g in node.extent(Gadget)) == ["x", "z"]
    again = site.start("client-2", wider)
    with again.transaction():
        assert again.get(new, "b").note == "-"
    assert set(listed(halog)) == {id_of(RIGHT), id_of(wider)}, "who declares it again publishes it again"


def test_what_a_stray_class_wrote_is_deleted_by_nodes_that_have_no_class_and_then_it_is_taken_back(
    site: Cluster, halog: Run
) -> None:
    made, cls = STRAY["a field less"]
    for name in "AB":
        site.stop(name)
    stray = site.start("C", made)
    site.start("A", made)
    with stray.transaction():
        stray.create(cls(k="b", mode=Two.ON))
    for name in "AC":
        site.stop(name)
    with pytest.raises(SchemaChangedError, match="halog type retire"):
        site.start("A")
    retire = "type", "retire", "Gadget", id_of(made)
    ran = halog(*retire)
    assert (ran.code, "`[application] modules` left out" in ran.err) == (5, True), ran
    for name in "AB":
        site.start(name, Registry())
    ran = halog(*retire)
    assert (ran.code, "is used by 1 objects" in ran.err) == (5, True), ran
    assert halog("delete", "Gadget", "b", "--cluster", "ops").code == 0
    assert halog(*retire).code == 0
    for name in "AB":
        site.stop(name)
        site.start(name)
    node = site.nodes["A"]
    with node.transaction():
        assert [g.label for g in node.extent(Gadget)] == ["x"]


@pytest.mark.parametrize("up", ["nodes", "none"])
@pytest.mark.parametrize("change", ["create", "update"])
def test_what_is_in_doubt_counts_as_an_object_until_it_is_decided(
    site: Cluster, halog: Run, up: str, change: str
) -> None:
    """An initiator that runs another class got its votes, and died: nobody runs it, no object is there yet."""
    wider, new = registry(note=(str, "-"))
    *keys, created = gadgets_of(site, 3)
    with site.nodes["A"].transaction():
        site.nodes["A"].create(Gadget(k=keys[0], label="x", mode=Two.ON))
    client = site.start("client-1", wider)
    tx = client.transaction()
    tx.begin()
    if change == "update":
        tx.get(new, keys[0]).label = "y"
    else:
        tx.create(new(k=created, label="y", mode=Two.ON))
    tx.create(new(k=keys[1], label="y", mode=Two.ON))
    presented = commits.prepare(tx)
    assert presented is not None
    assert presented.works is not None
    assert tx.id is not None
    parts = tuple(sorted(presented.works))
    assert len(parts) == 2
    for part in parts:
        vote = frames.PrepareRequest(part, tx.id, parts[0], parts, b"digest", presented.works[part])
        client.runtime.ballots.prepare(vote, time.monotonic() + 5)
    client.close()
    del site.nodes["client-1"]
    retire = "type", "retire", "Gadget", id_of(wider)
    if up == "none":
        for name in "AB":
            site.stop(name)
        ran = halog(*retire)
        assert (ran.code, "by the logs" in ran.err) == (5, True), ran
        return
    for words in ((), ("--dry-run",)):
        ran = halog(*retire, *words)
        assert (ran.code, tx.id.hex() in ran.err, parts[0] in ran.err) == (5, True, True), ran
    assert id_of(wider) in listed(halog)
    assert halog("txn", "abort", tx.id.hex()).code == 0
    wait_until(lambda: not halog("txn", "list", "--format", "json").json["in_doubt"])
    ran = halog(*retire)
    assert (ran.code, "was taken back" in ran.out) == (0, True), ran


def gadgets_of(site: Cluster, partitions: int) -> list[str]:
    """A key in each of so many partitions."""
    runtime, info = site.nodes["A"].runtime, RIGHT.info("Gadget")
    found: dict[str, str] = {}
    for n in range(99):
        found.setdefault(runtime.partition_of("Gadget", info.routing_key((f"g{n}",))), f"g{n}")
    return list(found.values())[:partitions]


def test_names_that_nothing_has(site: Cluster, halog: Run) -> None:
    for words in (("list", "Gadgte"), ("retire", "Gadgte", "00")):
        ran = halog("type", *words)
        assert (ran.code, "did you mean Gadget?" in ran.err) == (2, True), ran
    ran = halog("type", "retire", "Gadget", "ffff")
    assert (ran.code, id_of(RIGHT) in ran.err, "`halog type list`" in ran.err) == (2, True, True), ran
    ran = halog("type", "retire", "Gadget", "")
    assert (ran.code, "'' is no name" in ran.err) == (2, True), ran
    assert "label" in halog("type", "list").out


def test_a_process_that_begins_to_run_it_just_then_keeps_it(site: Cluster, halog: Run) -> None:
    wider, _ = registry(note=(str, "-"))
    site.start("client-1", wider).close()
    del site.nodes["client-1"]

    def behind(attempt: Attempt[None]) -> None:
        attempt.land()
        found = site.tree.get("nodes/A")
        assert found is not None
        data = found.data.replace(id_of(RIGHT).encode(), id_of(wider).encode())
        site.tree.create("nodes/late", data.replace(b'"A"', b'"late"'), 0)

    taken_back = site.broker.faults.add("put", behind, times=1)
    ran = halog("type", "retire", "Gadget", id_of(wider))
    assert (ran.code, "run by late" in ran.err) == (5, True), ran
    assert taken_back.ended
    assert id_of(wider) in listed(halog)
    site.tree.delete("nodes/late", -1)
