"""Two real data centres that go by one file, but for [site]: the zone for disasters spans them, the manual's node lists
stand in it as they are, and each centre shows the whole zone, and what it does not see of it (M5, P5)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import unique_name
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import argv_of
from tests.integration.sites.test_taking_over import command
from tests.integration.sites.test_two_data_centres import Centre, kept, level, put, serves
from tests.integration.sites.two import EAST, WEST, Between

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "P5", "O1")]

NODES = {"One": WEST, "Two": WEST, "Three": EAST, "Four": EAST}
SHARED = f"""
[zones.north]
nodes = ["One", "Two"]
[zones.dr]
nodes = ["*"]
[policies.a]
kind = "static"
zone = "dr"
home = "{WEST}"
[policies.a.partitions]
A = ["One", "Two", "Four"]
[policies.b]
kind = "static"
zone = "dr"
home = "{EAST}"
[policies.b.partitions]
B = ["Three", "Four", "Two"]
[policies.c]
kind = "static"
zone = "north"
[policies.c.partitions]
C = ["One"]
[bindings]
Aircraft = "a"
Flight = "b"
""" + "".join(f'[nodes.{n}]\ndata_dir = "{n}"\nsite = "{site}"\n' for n, site in NODES.items())


class Sharing(Centre):
    """A data centre whose file is the other one's, but for how servers are reached."""

    def configuration(self, file: str, **changed: object) -> Path:
        path = super().configuration(file, **changed)
        before, _, rest = path.read_text().replace("requests = false\n", "").partition("[zones.home]")
        timing = rest.partition("[timing]")[2].partition("[nodes.")[0]
        path.write_text(f"{before}{SHARED}[timing]{timing}")
        return path

    def partitions(self) -> list[str]:
        return ["A", "B", "C"] if "One" in self.nodes else ["A", "B"]


def ran(centre: Sharing, *args: str) -> subprocess.CompletedProcess[str]:
    return forked.run(argv_of(centre, *args)[2:], timeout=120)


@pytest.fixture
def sharing(between: Between, tmp_path: Path) -> Iterator[tuple[Sharing, Sharing]]:
    name = unique_name()
    north = Sharing(tmp_path / "north", between, name, WEST, EAST, a=("One", "Two"), b=("Two",), c=("One",))
    south = Sharing(tmp_path / "south", between, name, EAST, WEST, a=("Four",), b=("Three", "Four"), c=())
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


def sees(centre: Sharing, wanted: dict[str, tuple[str, str]], code: int = 0) -> dict[str, Any]:
    """What is told of the zone, with this exit code, once its nodes are (site, state) as said."""
    told: dict[str, Any] = {}

    def so() -> bool:
        done = ran(centre, "zone", "show", "dr")
        told.clear()
        told.update(json.loads(done.stdout) if done.stdout else {})
        seen = {n["node"]: (n["site"], n["state"]) for n in told.get("nodes", ())}
        return (done.returncode, seen) == (code, wanted)

    wait(so, lambda: f"{told} is not {wanted}", 90)
    return told


@pytest.mark.long
def test_a_zone_spans_both_centres_and_either_takes_over(sharing: tuple[Sharing, Sharing]) -> None:
    north, south = sharing
    wait(lambda: len(north.serves()) + len(south.serves()) == 3, "everything is served")
    north.lead("A", "One"), south.lead("B", "Three")
    serves(north, A="One", C="One"), serves(south, B="Three")
    assert (north.table("A").configured, south.table("A").configured) == (("One", "Two"), ("Four",))
    assert (south.table("B").configured, north.table("B").configured) == (("Three", "Four"), ("Two",))
    put(north, Aircraft, "a1"), put(south, Flight, "b1")
    level(north, south)
    for centre in (north, south):
        sees(centre, {node: (site, "active") for node, site in NODES.items()})
    wrong = ran(south, "node", "start", "--name", "One")
    assert (wrong.returncode, "node One is of site west, and this is site east" in wrong.stderr) == (2, True), wrong

    north.lost()
    told = sees(south, {n: (site, "unknown" if site == WEST else "active") for n, site in NODES.items()}, 4)
    assert (told["state"], told["sites"][1]["why"].startswith("cannot be reached")) == ("partial", True), told
    command(south, "promote", "--may-fork", "--cluster", south.name)
    serves(south, A="Four", B="Three")
    assert kept(south, Aircraft) == {"a1"}
    put(south, Aircraft, "a2")
    north.back()
    level(north, south)
    command(north, "promote", "--partition", "A")
    serves(north, A="One", C="One"), serves(south, B="Three")
    assert kept(north, Aircraft) == {"a1", "a2"}
