"""What each combination of durability policies survives: the table of docs/guides/durability.md, a test per cell (R6).

One cluster has a policy per combination; each event hits all of them at once, under load. Then everything that was
acknowledged is looked for: in the log, by a reader of its own; in the copies; and by a client. Whose commits do not
wait for the log has some that it lacks at that very moment: nothing is waited for that would make an event harmless.
"""

from __future__ import annotations

import shutil
import signal
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from tests.faults.fates import EVENTS, Fate, fate
from tests.faults.kinds import COMBINATIONS, POLICIES
from tests.faults.mesh import Mesh
from tests.faults.power import Flushed
from tests.faults.scene import active, replica
from tests.faults.survival import FLOWS, SETTLED_S, Cell, Cells, Nine, Writers, ask, lacking, look
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_sync_policies import on_disk

pytestmark = [pytest.mark.feature("R6", "R1"), pytest.mark.timeout(300), pytest.mark.promise(1)]

QUICK = ("nodes", "outage")
"""Played in half a minute: what nobody can append again, and what the nodes have to."""
DEADLINE_MS = 8_000
"""Nobody waits for a dead broker."""
FLUSH_MS = 60_000
"""Nodes flush their stores by themselves after this time: not during an event."""
STAY_MS = 600_000
"""Nobody takes a role back meanwhile: each node is killed while it has it."""
MOMENTS = 5


class Table:
    """The cells, filled by playing each event once, when the first test asks for it."""

    def __init__(self, directory: Callable[[str], Path]) -> None:
        self._directory = directory
        self._played: dict[str, Cells] = {}

    def cell(self, local: str, remote: str, event: str) -> Cell:
        if event not in self._played:
            play = self._power_fails if event in ("brokers", "power") else self._processes_die
            self._played[event] = play(self._directory(event), event)
        return self._played[event][local, remote]

    def _processes_die(self, directory: Path, event: str) -> Cells:
        cells = {c: Cell(*c) for c in COMBINATIONS}
        site = EmbeddedSite(directory / "site")
        with site, closing(_nine(directory, site)) as cluster, closing(Mesh(cluster)) as mesh:
            mesh.start()
            with Writers(cluster.client(), cells) as writers:
                if event == "outage":
                    _brokers_die(site, writers)
                else:
                    for dying in ["AB"] if event == "nodes" else ["A", "B"]:
                        _die(mesh, writers, event, dying)
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
                topics = _Topics(cluster, site, directory / "topics")
                with pytest.MonkeyPatch.context() as env, flushed.preloaded(env):
                    cluster.start()
                    cluster.whole()
                    with Writers(cluster.client(), cells) as writers:
                        if event == "brokers":
                            _brokers_lose_power(flushed, topics, writers)
                        else:
                            _all_lose_power(flushed, topics, writers)
                    look(cluster, cells)
                    topics.put_back()
                    for cell, missing in ask(cluster, cells).items():
                        cell.missing_at_last = missing
        finally:
            site.stop()
        return cells


def _nine(directory: Path, site: EmbeddedSite) -> Nine:
    module = "tests.faults.kinds"
    return Nine(directory, site, nodes="AB", module=module, deadline_ms=DEADLINE_MS, stay_ms=STAY_MS)


# --- nodes ---


def _die(mesh: Mesh, writers: Writers, event: str, dying: str) -> None:
    """These nodes are killed. If one of them is active for commits that do not wait for the log, it has not reached it
    for a while: that lacks some of them for sure. A machine takes what it stored with it: the replica's, which has
    stored them, stays."""
    cluster = mesh.cluster
    writers.flow()
    leads = {cell.policy: active(cluster, cell.partition) for cell in writers.early}
    early = [cell for cell in writers.early if leads[cell.policy] in dying]
    for name in {leads[cell.policy] for cell in early}:
        mesh.kafka[name].cut()
    writers.flow(early)
    lacking(cluster, early)
    for cell in writers.cells.values():
        cell.lost_active += active(cluster, cell.partition) in dying
    _kill_at_once(cluster, dying)
    if event == "machine":
        for name in dying:
            shutil.rmtree(cluster.directory / name)
    mesh.heal()
    if event != "nodes":
        writers.flow()
    for name in dying:
        cluster.launch(name, mesh.toml(name))
    for name in dying:
        cluster.processes[name].ready()
    cluster.whole()
    writers.flow()


