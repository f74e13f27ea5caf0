"""What each combination of durability policies survives: the table of docs/guides/durability.md, a test per cell (R6).

One cluster has a policy per combination; each event hits all of them at once, under load. Then every object whose
creation was acknowledged is looked for.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from halog.errors import HalogError
from halog.runtime.open import Node
from tests.faults.kinds import COMBINATIONS, KINDS, POLICIES, name_of
from tests.faults.power import Flushed
from tests.integration.cluster.harness import TOML, Cluster
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.feature("R6", "R1"), pytest.mark.timeout(300), pytest.mark.promise(1)]

EVENTS = ("process", "machine", "brokers")
FLOWS = 20
SETTLED_S = 60.0
DEADLINE_MS = 8_000
"""Nobody waits for a dead broker."""


class Cell:
    """What became of one combination."""

    def __init__(self, local: str, remote: str) -> None:
        self.kind, self.policy = KINDS[local, remote], name_of(local, remote)
        self.acknowledged: list[int] = []
        self.missing: set[int] = set()
        self.served = False
        self.stopped = ""
        """Why its copies do not go on."""


class Nine(Cluster):
    """Nodes A and B, one partition per combination, each with one sync replica."""

    def partitions(self) -> list[str]:
        return [f"{name_of(*c)}-0" for c in COMBINATIONS]

    def configuration(self, file: str, **changed: object) -> Path:
        text = TOML.format(**{**self.values, **changed})
        head, tail = text[: text.index("[policies.p]")], text[text.index("[timing]") :]
        policies = "".join(
            f'[policies.{name_of(*c)}]\nzone = "home"\npartitions = 1\nsync_replicas = 1\n'
            f'local_sync = "{c[0]}"\nremote_sync = "{c[1]}"\n'
            for c in COMBINATIONS
        )
        bindings = "[bindings]\n" + "".join(f'{name_of(*c)} = "{name_of(*c)}"\n' for c in COMBINATIONS)
        nodes = "".join(f'[nodes.{n}]\ndata_dir = "{n}"\n' for n in self.nodes)
        path = self.directory / file
        path.write_text(head + policies + bindings + tail + nodes)
        return path


class Writers:
    """One per combination: creates objects 1, 2, … one after the other until it is told to stop."""

    def __init__(self, node: Node, cells: dict[tuple[str, str], Cell]) -> None:
        self.node, self.cells = node, cells
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(cell,)) for cell in cells.values()]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, cell: Cell) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                with self.node.transaction():
                    self.node.create(cell.kind(number=number))
            except HalogError:  # nothing was acknowledged
                self._stop.wait(0.05)
            else:
                cell.acknowledged.append(number)
                self._stop.wait(0.002)

    def flow(self) -> None:
        """Each has gone on."""
        goals = {c: len(cell.acknowledged) + FLOWS for c, cell in self.cells.items()}
        wait(lambda: all(len(self.cells[c].acknowledged) >= goal for c, goal in goals.items()), "all go on", SETTLED_S)


def look(cluster: Cluster, cell: Cell) -> None:
    """What of it is there, and what its copies said."""
    said = "".join(cluster.log_of(node) for node in cluster.nodes).splitlines()
    cell.stopped = next((line for line in said if f"partition {cell.policy}-0 stops: " in line), "")
    node = cluster.client()
    with suppress(HalogError), node.transaction():
        cell.missing = set(cell.acknowledged) - {o.number for o in node.extent(cell.kind)}
        cell.served = True


Cells = dict[tuple[str, str], Cell]


class Table:
    """The cells, filled by playing each event once, when the first test asks for it."""

    def __init__(self, directory: Callable[[str], Path]) -> None:
        self._directory = directory
        self._played: dict[str, Cells] = {}

    def cell(self, local: str, remote: str, event: str) -> Cell:
        if event not in self._played:
            play = {"process": self._nodes_die, "machine": self._nodes_die, "brokers": self._brokers_die}[event]
            self._played[event] = play(self._directory(event), event)
        return self._played[event][local, remote]

    def _nodes_die(self, directory: Path, event: str) -> Cells:
        site = EmbeddedSite(directory / "site")
        with site:
            return self._under_load(site, directory, lambda cluster, writers: _kill_both(cluster, writers, event))

    def _brokers_die(self, directory: Path, event: str) -> Cells:
        flushed = Flushed(directory)
        site = EmbeddedSite(directory / "site")
        with flushed.noted():
            site.start()
        try:
            return self._under_load(
                site, directory, lambda cluster, writers: _no_power(site, flushed, cluster, writers)
            )
        finally:
            site.stop()

    def _under_load(self, site: EmbeddedSite, directory: Path, play: Callable[[Nine, Writers], None]) -> Cells:
        cells = {c: Cell(*c) for c in COMBINATIONS}
        cluster = Nine(directory, site, nodes="AB", module="tests.faults.kinds", deadline_ms=DEADLINE_MS)
        try:
            cluster.start()
            cluster.whole()
            with Writers(cluster.client(), cells) as writers:
                play(cluster, writers)
            for cell in cells.values():
                look(cluster, cell)
        finally:
            cluster.close()
        return cells


def _kill_both(cluster: Nine, writers: Writers, event: str) -> None:
    """One after the other; a machine takes what it stored with it."""
    for victim in "AB":
        writers.flow()
        cluster.kill(victim)
        if event == "machine":
            shutil.rmtree(cluster.directory / victim)
        writers.flow()
        cluster.start([victim])
        cluster.whole()


def _no_power(site: EmbeddedSite, flushed: Flushed, cluster: Nine, writers: Writers) -> None:
    """All brokers at once: here there is one."""
    writers.flow()
    writers.flow()
    site.kill("kafka")
    lost = flushed.lose_power(site.data_dir / "kafka" / "data", cluster.name)
    for (local, _), cell in writers.cells.items():  # what was on its way may be cut everywhere
        assert local == "SYNC" or lost[f"{cluster.name}.{cell.policy}.log-0"] > 1_000, (
            f"{cell.policy}: too little was lost"
        )
    assert lost[f"{cluster.name}.schemas-0"] == 0, "without it nobody could read what is left"
    site.start_server("kafka")
    for (local, _), cell in writers.cells.items():
        if local == "SYNC":
            before = len(cell.acknowledged)
            wait(lambda cell=cell, before=before: len(cell.acknowledged) > before, f"{cell.policy} goes on", SETTLED_S)
    passes(3)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp)


def survives(local: str, event: str) -> bool:
    """The table of docs/guides/durability.md. A sync replica has what the active node had, whatever the log did; only
    the log itself can lose what all of them rely on."""
    return event != "brokers" or local == "SYNC"


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("remote", POLICIES)
@pytest.mark.parametrize("local", POLICIES)
def test_survives(table: Table, local: str, remote: str, event: str) -> None:
    cell = table.cell(local, remote, event)
    assert len(cell.acknowledged) >= 2 * FLOWS
    assert not cell.missing, "nothing is missing silently, whatever is promised"
    if survives(local, event):
        assert cell.served
    else:
        assert not cell.served
        assert "nothing was deleted here" in cell.stopped
