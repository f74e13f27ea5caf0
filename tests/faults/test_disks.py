"""Disks whose reads or writes fail, or that take their time: of a node's store, and of the broker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from tests.faults.clients import Clients
from tests.faults.conftest import MODULE
from tests.faults.judge import judge
from tests.faults.power import java_under, preloadable
from tests.faults.scene import SERVES_AGAIN_S, active, complete, epochs, replaced, replica
from tests.faults.test_machines import unwell
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes, wait

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.feature("P10", "R1", "R6"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

READS, WRITES, FLUSHES, HITS = range(4)
"""The bytes of what `disk.c` looks at."""
SLOW = 10
"""Hundredths of a second; an append has fifty times as long."""


class Disk:
    """What holds the files below a directory, for the processes that are started under it."""

    def __init__(self, directory: Path, below: Path) -> None:
        directory.mkdir()
        self.library = preloadable("disk.c", directory)
        self._state = directory / "disk"
        self._state.write_bytes(bytes(HITS + 1))
        self.names = {"HALOG_DISK": str(self._state), "HALOG_DISK_BELOW": f"{below}/"}

    def goes(self, what: int, value: int = 1) -> None:
        """Wrong in this way, or with 0 well again."""
        with self._state.open("r+b") as out:
            os.pwrite(out.fileno(), bytes([value]), what)

    @property
    def was_met(self) -> bool:
        """Has a process met what is wrong?"""
        return self._state.read_bytes()[HITS] > 0

    @contextmanager
    def under(self) -> Iterator[None]:
        """Node processes started now."""
        with pytest.MonkeyPatch.context() as env:
            env.setenv("LD_PRELOAD", str(self.library))
            for name, value in self.names.items():
                env.setenv(name, value)
            yield


@pytest.fixture
def disks(make: Make, tmp_path: Path) -> tuple[Cluster, dict[str, Disk]]:
    """A cluster that is whole, and the disk of each of its nodes."""
    cluster = make(partitions=3, module=MODULE)
    found = {name: Disk(tmp_path / f"disk-{name}", cluster.directory / name) for name in cluster.nodes}
    for name, disk in found.items():
        with disk.under():
            cluster.launch(name)
    for name in found:
        cluster.processes[name].ready()
    cluster.whole()
    return cluster, found


@pytest.mark.promise(1)
@pytest.mark.parametrize("whom", ["active", "sync"])
def test_a_nodes_writes_fail(disks: tuple[Cluster, dict[str, Disk]], whom: str) -> None:
    """EIO: it takes no further part and says why, and others serve. On another disk it is restarted and catches up."""
    cluster, of = disks
    victim = active(cluster) if whom == "active" else replica(cluster, whom)
    with Clients(cluster.client(), f"eio-{whom}") as clients:
        of[victim].goes(WRITES)
        wait(lambda: unwell(cluster, victim), f"{victim} says that its disk fails", 2 * SERVES_AGAIN_S)
        assert of[victim].was_met
        clients.flows(2 * SERVES_AGAIN_S)
        replaced(cluster, victim, 2 * SERVES_AGAIN_S)
        cluster.kill(victim)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_a_nodes_reads_fail(disks: tuple[Cluster, dict[str, Disk]]) -> None:
    """EIO when it starts again: it cannot read its store, nor one made anew, so it ends; others serve. On a disk that
    can be read it is rebuilt from the log."""
    cluster, of = disks
    victim = replica(cluster, "sync")
    with Clients(cluster.client(), "unread") as clients:
        passes(1.5)  # its store is flushed
        cluster.kill(victim)
        of[victim].goes(READS)
        with of[victim].under():
            cluster.launch(victim)
        wait(lambda: victim not in cluster.running(), f"{victim} has ended", SERVES_AGAIN_S)
        assert of[victim].was_met
        assert "Input/output error" in cluster.processes[victim].last_words(3_000)
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_the_brokers_flushes_are_slow(tmp_path: Path) -> None:
    """A tenth of a second each, where every commit waits for one: slower, and nobody is deposed for it."""
    site = EmbeddedSite(tmp_path / "site")
    disk = Disk(tmp_path / "disk", site.data_dir / "kafka")
    try:
        with java_under(disk.library, **disk.names):
            site.start()
        with closing(Cluster(tmp_path, site, partitions=3, local_sync="SYNC", module=MODULE)) as cluster:
            cluster.start()
            cluster.whole()
            with Clients(cluster.client(), "slow-log") as clients:
                before = epochs(cluster)
                disk.goes(FLUSHES, SLOW)
                passes(3.0)
                assert disk.was_met
                clients.flows(2 * SERVES_AGAIN_S)
                disk.goes(FLUSHES, 0)
                clients.flows(SERVES_AGAIN_S)
                assert epochs(cluster) == before
            judge(cluster, clients)
    finally:
        site.stop()
