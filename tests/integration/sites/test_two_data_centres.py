"""The manual's scenario over two real sites: A on One, Two and Four, B on Three, Four and Two, over two data centres;
either one takes over what the other has lost, and what both have done becomes one history (M5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import Cluster, unique_name
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import halog
from tests.integration.sites.test_taking_over import command
from tests.integration.sites.two import EAST, WEST, Between

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "M2", "P3")]

POLICIES = """
[zones.dr]
nodes = {dr}
[policies.a]
kind = "static"
zone = "dr"
home = "{north}"
[policies.a.partitions]
A = {a}
[policies.b]
kind = "static"
zone = "dr"
home = "{south}"
[policies.b.partitions]
B = {b}
[policies.c]
kind = "static"
zone = "home"
[policies.c.partitions]
C = {c}
[bindings]
Aircraft = "a"
Flight = "b"
"""


class Centre(Cluster):
    """A data centre: its nodes, and which of them have A and B, which are in the zone for disasters, and C, which is of
    this centre alone."""

    def __init__(
        self, directory: Path, between: Between, name: str, here: str, there: str, **lists: tuple[str, ...]
    ) -> None:
        self._lists = {**lists, "dr": tuple(dict.fromkeys(lists["a"] + lists["b"]))}
        directory.mkdir()
        nodes = dict.fromkeys(node for listed in lists.values() for node in listed)
        super().__init__(
            directory,
            between.sites[here].site,
            name=name,
            nodes=tuple(nodes),
            site_name=here,
            other_sites={there: between.sites[there].from_afar},
        )

    def configuration(self, file: str, **changed: object) -> Path:
        path = super().configuration(file, **changed)
        before, _, rest = path.read_text().partition("[policies.p]")
        _, _, behind = rest.partition("[timing]")
        lists = {name: str(list(nodes)).replace("'", '"') for name, nodes in self._lists.items()}
        path.write_text(f"{before}{POLICIES.format(north=WEST, south=EAST, **lists)}[timing]{behind}")
        return path

    def partitions(self) -> list[str]:
        return ["A", "B", "C"]

    def serves(self) -> dict[str, str]:
        """By partition, the active node, of those that are served here."""
        return {t.name: t.active.node for t in self.tables() if t.active is not None and not t.owner}

    def lost(self) -> None:
        """Its nodes and its servers, at once."""
        self.forget()
        for node in self.nodes:
            self.kill(node)
        for server in ("kafka", "zookeeper"):
            self.site.kill(server)

    def back(self) -> None:
        for server in ("zookeeper", "kafka"):
            self.site.start_server(server)
        self.start()


@pytest.fixture
def centres(between: Between, tmp_path: Path) -> Iterator[tuple[Centre, Centre]]:
    """North and South. Their nodes start at the same time: each waits for what begins at the other one."""
    name = unique_name()
    north = Centre(tmp_path / "north", between, name, WEST, EAST, a=("One", "Two"), b=("Two",), c=("One",))
    south = Centre(tmp_path / "south", between, name, EAST, WEST, a=("Four",), b=("Three", "Four"), c=("Five",))
    try:
        for centre in (north, south):
            for node in centre.nodes:
                centre.launch(node)
        for centre in (north, south):
            for node in centre.nodes:
                centre.processes[node].ready()
        yield north, south
    finally:
        between.heal()
        for centre in (north, south):
            centre.close()


def put(centre: Centre, kind: type, *names: str) -> None:
    node = centre.client()
    for name in names:
        with node.transaction() as tx:
            tx.create(kind(name) if kind is Aircraft else kind(name, 1))


def kept(centre: Centre, kind: type) -> set[str]:
    """Where it is served."""
    with centre.client().transaction() as tx:
        return {found.tail for found in tx.extent(kind)}


def level(north: Centre, south: Centre) -> None:
    """A on One, Two and Four, and B on Three, Four and Two, are the same history each."""

    def heads(partition: str) -> set[tuple[int, str] | None]:
        found = set[tuple[int, str] | None]()
        for centre in (north, south):
            for node in centre.table(partition).configured:
                copy = centre.copies(node).get(partition)
                found.add((copy["lsn"], copy["hash"]) if copy else None)
        return found

    wait(
        lambda: all(len(heads(p)) == 1 and None not in heads(p) for p in "AB"), lambda: f"{heads('A')} {heads('B')}", 60
    )


def serves(centre: Centre, **active: str) -> None:
    wait(lambda: centre.serves() == active, lambda: f"{centre.serves()} is not {active}", 60)


def begin(north: Centre, south: Centre) -> None:
    wait(lambda: len(north.serves()) + len(south.serves()) == 4, "everything is served")
    north.lead("A", "One"), south.lead("B", "Three")
    serves(north, A="One", C="One"), serves(south, B="Three", C="Five")
    level(north, south)


@pytest.mark.long
def test_either_centre_takes_over_what_the_other_one_has_lost(centres: tuple[Centre, Centre]) -> None:
    north, south = centres
    begin(north, south)
    assert (north.table("A").configured, south.table("A").configured) == (("One", "Two"), ("Four",))
    assert (south.table("B").configured, north.table("B").configured) == (("Three", "Four"), ("Two",))
    put(north, Aircraft, "a1"), put(south, Flight, "b1")
    level(north, south)

    north.lost()
    command(south, "promote", "--may-fork", "--cluster", south.name)
    serves(south, A="Four", B="Three", C="Five")
    assert kept(south, Aircraft) == {"a1"}
    put(south, Aircraft, "a2"), put(south, Flight, "b2")
    north.back()
    level(north, south)
    command(north, "promote", "--partition", "A")
    serves(north, A="One", C="One"), serves(south, B="Three", C="Five")

    south.lost()
    command(north, "promote", "--may-fork", "--cluster", north.name)
    serves(north, A="One", B="Two", C="One")
    assert kept(north, Flight) == {"b1", "b2"}
    put(north, Aircraft, "a3"), put(north, Flight, "b3")
    south.back()
    level(north, south)
    command(south, "promote", "--partition", "B")
    serves(north, A="One", C="One"), serves(south, B="Three", C="Five")
    assert (kept(north, Aircraft), kept(south, Flight)) == ({"a1", "a2", "a3"}, {"b1", "b2", "b3"})


@pytest.mark.long
def test_what_both_centres_have_done_while_the_line_was_down_becomes_one(
    centres: tuple[Centre, Centre], between: Between
) -> None:
    """Each is the source of what begins there, and the initiating one of the other."""
    north, south = centres
    begin(north, south)
    between.cut()
    (
        command(north, "promote", "--may-fork", "--cluster", north.name),
        command(south, "promote", "--may-fork", "--cluster", south.name),
    )
    serves(north, A="One", B="Two", C="One"), serves(south, A="Four", B="Three", C="Five")
    for centre, name in ((north, "n"), (south, "s")):
        put(centre, Aircraft, name, "both"), put(centre, Flight, name, "both")
    between.heal()
    told = halog(south, "restore", "--source", WEST, "--partition", "A")
    told += halog(north, "restore", "--source", EAST, "--partition", "B")
    done = {(d["partition"], d["phase"], sum(d["conflicts"].values())) for d in told}
    assert done == {("A", "done", 2), ("B", "done", 2)}
    serves(north, A="One", C="One"), serves(south, B="Three", C="Five")
    level(north, south)
    assert (kept(north, Aircraft), kept(south, Flight)) == ({"n", "s", "both"}, {"n", "s", "both"})
