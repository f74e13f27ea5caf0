"""This module builds class archives (AppCDS) of the two servers: once per Java and jar set; they save 2.5 s of each
start.

`python -m halog.embedded.archives JAVA JARS TARGET` starts both servers on a scratch directory, uses them a little, and
stops them; the JVM writes the archive at its exit. A start never needs an archive: without one the servers start
slower. A build that failed leaves a note beside the jars and is not tried again; one that was killed is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from halog.embedded import cache as caching, datadir, ports, probe, settings
from halog.embedded.jars import classpath, manifest
from halog.embedded.java import Java
from halog.embedded.model import SERVERS, Ports
from halog.embedded.process import POLL_S, Server, dies_with, stop_all
from halog.embedded.progress import Progress

FAILED = "failed.txt"
TEXT = "building class archives (once)"
BUILD_S = 180.0  # ten seconds measured on two quiet cores
DUMP_S = 90.0  # writing an archive while stopping


def directory(java: Java, jars: Path) -> Path:
    """Return the archives' directory. It depends on Java and jars: the JVM takes an archive only for the same Java and
    untouched jars."""
    facts = [java.path, java.version, str(jars), *settings.ARCHIVED_FLAGS]
    facts += [f"{n} {(jars / n).stat().st_mtime_ns}" for n in sorted(manifest())]
    return caching.root() / f"cds-{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:12]}"


def ensure(java: Java, jars: Path, progress: Progress, *, python: str = sys.executable) -> tuple[str, bool]:
    """Return the directory of archives ("" = none can be built here), and whether it was there already. `python` runs
    the build."""
    target = directory(java, jars)
    if target.exists():
        return _usable(target), True
    with caching.locked(progress):
        if target.exists():
            return _usable(target), True
        _build_in_child(java, jars, target, progress, python)
    return _usable(target), False


def _usable(target: Path) -> str:
    return str(target) if target.exists() and not (target / FAILED).exists() else ""


def _build_in_child(java: Java, jars: Path, target: Path, progress: Progress, python: str) -> None:
    """Build in a process of its own: servers may only be children of a process with one thread (process.py)."""
    with caching.scratch() as scratch:
        built = scratch / "cds"
        built.mkdir(mode=0o700)
        argv = [python, "-m", "halog.embedded.archives", java.path, str(jars), str(built)]
        child = subprocess.Popen(
            argv, env=child_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        began = time.monotonic()
        while child.poll() is None and time.monotonic() - began < BUILD_S:
            progress.report(TEXT, min(int(time.monotonic() - began), 14), 15)
            time.sleep(0.1)
        too_slow = child.poll() is None
        child.kill()  # if it still runs; its servers die with it
        said = child.communicate()[0].decode(errors="replace")
        if child.returncode < 0 and not too_slow:
            return  # it was killed
        if child.returncode != 0 or not all((built / f"{n}.jsa").exists() for n in SERVERS):
            (built / FAILED).write_text(said or f"exit code {child.returncode}\n")
        progress.report(TEXT, 15, 15)
        built.rename(target)


def child_environment() -> dict[str, str]:
    """Return this process's environment, with a path on which a child can import this halog."""
    package_root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": package_root + (os.pathsep + inherited if inherited else "")}


# ---------------------------------------------------------------- in the child


def build(java: str, jars: Path, target: Path, *, dump_s: float = DUMP_S) -> None:
    """Start, use and stop both servers with -XX:ArchiveClassesAtExit."""
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="site-", dir=target.parent) as scratch:
        root = Path(scratch)
        marker = datadir.prepare(root)
        chosen = ports.choose(None)
        settings.write(root, chosen, marker.cluster_id)
        servers = _servers(java, jars, target, root, chosen, marker.cluster_id)
        try:
            for server in servers:
                server.spawn()
            _await(servers)
            with contextlib.suppress(Exception):  # more classes in the archive, or fewer
                _use(chosen)
            stop_all(servers, dump_s)
            _check_whole(servers)
        finally:
            stop_all(servers, 0)


def _servers(java: str, jars: Path, target: Path, root: Path, chosen: Ports, cluster_id: str) -> list[Server]:
    def one(name: str) -> list[str]:
        argv = settings.command(name, java, classpath(jars, name), "", cluster_id)  # type: ignore[arg-type]
        return [argv[0], f"-XX:ArchiveClassesAtExit={target}/{name}.jsa", *argv[1:]]

    return [
        Server("kafka", root, one("kafka"), lambda: probe.kafka_answers(chosen.kafka)),
        Server("zookeeper", root, one("zookeeper"), lambda: probe.zookeeper_answers(chosen.zookeeper)),
    ]


def _await(servers: list[Server]) -> None:
    deadline = time.monotonic() + BUILD_S / 2
    while not all(s.note_ready(0) for s in servers):
        dead = [s for s in servers if not s.alive()]
        if dead or time.monotonic() > deadline:
            raise SystemExit(f"{(dead or servers)[0].name} did not start: {(dead or servers)[0].last_words()}")
        time.sleep(POLL_S)


def _check_whole(servers: list[Server]) -> None:
    """Refuse the archive of a JVM that was killed: it may be half written, and another JVM that maps it crashes."""
    for server in servers:
        if server.process is not None and server.process.returncode < 0:
            by = signal.Signals(-server.process.returncode).name
            raise SystemExit(f"{server.name} was killed by {by} while it stopped")


def _use(chosen: Ports) -> None:
    """Do what a node's first second does: a topic, an idempotent and a transactional record, a reader."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    common: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{chosen.kafka}", "log_level": 0}
    for future in (
        AdminClient(common).create_topics([NewTopic("t", 1, 1, config={"cleanup.policy": "compact"})]).values()
    ):
        future.result(10)
    plain = Producer({**common, "enable.idempotence": True})
    plain.produce("t", b"value", b"key")
    plain.flush(10)
    transactional = Producer({**common, "transactional.id": "t"})
    transactional.init_transactions(10)
    transactional.begin_transaction()
    transactional.produce("t", b"value", b"key")
    transactional.commit_transaction(10)
    consumer = Consumer({**common, "group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, 0)])
    consumer.consume(2, 5)
    consumer.close()


if __name__ == "__main__":
    _me = dies_with(os.getppid())
    _me()
    build(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
