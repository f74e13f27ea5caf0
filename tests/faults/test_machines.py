"""Disks that are full, fail or are slow, stores that were damaged, wall clocks that jump."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.clients import ClientProcess, Clients
from tests.faults.conftest import MODULE
from tests.faults.judge import judge
from tests.faults.scene import SERVES_AGAIN_S, active, complete, epochs, replaced, replica
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("P10", "R1", "R6")]

SYNCS = "fsync,fdatasync,sync_file_range"
HOUR_S = 3600


# --- disks ---


@pytest.mark.promise(1)
@pytest.mark.parametrize("whom", ["active", "sync"])
def test_a_nodes_disk_is_full(cluster: Cluster, whom: str) -> None:
    """No file of its may grow: it takes no further part and says why, and others serve. With room again it is
    restarted and catches up."""
    victim = active(cluster) if whom == "active" else replica(cluster, whom)
    with Clients(cluster.client(), f"full-{whom}") as clients:
        resource.prlimit(cluster.processes[victim].pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        wait(lambda: unwell(cluster, victim), f"{victim} says that it cannot write", SERVES_AGAIN_S)
        clients.flows(2 * SERVES_AGAIN_S)
        replaced(cluster, victim, 2 * SERVES_AGAIN_S)
        cluster.kill(victim)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


def unwell(cluster: Cluster, node: str) -> bool:
    """It has ended, or says of a copy why it stopped."""
    return node not in cluster.running() or any(c["error"] for c in cluster.copies(node).values())


@contextmanager
def injected(cluster: Cluster, node: str, what: str) -> Iterator[None]:
    """Every flush of this process goes wrong as `what` says, in the kernel."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    pid = cluster.processes[node].pid
    argv = ["strace", "-f", "-qq", "-p", str(pid), "-e", f"trace={SYNCS}", "-e", f"inject={SYNCS}:{what}"]
    with subprocess.Popen([*argv, "-o", str(cluster.directory / "strace.out")], start_new_session=True) as tracer:
        wait(lambda: _traced(pid, tracer.pid), "strace has attached", 10)
        try:
            yield
        finally:
            tracer.terminate()
            tracer.wait(10)


def _traced(pid: int, by: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return f"TracerPid:\t{by}" in lines


@pytest.mark.promise(1)
def test_a_nodes_flushes_fail(cluster: Cluster) -> None:
    """EIO: what it acknowledged is not on its disk, so it acknowledges no more, says so, and others serve."""
    victim = active(cluster)
    with Clients(cluster.client(), "eio") as clients:
        with injected(cluster, victim, "error=EIO"):
            wait(lambda: unwell(cluster, victim), f"{victim} says that its disk fails", 2 * SERVES_AGAIN_S)
            clients.flows(2 * SERVES_AGAIN_S)
            replaced(cluster, victim, 2 * SERVES_AGAIN_S)
        cluster.kill(victim)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_a_replicas_flushes_are_slow(make: Make) -> None:
    """A quarter of a second each, where commits wait for them: slower, and nobody is deposed for it."""
    cluster = make(nodes="AB", partitions=2, async_=0, remote_sync="SYNC", module=MODULE)
    cluster.start()
    cluster.whole()
    with Clients(cluster.client(), "slow-disk") as clients:
        before = epochs(cluster)
        with injected(cluster, replica(cluster, "sync"), "delay_exit=250000"):
            passes(3.0)
            clients.flows(2 * SERVES_AGAIN_S)
        clients.flows(SERVES_AGAIN_S)
        assert epochs(cluster) == before
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(2)
@pytest.mark.parametrize("how", ["flipped", "torn"])
def test_a_dead_nodes_store_is_damaged(cluster: Cluster, how: str) -> None:
    """Bytes flipped in all its files, or their ends torn off: it is rebuilt from the log, and never believed."""
    victim = replica(cluster, "sync")
    with Clients(cluster.client(), f"store-{how}") as clients:
        passes(1.5)  # its store is flushed
        cluster.kill(victim)
        files = [f for pattern in ("*.sst", "*.log") for f in (cluster.directory / victim).rglob(pattern)]
        assert [damage(f, how) for f in files if f.stat().st_size > 100], "there was something to damage"
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


def damage(file: Path, how: str) -> Path:
    raw = bytearray(file.read_bytes())
    if how == "flipped":
        for at in range(len(raw) // 4, len(raw), max(1, len(raw) // 4)):
            raw[at] ^= 0x10
    else:
        del raw[len(raw) * 2 // 3 :]
    file.write_bytes(raw)
    return file


# --- clocks ---


class Clocks:
    """Each process's wall clock may be moved at any moment; its other clocks go on."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.library = directory / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True)

    def set(self, name: str, seconds: int) -> None:
        with (self.directory / f"{name}.clock").open("r+b" if self._file(name).exists() else "wb") as out:
            out.write(seconds.to_bytes(8, "little", signed=True))

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.clock"

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Processes started now have this clock."""
        with self.monkeypatch.context() as env:
            env.setenv("LD_PRELOAD", str(self.library))
            env.setenv("HALOG_CLOCK", str(self._file(name)))
            yield


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return Clocks(tmp_path, monkeypatch)


@pytest.mark.promise(4)
def test_wall_clocks_jump_by_hours(make: Make, clocks: Clocks) -> None:
    """One node an hour ahead, one behind, a client ahead; then all jump to the other side, and the active is killed and
    starts again in its own past. Nothing here rests on wall clocks."""
    cluster = make(partitions=3, module=MODULE)
    for name, seconds in (("A", HOUR_S), ("B", 0), ("C", -HOUR_S)):
        clocks.set(name, seconds)
        with clocks.of(name):
            cluster.launch(name)
    for name in "ABC":
        cluster.processes[name].ready()
    cluster.whole()
    with Clients(cluster.client(), "clocks") as clients:
        clocks.set("client", HOUR_S)
        with clocks.of("client"):
            other = ClientProcess(cluster, clients)
        before = epochs(cluster)
        for name, seconds in (("A", -HOUR_S), ("B", HOUR_S), ("C", HOUR_S), ("client", -HOUR_S)):
            clocks.set(name, seconds)
        clients.flows(SERVES_AGAIN_S)
        other.flows(SERVES_AGAIN_S)
        passes(2.0)
        assert epochs(cluster) == before, "nobody is deposed for a clock"
        victim = cluster.registered()["A"]
        cluster.kill("A")
        with clocks.of("A"):
            cluster.start("A")
        assert cluster.registered()["A"] < victim, "it believes to have started before it did"
        complete(cluster)
        other.flows(SERVES_AGAIN_S)
        other.process.kill()
    judge(cluster, clients, other)
