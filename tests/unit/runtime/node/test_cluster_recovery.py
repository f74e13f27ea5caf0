"""A coordinator that has lost its data: its tables are made anew from the logs and the stores (R1, R6, P10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryBroker, MemoryCoordinator, MemoryLog, MemoryStore, MemoryTree
from halog.core.ids import NO_EPOCH, EpochId
from halog.core.table.table import PartitionTable
from halog.errors import RefusedError
from halog.ports import Store, TopicPartition
from halog.runtime.node import (
    cluster_identity as belonging,
    cluster_repair as recovering,
    coordinator_memo as remembering,
)
from halog.runtime.node.cluster_recovery import RecoveryPlan, RecoverySurvey, by_file
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.host.test_faults import REGISTRY, Counter
from tests.unit.runtime.node.test_cluster_identity import stop

pytestmark = [pytest.mark.nodes, pytest.mark.feature("R1", "P10")]

KEYS = [f"c{i}" for i in range(12)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=4, registry=REGISTRY) as cluster:
        add_all(cluster)
        yield cluster


def add_all(cluster: Cluster) -> list[int]:
    client, values = cluster.client(), []
    for key in KEYS:
        with client.transaction() as tx:
            counter = tx.find(Counter, key) or tx.create(Counter(key))
            values.append(counter.add(1))
    return values


def noted_all(cluster: Cluster) -> None:
    """Every node has noted what there is by now."""

    def noted(name: str) -> bool:
        kept = remembering.noted(cluster.node(name).runtime.adapters.store)  # type: ignore[arg-type]
        tables = cluster.tables()
        return "policies/test" in kept and all(
            f"partitions/{p}" in kept and PartitionTable.from_bytes(kept[f"partitions/{p}"].data) == tables[p]
            for p in tables
        )

    wait_until(lambda: all(noted(name) for name in cluster.running), "they have noted it")


class Tool:
    """What `halog recover` does, over memory adapters."""

    def __init__(self, cluster: Cluster, *, without: tuple[str, ...] = ()) -> None:
        self.cluster = cluster
        self.without = without
        self.coordinator = MemoryCoordinator(cluster.tree)
        self.coordinator.connect(lambda state: None)
        self.log = MemoryLog(cluster.broker)

    def look(self) -> RecoveryPlan:
        with self.stores() as stores:
            missing = dict.fromkeys(self.without, "there is no store")
            return RecoverySurvey(self.log, self.coordinator, self.cluster.config, stores, missing).plan()

    def stores(self) -> Any:
        made = {n: MemoryStore(d) for n, d in self.cluster.disks.items() if n not in self.without}

        class Open:
            def __enter__(self) -> dict[str, Store]:
                return dict(made)

            def __exit__(self, *exc: object) -> None:
                for store in made.values():
                    store.close()

        return Open()

    def recover(self, plan: RecoveryPlan | None = None) -> RecoveryPlan:
        plan = plan or self.look()
        recovering.carry_out(plan, self.log, self.coordinator, lambda text: None)
        return plan


def lose(cluster: Cluster) -> dict[str, PartitionTable]:
    """All nodes are stopped, and the coordinator's data are gone; the tables it had."""
    stop(cluster)
    tables = cluster.tables()
    cluster.tree = MemoryTree()
    return tables


def test_everything_is_there_again(cluster: Cluster) -> None:
    """Histories go on under their ids, in epochs above the logs', by the mapping and on the nodes they had."""
    noted_all(cluster)
    before = lose(cluster)
    plan = Tool(cluster).recover()
    tables = cluster.tables()
    assert {n: t.log_id for n, t in tables.items()} == {n: t.log_id for n, t in before.items()}
    assert all(tables[n].configured == before[n].configured for n in before)
    assert all(tables[n].epoch.number > before[n].epoch.number for n in before)
    assert not plan.problems
    assert not plan.needs
    assert cluster.tree.get(belonging.RECOVERY) is None
    assert cluster.tree.get(recovering.ALONE) is None
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


def test_what_the_logs_tell_is_enough_for_the_objects(cluster: Cluster) -> None:
    """No node's disk is left: partitions are placed as in the configuration, and what is lost is named."""
    lose(cluster)
    for disk in cluster.disks.values():
        disk.data.clear()
    plan = Tool(cluster).recover()
    assert any("priorities" in text for text in plan.lost)
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


def test_what_operators_had_decided_is_there_again(cluster: Cluster) -> None:
    """A partition that was moved, a priority, a drained node, a zone without its quorum, the bindings."""
    operators = cluster.node("A").runtime.operators
    operators.migrate("test-0", ("B",), 0, wait_s=20.0)
    cluster.tree.create("drained/A", b'{"by":"me","at_ms":5}', 0)
    cluster.tree.create("zones/test", b'{"off":true}', 0)
    table = cluster.tables()["test-1"]
    raised = msgspec.structs.replace(table.group, priorities={"B": 2})
    version = cluster.tree.get("partitions/test-1").version  # type: ignore[union-attr]
    cluster.tree.set("partitions/test-1", msgspec.structs.replace(table, group=raised).to_bytes(), version)
    bindings = cluster.tree.get("bindings").data  # type: ignore[union-attr]
    noted_all(cluster)
    wait_until(lambda: "zones/test" in remembering.noted(cluster.node("B").runtime.adapters.store), "it is noted")  # type: ignore[arg-type]
    lose(cluster)
    Tool(cluster).recover()
    tables = cluster.tables()
    assert tables["test-0"].configured == ("B",)
    assert tables["test-1"].group.priorities == {"B": 2}
    found = {path: cluster.tree.get(path) for path in ("drained/A", "zones/test", "bindings")}
    assert [f.data for f in found.values() if f is not None] == [b'{"by":"me","at_ms":5}', b'{"off":true}', bindings]


