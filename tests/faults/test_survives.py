"""What each combination of durability policies survives: the table of docs/guides/durability.md, a test per cell (R6).

One cluster has a policy per combination; each event hits all of them at once, under load. Then everything that was
acknowledged is looked for: in the log, by a reader of its own; in the copies; and by a client.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from tests.faults.kinds import COMBINATIONS, POLICIES
from tests.faults.mesh import Mesh
from tests.faults.power import Flushed
from tests.faults.scene import active
from tests.faults.survival import FLOWS, SETTLED_S, Cell, Cells, Nine, Writers, look
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.feature("R6", "R1"), pytest.mark.timeout(300), pytest.mark.promise(1)]

EVENTS = ("process", "machine", "nodes", "brokers", "power")
DEADLINE_MS = 8_000
"""Nobody waits for a dead broker."""
FLUSH_MS = 60_000
"""Nodes flush their stores by themselves after this time: not during an event."""
UNWAITED = ("NO_SYNC", "NO_SYNC")
"""The combination whose commits wait neither for the log nor for who has read it there."""


class Fate(Enum):
    """Of what was acknowledged."""

    SERVED = "the log has all of it, and so has whoever asks"
    KEPT = "the log lacks some, which a node's own copy holds: for an operator to decide on"
    LOST = "some of it is nowhere"


def fate(local: str, remote: str, event: str) -> Fate:
    """The table of docs/guides/durability.md."""
    if event == "nodes":
        return Fate.LOST if (local, remote) == UNWAITED else Fate.SERVED
    if local == "SYNC" or event in ("process", "machine"):
        return Fate.SERVED
    return Fate.KEPT if event == "brokers" or remote == "SYNC" else Fate.LOST


class Table:
    """The cells, filled by playing each event once, when the first test asks for it."""

    def __init__(self, directory: Callable[[str], Path]) -> None:
        self._directory = directory
        self._played: dict[str, Cells] = {}

    def cell(self, local: str, remote: str, event: str) -> Cell:
        if event not in self._played:
            play = self._power_fails if event in ("brokers", "power") else self._nodes_die
            self._played[event] = play(self._directory(event), event)
        return self._played[event][local, remote]

    def _nodes_die(self, directory: Path, event: str) -> Cells:
        cells = {c: Cell(*c) for c in COMBINATIONS}
        site = EmbeddedSite(directory / "site")
        with site, closing(_nine(directory, site)) as cluster, closing(Mesh(cluster)) as mesh:
            mesh.start()
            with Writers(cluster.client(), cells) as writers:
                for _ in range(1 if event == "nodes" else 2):
                    _die(mesh, writers, event)
            look(cluster, cells)
        return cells

    def _power_fails(self, directory: Path, event: str) -> Cells:
        flushed, cells = Flushed(directory), {c: Cell(*c) for c in COMBINATIONS}
        site = EmbeddedSite(directory / "site")
        try:
            with flushed.noted():
                site.start()
            with closing(_nine(directory, site)) as cluster:
                cluster.timed(store_flush_ms=FLUSH_MS)
                with pytest.MonkeyPatch.context() as env, flushed.preloaded(env):
                    cluster.start()
                cluster.whole()
                with Writers(cluster.client(), cells) as writers:
                    _no_power(flushed, cluster, writers, event)
                look(cluster, cells)
        finally:
            site.stop()
        return cells


def _nine(directory: Path, site: EmbeddedSite) -> Nine:
    return Nine(directory, site, nodes="AB", module="tests.faults.kinds", deadline_ms=DEADLINE_MS)


def _die(mesh: Mesh, writers: Writers, event: str) -> None:
    """The node that is active for the commits that wait for nobody; it has not reached the log for a while, so that
    the log lacks some of them for sure. Its machine takes what it stored with it; with `nodes` the replica dies too."""
    cluster, cell = mesh.cluster, writers.cells[UNWAITED]
    writers.flow()
    victim = active(cluster, cell.partition)
    mesh.kafka[victim].cut()
    writers.flow([cell])
    cell.lacked.append(len(cell.not_in_log(cluster)))
    dying = list("AB") if event == "nodes" else [victim]
    _kill_at_once(cluster, dying)
    if event == "machine":
        shutil.rmtree(cluster.directory / victim)
    mesh.heal()
    if event != "nodes":
        writers.flow()
    for name in dying:
        cluster.launch(name, mesh.toml(name))
    for name in dying:
        cluster.processes[name].ready()
    cluster.whole()
    writers.flow()


def _kill_at_once(cluster: Nine, names: Sequence[str]) -> None:
    for name in names:
        cluster.processes[name].signal(signal.SIGKILL)
    for name in names:
        cluster.kill(name)


def _no_power(flushed: Flushed, cluster: Nine, writers: Writers, event: str) -> None:
    """All brokers at once: here there is one; with `power` the nodes too. A node has one store, so whoever flushes it
    does so for all: those stop before, and the others go on. What the log never had is not what it loses."""
    site, cells = cluster.site, list(writers.cells.values())
    assert isinstance(site, EmbeddedSite)
    writers.flow()
    if event == "power":
        writers.stop([c for c in cells if c.remote == "SYNC"])
    writers.flow()
    if event == "power":
        writers.stop(cells)
        _kill_at_once(cluster, cluster.nodes)
    else:
        unwaited = writers.cells[UNWAITED]
        writers.stop([unwaited])
        wait(lambda: not unwaited.not_in_log(cluster), "the log has what it was not waited for", SETTLED_S)
    site.kill("kafka")
    lost = flushed.lose_power(site.data_dir / "kafka" / "data", cluster.name)
    for cell in cells:  # what was on its way may be cut everywhere
        assert cell.local == "SYNC" or lost[f"{cluster.name}.{cell.policy}.log-0"] > 1_000, f"{cell.policy}: too little"
    assert lost[f"{cluster.name}.schemas-0"] == 0, "without it nobody could read what is left"
    if event == "power":
        stored = flushed.cut(f for node in cluster.nodes for f in (cluster.directory / node).rglob("*.log"))
        assert all(size > 500 for size in stored.values()), "nothing was lost of a node's store: this shows nothing"
    site.start_server("kafka")
    if event == "power":
        cluster.start()
    else:
        for cell in cells:
            before = len(cell.acknowledged)
            if cell.local == "SYNC":
                wait(lambda c=cell, n=before: len(c.acknowledged) > n, f"{cell.policy} goes on", SETTLED_S)
    passes(3)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("remote", POLICIES)
@pytest.mark.parametrize("local", POLICIES)
def test_survives(table: Table, local: str, remote: str, event: str) -> None:
    cell, expected = table.cell(local, remote, event), fate(local, remote, event)
    assert len(cell.acknowledged) >= FLOWS
    assert all(cell.lacked), "the log had everything at a kill: this shows nothing"
    if expected is Fate.SERVED:
        assert cell.missing == set()
        assert cell.gone == set()
        return
    assert cell.gone, "the log has all of it: the table promises too little"
    if expected is Fate.KEPT:
        assert cell.kept >= cell.last
    else:
        assert cell.kept < cell.last
    if event == "brokers":
        assert cell.missing is None, "nothing is missing silently while somebody holds it"
    if event == "nodes":
        assert cell.missing == cell.gone, "whoever asks is served, from what the log has"