def _kill_at_once(cluster: Cluster, names: Sequence[str]) -> None:
    for name in names:
        cluster.processes[name].signal(signal.SIGKILL)
    for name in names:
        cluster.kill(name)


def _brokers_die(site: EmbeddedSite, writers: Writers) -> None:
    """All at once, while the nodes live on. What brokers were given their operating system has, the rest the nodes."""
    writers.flow()
    _acknowledged_in_memory(site, writers)
    site.kill("kafka")
    site.start_server("kafka")
    writers.flow()


def _acknowledged_in_memory(site: EmbeddedSite, writers: Writers) -> None:
    """The broker takes nothing from now on: what is acknowledged meanwhile it does not have."""
    site.pause("kafka")
    early = writers.early
    before = {cell.policy: len(cell.acknowledged) for cell in early}
    writers.flow(early)
    for cell in early:
        cell.lacked.append(len(cell.acknowledged) - before[cell.policy])


# --- power ---


class _Topics:
    """The log topics of a cluster on its only broker's disk, and a copy of them from before they were cut."""

    def __init__(self, cluster: Nine, site: EmbeddedSite, saved: Path) -> None:
        self.cluster = cluster
        self.site = site
        self._saved = saved
        self._data = site.data_dir / "kafka" / "data"
        self._cut: list[str] = []

    def lose_power(self, flushed: Flushed, cells: Sequence[Cell]) -> None:
        """All brokers at once: here there is one. What it had not flushed is cut off."""
        name = self.cluster.name
        self.site.kill("kafka")
        for topic in self._data.glob(f"{name}.*log-0"):  # it makes indexes anew
            shutil.copytree(topic, self._saved / topic.name, ignore=shutil.ignore_patterns("*index"))
        lost = flushed.lose_power(self._data, name)
        for cell in cells:
            if cell.local != "SYNC":
                self._cut.append(f"{name}.{cell.policy}.log-0")
                assert lost[self._cut[-1]] > 1_000, f"{cell.policy}: too little"
        assert lost[f"{name}.schemas-0"] == 0, "without it nobody could read what is left"

    def put_back(self) -> None:
        """As an operator would who has a copy: the nodes are opened again behind it."""
        _kill_at_once(self.cluster, self.cluster.nodes)
        self.site.kill("kafka")
        for topic in self._cut:
            shutil.rmtree(self._data / topic)
            shutil.copytree(self._saved / topic, self._data / topic)
        self.site.start_server("kafka")
        self.cluster.whole()


def _brokers_lose_power(flushed: Flushed, topics: _Topics, writers: Writers) -> None:
    """While all go on. Some of what was acknowledged the broker never had."""
    cells = list(writers.cells.values())
    writers.flow()
    _acknowledged_in_memory(topics.site, writers)
    topics.lose_power(flushed, cells)
    topics.site.start_server("kafka")
    for cell in cells:
        before = len(cell.acknowledged)
        if cell.local == "SYNC":
            wait(lambda c=cell, n=before: len(c.acknowledged) > n, f"{cell.policy} goes on", SETTLED_S)  # type: ignore[misc]
    passes(3)