def test_a_coordinator_that_has_lost_everything_makes_no_node_forget(cluster: Cluster) -> None:
    """While the nodes still run: what they have noted is all there is."""
    noted_all(cluster)
    tree = cluster.tree
    for path in sorted(tree._nodes, key=len, reverse=True):
        if not path.startswith("nodes"):
            tree.delete(path, -1)
    store: Store = cluster.node("A").runtime.adapters.store  # type: ignore[assignment]
    looked = remembering.CoordinatorMemo(cluster.node("A").runtime.adapters.coordinator, store, lambda: ())
    looked._known = dict.fromkeys(("zones/test", "policies/test"), b"")
    looked.look()
    assert "policies/test" in remembering.noted(store)


def steps(tool: Tool, die_at: int) -> list[str]:
    """The process dies in front of its n-th change of the coordinator, or append to a log. What it came to."""
    came: list[str] = []
    session = tool.log.session

    def hook(owner: Any, verb: str) -> None:
        real = getattr(owner, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            came.append(verb)
            if len(came) >= die_at:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        setattr(owner, verb, call)

    def hooked() -> Any:
        made = session()
        hook(made, "append")
        return made

    for verb in ("create", "set", "delete"):
        hook(tool.coordinator, verb)
    tool.log.session = hooked  # type: ignore[method-assign]
    return came


def test_it_is_repeated_after_a_death_at_any_step(cluster: Cluster) -> None:
    noted_all(cluster)
    before = lose(cluster)
    whole = Tool(cluster)
    nodes, broker = dict(cluster.tree._nodes), cluster.broker
    taken = steps(whole, 1_000)
    whole.recover()
    for at in range(1, len(taken) + 1):
        cluster.tree = MemoryTree()
        cluster.tree._nodes.update(nodes)
        dying = Tool(cluster)
        steps(dying, at)
        with pytest.raises(KeyboardInterrupt):
            dying.recover()
        dying.coordinator.expire(reconnect=False)
        if cluster.tree.get(belonging.RECOVERY) is not None:
            with pytest.raises(RefusedError):
                cluster.restart("A")
            cluster.tree.delete("nodes/A", -1)
        plan = Tool(cluster).look()
        if not plan.nothing:
            Tool(cluster).recover(plan)
        assert {n: t.log_id for n, t in cluster.tables().items()} == {n: t.log_id for n, t in before.items()}
        assert cluster.tree.get(belonging.RECOVERY) is None
        assert cluster.broker is broker
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


def test_nothing_is_done_where_nothing_is_lost(cluster: Cluster) -> None:
    stop(cluster)
    assert Tool(cluster).look().nothing


def test_it_is_refused_while_a_node_runs(cluster: Cluster) -> None:
    noted_all(cluster)
    stop(cluster)
    plan = Tool(cluster).look()
    cluster.restart("A")
    tool = Tool(cluster)
    with pytest.raises(RefusedError, match="A run: stop all nodes"):
        tool.recover(plan)
    assert cluster.tree.get(belonging.RECOVERY) is None


def test_tables_that_an_older_halog_made_anew_over_the_logs_are_replaced(cluster: Cluster) -> None:
    """They name histories that no log has, and have never been served."""
    noted_all(cluster)
    before = lose(cluster)
    for name, table in before.items():
        anew = msgspec.structs.replace(table, log_id="ab" * 16, epoch=NO_EPOCH, active=None, replicas=())
        cluster.tree.create(f"partitions/{name}", anew.to_bytes(), 0)
    Tool(cluster).recover()
    assert {n: t.log_id for n, t in cluster.tables().items()} == {n: t.log_id for n, t in before.items()}
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


@pytest.mark.parametrize("lost", ["policies/test", "partitions/test-1", "bindings", "cluster"])
def test_a_part_of_it_is_lost(cluster: Cluster, lost: str) -> None:
    noted_all(cluster)
    stop(cluster)
    before = cluster.tree.get(lost)
    assert before is not None
    cluster.tree.delete(lost, -1)
    Tool(cluster).recover()
    after = cluster.tree.get(lost)
    assert after is not None
    if not lost.startswith("partitions/"):
        assert after.data == before.data
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


def test_a_table_of_another_history_that_was_served_is_left_alone(cluster: Cluster) -> None:
    stop(cluster)
    before = cluster.tables()["test-2"]
    version = cluster.tree.get("partitions/test-2").version  # type: ignore[union-attr]
    foreign = msgspec.structs.replace(before, log_id="ab" * 16, epoch=EpochId(3, "", 1))
    cluster.tree.set("partitions/test-2", foreign.to_bytes(), version)
    (problem,) = Tool(cluster).look().problems
    assert "one of the two is another cluster's" in problem


def test_a_mapping_that_has_changed_is_restored_from_a_store_or_not_guessed(cluster: Cluster) -> None:
    """The file says where keys belonged once; a log says only that this has changed since."""
    noted_all(cluster)
    lose(cluster)
    plan = Tool(cluster).look()
    raised = [
        msgspec.structs.replace(p, history=p.history._replace(mapping=2)) if p.name == "test-1" else p
        for p in plan.partitions
    ]
    tool = Tool(cluster)
    with tool.stores() as stores:
        looking = RecoverySurvey(tool.log, tool.coordinator, cluster.config, stores, {})
        told, unsure = looking._mappings({"test": plan.znodes["policies/test"]}, raised)
    assert "serve version 2" in unsure["test"]
    known = msgspec.structs.replace(plan, unsure=unsure, mappings=told)
    assert msgspec.json.decode(by_file(known, ["test"]).znodes["policies/test"])["mapping"] == 2


def test_more_partitions_than_the_file_knows_are_no_reason_to_forget_them(cluster: Cluster) -> None:
    """The mapping was given more of them, and no store is left that knows."""
    lose(cluster)
    for disk in cluster.disks.values():
        disk.data.clear()
    smaller = replace(cluster.config.policies["test"], partitions=3)
    cluster.config = replace(cluster.config, policies={"test": smaller})
    (problem,) = Tool(cluster).look().problems
    assert "more partitions than the 3" in problem


def test_a_snapshot_and_a_trimmed_log_are_gone_on_from(cluster: Cluster) -> None:
    """The log does not go back to its beginning: what the state topic has counts."""
    name = cluster.partition_of(Counter, KEYS[0])
    host = cluster.node(cluster.active_for(Counter, KEYS[0])).runtime.host
    assert host is not None
    copy = host.copies[name]
    host.snapshots.policy = msgspec.structs.replace(host.snapshots.policy, keep_records=0)
    host.snapshots.take(copy)
    table = cluster.tables()[name]
    tp = TopicPartition(table.topic, table.index)
    assert MemoryLog(cluster.broker).bounds(tp)[0] > 0
    lose(cluster)
    for disk in cluster.disks.values():
        disk.data.clear()
    Tool(cluster).recover()
    assert cluster.tree.get(f"snapshots/{name}") is not None
    assert cluster.tree.get(f"trimmed/{name}") is not None
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)


