"""Objects go round the partitions and are found by their directory, on real processes and the real log (P6, T8)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from halog.config import load_config
from halog.core.keys.directory import is_entry, object_key, unpacked
from halog.runtime.keys.key_owners import Places
from halog.schema.registry import DEFAULT
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import Process, wait
from tests.integration.cluster.rounds import STEADY
from tests.integration.cluster.test_remapping import begins, check_places, mapping, undecided

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P6", "P13")]

PATIENCE_S = 90.0
THREADS = 2


def round_robin(path: Path, **values: int) -> Path:
    """The same file with a policy whose objects go round."""
    said = "".join(f"{name} = {value}\n" for name, value in values.items())
    path.write_text(path.read_text().replace("[policies.p]\n", f'[policies.p]\nmapper = "round_robin"\n{said}'))
    return path


def worker(cluster: Cluster, name: str) -> Process:
    argv = ["tests.integration.cluster.rounds", str(cluster.toml), name, str(THREADS)]
    process = Process(name, cluster.directory, argv)
    cluster.helpers.append(process)
    process.ready()
    return process


def said(process: Process, what: str) -> list[str]:
    return [" ".join(words[1:]) for words in map(str.split, process.lines()) if words[0] == what]


def flow(workers: list[Process], count: int = 10) -> None:
    """Each of them creates and deletes on."""
    had = {p.name: (len(said(p, "made")), len(said(p, "gone"))) for p in workers}

    def on(p: Process) -> bool:
        made, gone = had[p.name]
        return len(said(p, "made")) >= made + count and len(said(p, "gone")) > gone

    wait(lambda: all(map(on, workers)), lambda: f"no creates: {[p.lines()[-3:] for p in workers]}", PATIENCE_S)


def listed(cluster: Cluster, file: Path) -> dict[str, str]:
    """Tail → partition, of every aircraft: each is once in the copies of the active nodes, and has one entry there,
    which says where it is, where the ring of this file has it."""
    places = Places(load_config(file), lambda name: DEFAULT.info(name).parsed)
    info = DEFAULT.info(Aircraft)
    homes: list[tuple[bytes, str]] = []
    says: list[tuple[bytes, str]] = []
    for table in cluster.tables():
        assert table.active is not None
        for found in cluster.stored(table.active.node, table.name):
            key = object_key(found.key)
            if is_entry(found.key):
                says.append((key, unpacked(found.value).partition))
                routing_key = info.routing_key(info.decode_index_key(key))
                assert places.owner(info.name).partition(info.name, routing_key) == table.name, key
            else:
                homes.append((key, table.name))
    assert sorted(homes) == sorted(says)
    assert len({key for key, _ in homes}) == len(homes)
    return {str(info.decode_index_key(key)[0]): partition for key, partition in homes}


def judge(workers: list[Process], there: set[str]) -> None:
    """What was said to be made is there, but for what was deleted; what two tried to create was made once."""
    made = Counter(key for p in workers for key in said(p, "made"))
    gone = {key for p in workers for key in said(p, "gone")}
    ended = {key for p in workers for what in ("made", "exists", "gone") for key in said(p, what)}
    open_ = {key for p in workers for key in (*said(p, "doubt"), *_unanswered(p))}
    assert [key for key, n in made.items() if n > 1] == []
    assert there >= made.keys() - gone - open_, "lost"
    assert not there & (gone - open_), "deleted, and there"
    assert {key for key in there if not key.startswith("steady")} <= ended | open_, "never made"
    both = {key for key in ended if key.startswith("both")}
    assert both <= there | open_
    assert any(key in made for key in both)
    assert all(key in made or key in open_ for key in both), "exists, and nobody made it"


def _unanswered(process: Process) -> set[str]:
    """What it was at when it was killed."""
    at: dict[str, str] = {}
    for what, *words in map(str.split, process.lines()):
        if what in ("try", "drop"):
            at[words[0]] = what
        else:
            at.pop(words[0], None)
    return set(at)


def ended(workers: list[Process]) -> None:
    """They met nothing that must not be."""
    for process in workers:
        assert process.running, process.last_words()
        process.kill()
        assert said(process, "problem") == []


def test_objects_get_entries_and_lose_them_while_two_processes_use_them(make: Make) -> None:
    """From hashing to round robin, while the active node of some partitions is killed, and back."""
    cluster = make(every=2_000, keep=500)
    cluster.start()
    client = cluster.client()
    client.load([Aircraft(f"steady{i}", landings=1) for i in range(STEADY)])
    workers = [worker(cluster, name) for name in ("one", "two")]
    flow(workers)
    rounds = round_robin(cluster.configuration("rounds.toml"), move_objects=5)
    client.runtime.operators.rebalance("p", load_config(rounds))
    wait(lambda: begins(cluster, 1), "objects begin to get entries", PATIENCE_S)
    victim = cluster.table("p-0").active
    assert victim is not None
    cluster.kill(victim.node)
    wait(lambda: "changing" not in mapping(cluster), "every object has an entry", PATIENCE_S)
    cluster.start([victim.node])
    flow(workers)
    back = cluster.configuration("back.toml")
    client.runtime.operators.rebalance("p", load_config(back), wait_s=PATIENCE_S)
    flow(workers)
    ended(workers)
    cluster.whole(PATIENCE_S)
    wait(lambda: undecided(cluster) == 0, "something is in doubt", PATIENCE_S)
    check_places(cluster, back)
    with client.transaction():
        there = [a.tail for a in client.extent(Aircraft)]
    assert len(set(there)) == len(there)
    judge(workers, set(there))


@pytest.mark.long
def test_a_node_dies_and_the_ring_changes_while_two_processes_create_find_and_delete(make: Make) -> None:
    """The active node of some partitions is killed, then the ring changes and another node is killed in the middle of
    that. Nothing is lost or doubled, every key is found, and objects are spread evenly."""
    cluster = make(every=2_000, keep=500)
    round_robin(cluster.toml)
    cluster.start()
    client = cluster.client()
    client.load([Aircraft(f"steady{i}", landings=1) for i in range(STEADY)])
    workers = [worker(cluster, name) for name in ("one", "two")]
    flow(workers)
    first = cluster.table("p-0").active
    assert first is not None
    cluster.kill(first.node)
    flow(workers)
    cluster.start([first.node])
    cluster.whole(PATIENCE_S)
    ring = round_robin(cluster.configuration("ring.toml"), ring_size=3000, move_objects=5)
    client.runtime.operators.rebalance("p", load_config(ring))
    wait(lambda: begins(cluster, 1), "entries begin to move", PATIENCE_S)
    second = cluster.table("p-1").active
    assert second is not None
    cluster.kill(second.node)
    wait(lambda: "changing" not in mapping(cluster), "every entry is where the new ring has it", PATIENCE_S)
    cluster.start([second.node])
    flow(workers)
    ended(workers)
    cluster.whole(PATIENCE_S)
    wait(lambda: undecided(cluster) == 0, "something is in doubt", PATIENCE_S)
    homes = listed(cluster, ring)
    judge(workers, set(homes))
    for tail in homes:
        with client.transaction():
            assert client.get(Aircraft, tail).landings == 1
    with client.transaction():
        assert sorted(a.tail for a in client.extent(Aircraft)) == sorted(homes)
    counts = Counter(homes.values())
    assert max(counts.values()) <= 1.25 * len(homes) / len(cluster.partitions()), counts