def _all_lose_power(flushed: Flushed, topics: _Topics, writers: Writers) -> None:
    """The nodes, too. A node has one store, and whoever flushes it does so for all: what a disk has of theirs is looked
    at in the middle of the load, then they stop, and the others go on until they are killed. Whose commits do not wait
    for the log are looked at while that lacks them."""
    cluster, cells = topics.cluster, list(writers.cells.values())
    flushing = [cell for cell in cells if cell.remote == "SYNC"]
    writers.flow()
    _look_at_disks(flushed, cluster, [cell for cell in flushing if not cell.is_early])
    _acknowledged_in_memory(topics.site, writers)
    moments = _moments(flushed, [cell for cell in flushing if cell.is_early])
    topics.site.resume("kafka")
    _look_back(flushed, cluster, moments)
    writers.stop(flushing)
    writers.flow()
    _acknowledged_in_memory(topics.site, writers)
    _kill_at_once(cluster, cluster.nodes)
    topics.lose_power(flushed, cells)
    writers.stop(cells)
    stored = flushed.cut(f for node in cluster.nodes for f in (cluster.directory / node).rglob("*.log"))
    assert all(size > 500 for size in stored.values()), "nothing was lost of a node's store: this shows nothing"
    flushed.started_again()
    topics.site.start_server("kafka")
    cluster.start()
    passes(3)


Moment = tuple[dict[Cell, int], dict[Path, int]]
"""The last lsn acknowledged of each, and how much of each file was on a disk then or a little later."""


def _look_at_disks(flushed: Flushed, cluster: Nine, cells: Sequence[Cell]) -> None:
    """What would the replicas' disks have if they lost power at this moment, or at that one?"""
    _look_back(flushed, cluster, _moments(flushed, cells))


def _moments(flushed: Flushed, cells: Sequence[Cell]) -> list[Moment]:
    moments = []
    for _ in range(MOMENTS):
        told = {cell: cell.last for cell in cells}
        moments.append((told, flushed.sizes()))
        passes(0.1)
    return moments


def _look_back(flushed: Flushed, cluster: Nine, moments: Sequence[Moment]) -> None:
    for told, sizes in moments:
        shadows = cluster.directory / f"moment-{uuid.uuid4().hex}"
        for node in cluster.nodes:
            flushed.shadow(cluster.directory / node, shadows / node, sizes)
        for cell in told:
            stored = on_disk(cluster, replica(cluster, "sync", cell.partition), cell.partition, shadows)
            cell.moments.append((told[cell], stored))


# --- the cells ---


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp)


@pytest.mark.parametrize("event", [pytest.param(e, marks=pytest.mark.quick_fault) if e in QUICK else e for e in EVENTS])
@pytest.mark.parametrize("remote", POLICIES)
@pytest.mark.parametrize("local", POLICIES)
def test_survives(table: Table, local: str, remote: str, event: str) -> None:
    cell, expected = table.cell(local, remote, event), fate(local, remote, event)
    _shows_something(cell, event)
    if event == "power" and remote == "SYNC":
        assert len(cell.moments) == MOMENTS
        assert all(stored >= told > 0 for told, stored in cell.moments), "acknowledged, and not on the replica's disk"
    if event == "brokers" or (event == "power" and (remote == "SYNC" or not cell.is_early)):
        assert cell.missing_at_last == set(), "the topics were put back, and what they never had was appended"
    if cell.is_early:
        _stands_for_what_it_has(cell, event)
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


def _stands_for_what_it_has(cell: Cell, event: str) -> None:
    """It is told that something may be lost where a node that was started anew has not stored what it acknowledged, or
    its machine may not have; nobody goes on in silence."""
    if event == "power":
        assert cell.given_up or cell.stopped
        return
    assert cell.given_up == (event == "nodes" and cell.remote == "NO_SYNC")


def _shows_something(cell: Cell, event: str) -> None:
    assert len(cell.acknowledged) >= FLOWS
    if event in ("process", "machine", "nodes"):
        assert cell.lost_active, "its active node was never killed: this shows nothing"
    if cell.is_early:
        assert cell.lacked, "the log was never away: this shows nothing"
        assert all(cell.lacked), "the log had everything: this shows nothing"