def test_a_log_that_goes_back_to_nothing_known_is_named(cluster: Cluster) -> None:
    lose(cluster)
    broker: MemoryBroker = cluster.broker
    broker.trim(TopicPartition("test.test.log", 0), 2)
    for disk in cluster.disks.values():
        disk.data.clear()
    (problem,) = Tool(cluster).look().problems
    assert "neither a snapshot nor a store has what is missing" in problem


def test_what_no_node_has_made_yet_is_in_nobodys_way(cluster: Cluster) -> None:
    """A policy that the file has and no process has started with, and partitions likewise, have no topics."""
    noted_all(cluster)
    lose(cluster)
    old = cluster.config.policies["test"]
    wanted = {"test": replace(old, partitions=6), "new": replace(old, partitions=2)}
    cluster.config = replace(cluster.config, policies=wanted)
    plan = Tool(cluster).look()
    assert not plan.problems
    assert set(plan.empty) == {"new-0", "new-1"}
    assert {p.name for p in plan.partitions} == {f"test-{i}" for i in range(4)}
    assert msgspec.json.decode(plan.znodes["policies/test"])["partitions"] == 4


def test_fewer_partitions_than_the_file_says_are_not_looked_through_by_the_file(cluster: Cluster) -> None:
    """Keys that were spread over four are not where a ring of six has them, and no store is left that knows."""
    lose(cluster)
    for disk in cluster.disks.values():
        disk.data.clear()
    more = replace(cluster.config.policies["test"], partitions=6)
    cluster.config = replace(cluster.config, policies={"test": more})
    (problem,) = Tool(cluster).look().problems
    assert problem.startswith("test.test.log has 4 partitions and records, configuration says 6 of policy test")


def test_a_log_that_is_gone_as_well_is_named(cluster: Cluster) -> None:
    """Or the file has the address of other brokers: nothing is begun over what a node remembers."""
    noted_all(cluster)
    lose(cluster)
    cluster.broker = MemoryBroker()
    problems = Tool(cluster).look().problems
    assert len(problems) == 4
    assert "Kafka's data were lost, too" in problems[0]


def test_a_state_topic_that_nobody_has_made_is_none_to_go_on_from(cluster: Cluster) -> None:
    lose(cluster)
    del cluster.broker._topics["test.test.state"]
    Tool(cluster).recover()
    cluster.start()
    assert add_all(cluster) == [2] * len(KEYS)
