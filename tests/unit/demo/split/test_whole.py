"""The clients and the judge on two sites in one process: the line is cut while transactions over several partitions are
under way, both go on, and all of it is in the merge (M2, M3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import halog.demo.split.model  # noqa: F401  declares the triggers
from halog.demo.journal import Journal, read
from halog.demo.ordered_work import RowGate
from halog.demo.split import reading
from halog.demo.split.journal import WriteClaims, claims
from halog.demo.split.model import Departure, departure_key, departure_state
from halog.demo.split.steps import FlightStep, StepPlan, plan
from halog.demo.split.traffic import Traffic
from halog.demo.split.verify import ReportedConflict, judge
from halog.demo.verify_copies import Ask, placed_by
from halog.metadata.restore_requests import DONE, restore_of
from halog.ports import Coordinator, TopicPartition
from halog.runtime.merge.restore_command import RestoreCommand, undo
from halog.runtime.rpc.router import Router
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.topic_names import state_topic
from halog.schema.registry import DEFAULT
from halog.testing.cluster import Cluster, wait_until
from restore.branch import Side
from restore.merge import AGREED, State
from restore.undoing import report_of
from tests.unit.demo.split.test_steps import rows
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import level

pytestmark = pytest.mark.feature("M2", "M3", "X3")
PARTITIONS = 3


@pytest.fixture
def west() -> Iterator[Cluster]:
    with Cluster(2, partitions=PARTITIONS, site="west", others=("east",)) as cluster:
        yield cluster


@pytest.fixture
def east(west: Cluster) -> Iterator[Cluster]:
    with Cluster(2, partitions=PARTITIONS, site="east", home=west) as cluster:
        yield cluster


class Client:
    """A site's, on a thread of its own."""

    def __init__(self, cluster: Cluster, steps: list[FlightStep], path: Path) -> None:
        node = cluster.node(cluster.names[0])
        self._path = path
        self._journal = Journal(path)
        self.gate = RowGate(0)

        def epochs() -> dict[str, int]:
            return {name: table.epoch.number for name, table in cluster.tables().items()}

        self.traffic = Traffic(node, node.runtime.operators, epochs, self._journal, -1)
        self._thread = threading.Thread(target=lambda: self.traffic.run(steps, self.gate, 8))
        self._thread.start()

    def done(self, steps: int) -> bool:
        assert self.traffic.error is None, self.traffic.error
        return self.traffic.tally.rows >= steps

    def ended(self) -> WriteClaims:
        self._thread.join(60)
        self._journal.close()
        return claims(read(self._path))


def split(west: Cluster, east: Cluster, does: StepPlan, path: Path) -> tuple[WriteClaims, WriteClaims]:
    """What was acknowledged at each."""
    west.see(east)
    at_west, at_east = Client(west, does.west, path / "west"), Client(east, does.east, path / "east")
    at_west.gate.open_to(does.announced)
    wait_until(lambda: at_west.done(does.announced), "west announces", 30)
    level(west, east)
    at_west.gate.open_to(does.together)
    while not at_west.done((does.announced + does.together) // 2):
        time.sleep(0.0005)
    west.cut()
    east.cut()
    at_west.gate.open_to(len(does.west))
    switching(east, 1).promote(list(east.tables()), may_fork=True)
    east.settle()
    at_east.gate.open_to(len(does.east))
    found = at_west.ended(), at_east.ended()
    west.mend()
    east.mend()
    return found


def state(of: State) -> str:
    if of is None or of.value is None:
        return ""
    info = DEFAULT.info(Departure)
    return departure_state(vars_of(info.instance(info.decode(of.value))))


def vars_of(departure: Departure) -> dict[str, str]:
    return {name: getattr(departure, name) for name in ("gate", "status", "by")}


def report(cluster: Cluster) -> dict[str, ReportedConflict]:
    """The departures that are conflicts, as the log of the site that merged has them."""
    node, info = cluster.node(cluster.names[0]), DEFAULT.info(Departure)
    found = {}
    for name, table in cluster.tables().items():
        tp, chain = TopicPartition(table.topic, table.index), node.runtime.copies[name].core.state.chain.state
        log = node.runtime.adapters.log
        restored = restore_of(node.runtime.adapters.coordinator, name)
        assert restored is not None
        for entry in report_of(Side(cluster.site, log, tp, chain, log.bounds(tp)[1]), bytes.fromhex(restored.merge)):
            if entry.found.kind not in AGREED and entry.found.key.startswith(info.family_id):
                key = dict(zip(info.key_fields, info.decode_index_key(entry.found.key), strict=True))
                told = ReportedConflict(
                    entry.found.kind.value, state(entry.found.source), state(entry.found.initiating)
                )
                found[departure_key(key)] = told
    return found


def restore(west: Cluster, east: Cluster) -> None:
    adapters, tables = west.node(west.names[0]).runtime.adapters, list(west.tables().values())
    own = SiteAccess("west", adapters.log, adapters.coordinator)
    with RestoreCommand(own, partial(state_topic, west.config), adapters.reach, ["east"], 30) as asked:
        ended = asked.restore(tables, asked.sources(tables, {}), told=lambda name, now: None)
    assert {r.phase for r in ended.values()} == {DONE}, ended


def asker(cluster: Cluster) -> Ask:
    """Of a node that has nothing itself."""
    router: Router = cluster.client().runtime.router  # type: ignore[attr-defined]
    wait_until(lambda: set(cluster.names) <= router.nodes.keys(), "the nodes are known")
    return router.request


def check_copies(*clusters: Cluster) -> None:
    """The same at all nodes of both, and each object where it belongs."""
    asks = {name: ask for cluster in clusters for ask in [asker(cluster)] for name in cluster.names}
    found = reading.copies(asks, clusters[0].tables(), placed_by(clusters[0].config, "test"))
    assert (found.partitions, found.mismatches, found.misplaced) == (PARTITIONS, 0, 0)


def store(cluster: Cluster) -> reading.Store:
    led = {name: t.active.node for name, t in cluster.tables().items() if t.active is not None}
    assert len(led) == PARTITIONS
    return reading.store(asker(cluster), led)


def in_doubt(cluster: Cluster) -> int:
    """Transactions whose objects are locked."""
    copies = [copy for name in cluster.names for copy in cluster.node(name).runtime.copies.values()]
    return sum(len(copy.core.state.ledger.undecided) for copy in copies)


def coordinator(cluster: Cluster) -> Coordinator:
    return cluster.node(cluster.names[0]).runtime.adapters.coordinator


@pytest.mark.parametrize("seed", [1, 2])
def test_all_that_both_sites_acknowledged_is_accounted_for(
    west: Cluster, east: Cluster, tmp_path: Path, seed: int
) -> None:
    by_west, by_east = split(west, east, plan(rows(240), seed), tmp_path)
    wait_until(lambda: not in_doubt(east), "east has decided what was under way at the cut", 30)
    before = store(east)
    restore(west, east)
    level(west, east)
    check_copies(west, east)
    verdict = judge(by_west, by_east, reading.seen(east.node(east.names[0])), report(east))
    assert verdict.examples == []
    assert verdict.ok
    assert verdict.overruled > 0
    merges = {name: restore_of(coordinator(east), name) for name in east.tables()}
    undo(coordinator(east), {name: r.merge for name, r in merges.items() if r}, 30, lambda name, now: None)
    level(west, east)
    assert store(east) == before
    check_copies(west, east)
