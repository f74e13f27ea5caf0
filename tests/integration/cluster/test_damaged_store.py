"""A node's store is damaged: the first start sets it aside and makes a new one from the log (P10, R1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_quorum import halog

pytestmark = [pytest.mark.feature("P10", "R1"), pytest.mark.timeout(600)]


def flip(share: float) -> Callable[[Path], None]:
    """Bytes of the first part of a file."""

    def harm(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        for at in range(0, int(len(raw) * share), 3):
            raw[at] ^= 0x5A
        path.write_bytes(raw)

    return harm


HARM: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a table, which opening shows": ("*.sst", flip(1.0)),
    "a table, which reading shows": ("*.sst", flip(0.3)),
    "a missing table": ("*.sst", Path.unlink),
    "a missing CURRENT": ("CURRENT", Path.unlink),
    "a manifest": ("MANIFEST-*", flip(1.0)),
}


@pytest.fixture
def cluster(make: Make) -> Cluster:
    """Nodes A and B with two partitions; A was started twice, so it has tables."""
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    cluster.whole()
    return cluster


def test_each_damage_is_over_with_the_first_start(cluster: Cluster) -> None:
    with Load(cluster.client(), "written") as load:
        load.flows(60)
    for number, (files, harm) in enumerate(HARM.values(), start=1):
        for _ in range(2):  # a store that is opened writes what its log had as tables
            cluster.processes["A"].terminate()
            cluster.start(["A"])
            cluster.whole()
        assert cluster.processes["A"].terminate() == 0
        store = cluster.directory / "A"
        harmed = list((store / "db").glob(files))
        assert harmed
        for path in harmed:
            harm(path)
        cluster.start(["A"])
        cluster.whole()
        aside = list(store.glob("db.damaged-*"))
        assert len(aside) == number, list(HARM)[number - 1]
        assert "was set aside" in cluster.log_of("A")
        assert "LOCK" not in cluster.log_of("A")
    check(cluster, load)

    def told() -> list[str]:
        return [e["node"] for e in halog(cluster, "events") if e["code"] == "HALOG-1125"]

    wait(lambda: told() == ["A"] * len(HARM), lambda: f"the history has each of them: {told()}")
