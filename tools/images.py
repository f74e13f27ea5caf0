"""Prepares what the images of `compose/` are built from, in build/images: `python -m tools.images [NAME…]`, then any
builder. Without names: all but Spark's, which is half a gigabyte.

The network is asked here and never in a build: halog.embedded has the servers' jars (fetched, checked, cached), pip the
wheels of requirements/node.lock. The servers get the settings and the command lines of the embedded ones, so that their
reasons stand in one place (halog/embedded/settings.py); below is only what three of each need otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from halog.embedded import jars, settings
from halog.embedded.java import find_java
from halog.embedded.model import Ports, ServerName
from halog.embedded.progress import LogProgress
from spark_jobs.spark import CONNECTOR

ROOT: Final = Path(__file__).resolve().parents[1]
COMPOSE: Final = ROOT / "compose"
IMAGES: Final = ROOT / "build/images"
JARS: Final = Path("/opt/halog/jars")
"""Where they are in an image."""
INSIDE: Final = Ports(kafka=9092, controller=9093, zookeeper=2181)
NODES_OWN: Final = ("node.id", "controller.quorum.voters", "listeners", "advertised.listeners")
"""What each broker's entrypoint says itself."""

BROKERS: Final[dict[str, str | int]] = {
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,  # a record on one broker only is not acknowledged; one broker's loss stops nothing
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}
FLAGS: Final = (
    "-Dsun.net.inetaddr.ttl=1",  # a container may come back with another address; the JVM would keep the old one 30 s
    "-Dsun.net.inetaddr.negative.ttl=0",
)
ENSEMBLE: Final[dict[str, str | int]] = {
    "clientPortAddress": "0.0.0.0",  # the container's; the host publishes it on loopback
    "initLimit": 20,  # ticks of 500 ms: a busy machine starts three at once
    "syncLimit": 6,  # ticks: a follower that is 3 s behind is left
    "cnxTimeout": 1_000,  # an election asks a dead server's address; the default waits 5 s for it
}


def properties(values: dict[str, str | int]) -> str:
    """As a server reads them."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def server_properties() -> str:
    """What all three brokers are told."""
    values = {**settings.kafka_properties(INSIDE), **BROKERS}
    return properties({k: v for k, v in values.items() if k not in NODES_OWN})


def zoo_cfg() -> str:
    """What all three ZooKeeper servers are told."""
    return properties({**settings.zookeeper_properties(INSIDE), **ENSEMBLE})


def command(server: ServerName) -> list[str]:
    """The embedded server's command line after `java`, to be run in /data."""
    return [*FLAGS, *settings.command(server, "java", jars.classpath(JARS, server), "", "container")[1:]]


def write_server(server: ServerName, source: Path, target: Path) -> None:
    """The context of one server's image."""
    shutil.copytree(COMPOSE / server, target, dirs_exist_ok=True)
    shutil.copy(COMPOSE / "log4j2.properties", target)
    line = command(server)
    (target / "command").write_text("\n".join(line) + "\n")
    (target / "jars").mkdir(exist_ok=True)
    for path in jars.classpath(source, server).split(":"):
        shutil.copy2(path, target / "jars")
    if server == "zookeeper":
        (target / "zoo.cfg").write_text(zoo_cfg())
        return
    (target / "server.properties").write_text(server_properties())
    (target / "format").write_text("\n".join(["-cp", str(JARS / "*"), "kafka.tools.StorageTool"]) + "\n")


Pip = Callable[..., None]


def pip(*words: str) -> None:
    """This interpreter's pip: the wheels are for its version and platform."""
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, "-q"]
    subprocess.run(argv, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})  # same code, same wheel


def write_node(target: Path, pip: Pip = pip) -> None:
    """The context of the node's image. The wheels are fetched again only for another lock file."""
    shutil.copytree(COMPOSE / "node", target, dirs_exist_ok=True)
    lock = ROOT / "requirements/node.lock"
    shutil.copy(lock, target)
    stamp, wanted = target.parent / "wheels.of", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)  # whoever is killed in here leaves wheels of no lock file
        shutil.rmtree(target / "wheels", ignore_errors=True)
        pip("download", "--require-hashes", "--only-binary=:all:", "-r", str(lock), "-d", str(target / "wheels"))
        stamp.write_text(wanted)
    shutil.rmtree(target / "halog", ignore_errors=True)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(target / "halog"), str(ROOT))


def write_spark(target: Path, pip: Pip = pip) -> None:
    """The context of Spark's image. pyspark comes as source: its wheel is made here, where the network is and the tools
    are, from an archive that has the lock's hash."""
    shutil.copytree(COMPOSE / "spark", target, dirs_exist_ok=True)
    lock = ROOT / "requirements/spark.lock"
    text = lock.read_text()
    (target / "spark.pins").write_text(pins(text))
    stamp, wanted = target.parent / "spark-wheels.of", hashlib.sha256(text.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)  # whoever is killed in here leaves wheels of no lock file
        shutil.rmtree(target / "wheels", ignore_errors=True)
        wheels = str(target / "wheels")
        pip("wheel", "--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(lock), "-w", wheels)
        stamp.write_text(wanted)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(target / "halog"), str(ROOT))
    where, _ = jars.ensure(find_java(), LogProgress(), CONNECTOR)
    shutil.copytree(where, target / "cache" / where.name)


def pins(lock: str) -> str:
    """Names and versions of a lock file, without hashes: those of wheels made here are in none."""
    return "".join(f"{line.split()[0]}\n" for line in lock.splitlines() if "==" in line)


def prepare(names: tuple[str, ...] = ("kafka", "zookeeper", "node")) -> Path:
    """The contexts, one directory each; what was there of them is replaced, so that a build sees no leftovers."""
    source, _ = jars.ensure(find_java(), LogProgress())
    for name in names:
        target = IMAGES / name
        for old in target.iterdir() if target.exists() else ():
            if old.name != "wheels":
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        target.mkdir(parents=True, exist_ok=True)
        if name == "node":
            write_node(target)
        elif name == "spark":
            write_spark(target)
        else:
            write_server("kafka" if name == "kafka" else "zookeeper", source, target)
    return IMAGES


if __name__ == "__main__":
    print(prepare(tuple(sys.argv[1:])) if sys.argv[1:] else prepare())
