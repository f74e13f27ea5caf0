"""One object per partition is written to, and what a writer noticed is told per partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halog.backend import Work
from halog.demo.journal import ACKNOWLEDGED, Journal, claims, read
from halog.demo.model import Probe
from halog.demo.probe import Prober
from halog.errors import PartitionUnavailableError
from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.transactions import Node

pytestmark = pytest.mark.feature("P12")


class Refusing(MemoryBackend):
    """One partition refuses commits while it is told to."""

    refused = ""
    asked = threading.Event()

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        if partition == self.refused:
            self.asked.set()
            raise PartitionUnavailableError("nobody is active", partition=partition)
        return super().commit(partition, tx, work)


@pytest.fixture
def node() -> Iterator[Node]:
    with Node(Refusing(MemoryCluster())) as opened:
        yield opened


def prober(node: Node, path: Path) -> Prober:
    made = Prober(node, Journal(path), node.backend.partitions_of("Probe"))
    made.prepare()
    return made


def test_each_partition_is_written_to_while_something_changes(node: Node, tmp_path: Path) -> None:
    made = prober(node, tmp_path / "j")
    before = len(list(read(tmp_path / "j")))
    assert before == len(made.names) > 1

    def change() -> None:
        while len({n.partition for n in list(read(tmp_path / "j"))[before:]}) < len(made.names):
            time.sleep(0.01)

    slowest = made.through(change)
    assert slowest.keys() == made.names.keys()
    assert min(slowest.values()) > 0
    notes = list(read(tmp_path / "j"))
    assert {n.outcome for n in notes} == {ACKNOWLEDGED}
    assert len(claims(notes).acknowledged) == len(notes), "every write is a transaction of its own"
    with node.transaction():
        assert sum(p.writes for p in node.extent(Probe)) == len(notes)


def test_a_write_that_fails_goes_on_being_late(node: Node, tmp_path: Path) -> None:
    """The pause is as long as nobody took the write, however often it was refused meanwhile."""
    made = prober(node, tmp_path / "j")
    backend, refused = node.backend, min(made.names)
    assert isinstance(backend, Refusing)
    acknowledged = threading.Event()

    def change() -> None:
        backend.refused = refused
        assert backend.asked.wait(30)
        backend.asked.clear()
        assert backend.asked.wait(30), "it is tried again"
        backend.refused = ""
        while not any(n.partition == refused for n in list(read(tmp_path / "j"))[len(made.names) :]):
            time.sleep(0.01)
        acknowledged.set()

    assert made.through(change).keys() == made.names.keys()
    assert acknowledged.is_set()
