"""Applications define, enable and disable a partition on whole nodes, in memory (P7, P8, P9).

Where the role moves a test takes two seconds: so long (`drain_ms`) an epoch keeps it before it gives it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from halog.config import Config
from halog.errors import ConfigError, DeadlineError, NodeListsError, RefusedError, UnknownNameError
from halog.runtime.placement import plan as plans
from halog.runtime.remap import remap_request as wishes
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.placement.placed import Counting, P, at, copies, is_on, place, told, unplaced

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = unplaced()
    yield made
    made.close()


@pytest.mark.feature("P7", "P12", "P8")
def test_c_defines_it_as_c_b_and_enables_it_and_it_moves_there_from_a_b_under_traffic(cluster: Cluster) -> None:
    """The manual's two examples: A and B define and enable it; then C does."""
    assert {at(cluster, n).status for n in "ABC"} == {"Undefined"}
    at(cluster, "A").define(("A", "B"))
    wait_until(lambda: [at(cluster, n).status for n in "AB"] == ["LocalDefined", "RemoteDefined"], "all know it")
    assert (at(cluster, "B").state, at(cluster, "B").nodes, copies(cluster)) == ("Initial", (), set())
    at(cluster, "A").enable(wait_s=60)
    assert is_on(cluster, "A", "B")
    wait_until(lambda: [at(cluster, n).status for n in "AB"] == ["LocalEnabled", "RemoteEnabled"], "all know it")
    at(cluster, "B").define(("A", "B"))
    before = cluster.tables()[P]
    at(cluster, "B").enable(wait_s=60)
    assert cluster.tables()[P].config_version == before.config_version, "it is there: nothing moves"
    wait_until(lambda: {at(cluster, n).state for n in "ABC"} == {"Active"}, "all know it")
    with Counting(cluster) as counting:
        counting.goes_on()
        at(cluster, "C").define(("C", "B"))
        assert is_on(cluster, "A", "B"), "defined is not enabled"
        at(cluster, "C").enable(wait_s=60)
        assert is_on(cluster, "C", "B")
        wait_until(lambda: copies(cluster) == {"B", "C"}, "A hosts it no more")
        counting.goes_on()
    assert cluster.tables()[P].definitions["A"].nodes == ("C", "B"), "what A said follows"
    wait_until(lambda: at(cluster, "A").foreign, "it is told")
    enabled = [e.node for e in told(cluster, "HALOG-1036") if e.more["said"] == "enabled"]
    assert sorted(enabled) == ["A", "B", "C"], "each told once"


@pytest.mark.feature("P7")
def test_a_replica_may_use_it_before_the_active_node_has_enabled_it(cluster: Cluster) -> None:
    """A is down when B enables it; then it comes, enables it, and gets its place."""
    cluster.kill("A")
    at(cluster, "B").define(("A", "B"))
    at(cluster, "B").enable()
    wait_until(lambda: at(cluster, "B").active == "B", "B serves it")
    with Counting(cluster) as counting:
        counting.goes_on()
        cluster.restart("A")
        assert copies(cluster) == {"B"}
        at(cluster, "A").define(("A", "B"))
        at(cluster, "A").enable()
        wait_until(lambda: set(cluster.tables()[P].node_list) == {"A", "B"}, "A is a replica")
        counting.goes_on()


@pytest.mark.feature("P8", "P7")
def test_a_restarted_node_stays_out_of_the_list_until_it_enables_it_again(cluster: Cluster) -> None:
    """The manual's warning: B relied on A's broadcast."""
    at(cluster, "A").define(("A", "B", "C"), 1)
    at(cluster, "A").enable(wait_s=60)
    with Counting(cluster) as counting:
        cluster.kill("B")
        wait_until(lambda: cluster.tables()[P].node_list == ("A", "C"), "B is gone")
        node = cluster.restart("B")
        wait_until(lambda: len(node.runtime.members.alive) == 3, "B is there")
        counting.goes_on()
        assert copies(cluster) == {"A", "C"}
        assert cluster.tables()[P].node_list == ("A", "C")
        wait_until(lambda: at(cluster, "B").state == "Active", "it is told")
        with pytest.raises(RefusedError, match="B has not defined p in this run: define it first"):
            at(cluster, "B").enable()
        at(cluster, "B").define(("A", "B", "C"), 1)
        at(cluster, "B").enable()
        wait_until(lambda: cluster.tables()[P].node_list == ("A", "B", "C"), "B is back")
        counting.goes_on()


@pytest.mark.feature("P8")
def test_when_all_were_restarted_the_first_to_enable_it_brings_back_what_was_there(cluster: Cluster) -> None:
    place(cluster, "A", "B")
    with Counting(cluster) as counting:
        counting.goes_on()
    for name in "AB":
        cluster.kill(name)
    wait_until(lambda: at(cluster, "C").state == "Unavailable", "nobody has it")
    for name in "AB":
        cluster.restart(name)
    assert copies(cluster) == set()
    at(cluster, "B").define(("A", "B"))
    at(cluster, "B").enable()
    node = cluster.node("C")
    with node.transaction():
        assert node.get(Counter, "x").value == counting.told
    wait_until(lambda: copies(cluster) == {"A", "B"}, "A has its copy, too")


@pytest.mark.feature("P7", "R7")
def test_with_a_quorum_it_is_placed_too_and_the_quorum_is_that_of_its_nodes() -> None:
    cluster = unplaced(quorum=True)
    try:
        place(cluster, "A", "B", "C")
        assert cluster.tables()[P].quorum == 2
        for name in "AB":
            cluster.kill(name)
            node = cluster.restart(name)
            wait_until(lambda node=node: len(node.runtime.members.alive) == 3, "it is there")  # type: ignore[misc]
        cluster.kill("C")
        wait_until(lambda: len(cluster.node("A").runtime.router.nodes) == 2, "C is gone")
        cluster.restart("C")
        at(cluster, "A").define(("A", "B"))
        with pytest.raises(RefusedError, match="p has not been enabled by a majority of A, B, C since"):
            at(cluster, "A").enable()
        at(cluster, "A").define(("A", "B", "C"))
        at(cluster, "A").enable()
        wait_until(lambda: len(cluster.tables()[P].node_list) == 3, "it is back")
    finally:
        cluster.close()


@pytest.mark.feature("P7")
def test_the_active_node_disables_it_and_the_next_one_goes_on(cluster: Cluster) -> None:
    place(cluster, "A", "B")
    with Counting(cluster) as counting:
        counting.goes_on()
        at(cluster, "A").disable(wait_s=60)
        assert is_on(cluster, "B")
        wait_until(lambda: copies(cluster) == {"B"}, "A deletes its copy")
        prefix = bytes.fromhex(cluster.tables()[P].log_id)[:8]
        assert not [k for k in cluster.disks["A"].data if k.startswith(prefix)]
        wait_until(lambda: at(cluster, "A").status == "LocalDisabled", "it is told")
        counting.goes_on()
        with pytest.raises(RefusedError, match="p is disabled on A: enable it there first"):
            cluster.node("B").runtime.operators.migrate(P, ("A", "B"))
        at(cluster, "A").enable(wait_s=60)
        assert is_on(cluster, "A", "B")
        counting.goes_on()


@pytest.mark.feature("P7", "P8")
def test_it_is_not_disabled_while_only_nodes_are_left_that_have_not_enabled_it(cluster: Cluster) -> None:
    place(cluster, "A", "B")
    cluster.kill("B")
    node = cluster.restart("B")
    wait_until(lambda: len(node.runtime.members.alive) == 3, "B is there")
    wait_until(lambda: "B" in {n.name for n in cluster.node("A").runtime.router.nodes.values()}, "A knows it")
    before = cluster.tables()[P]
    with pytest.raises(RefusedError, match="B would have p without A, and has not enabled it since"):
        at(cluster, "A").disable()
    assert cluster.tables()[P].definitions == before.definitions
    at(cluster, "B").define(("A", "B"))
    at(cluster, "B").enable()
    at(cluster, "A").disable(wait_s=60)
    assert is_on(cluster, "B")


@pytest.mark.feature("P7")
def test_what_the_configuration_places_is_disabled_by_the_api_and_stays_so() -> None:
    with Cluster(3, partitions=1, registry=REGISTRY) as cluster:
        there = cluster.node("A").partitions["test-0"]
        wait_until(lambda: (there.status, there.state) == ("LocalEnabled", "Active"), "it is told")
        there.disable(wait_s=60)
        assert cluster.tables()["test-0"].configured == ("B", "C")
        cluster.kill("A")
        node = cluster.restart("A")
        assert "test-0" not in node.runtime.copies
        wait_until(lambda: node.partitions["test-0"].status == "LocalDisabled", "it is told")
        node.partitions["test-0"].enable(wait_s=60)
        assert cluster.tables()["test-0"].configured == ("A", "B", "C")


@pytest.mark.feature("P7", "P8")
def test_on_its_only_node_it_stays_readable_and_takes_nothing_new(cluster: Cluster) -> None:
    place(cluster, "A")
    with Counting(cluster) as counting:
        counting.goes_on()
    at(cluster, "A").disable()
    for name in "AC":
        wait_until(lambda name=name: at(cluster, name).state == "Unavailable", "it is told")  # type: ignore[misc]
        node = cluster.node(name)
        with node.transaction():
            assert node.get(Counter, "x").value == counting.told
        with pytest.raises(RefusedError, match="p is disabled on A, the only node it has"), node.transaction():
            node.create(Counter("y"))
        with pytest.raises(RefusedError, match="takes nothing new"), node.transaction():
            node.get(Counter, "x").value += 1
    cluster.kill("A")
    cluster.restart("A")
    at(cluster, "A").define(("A", "B"))
    wait_until(lambda: at(cluster, "C").state == "Unavailable", "it is as it was")
    with cluster.node("C").transaction():
        assert cluster.node("C").get(Counter, "x").value == counting.told
    with pytest.raises(RefusedError, match="takes nothing new"), cluster.node("C").transaction() as tx:
        tx.create(Counter("y"))
    at(cluster, "A").enable()
    wait_until(lambda: at(cluster, "C").state == "Active", "it is told")
    with cluster.node("C").transaction() as tx:
        tx.create(Counter("y"))


@pytest.mark.feature("P9", "P10")
def test_a_foreign_partition_is_known_and_used_and_never_hosted(cluster: Cluster) -> None:
    """C knows state and list; what it creates and changes goes to the active node and its replica; when both are gone
    it does not stand for it."""
    place(cluster, "A", "B")
    there = at(cluster, "C")
    with pytest.raises(NodeListsError, match="as a foreign partition on B, A, and the cluster has it on A, B"):
        there.define(("B", "A"))
    assert "C" not in cluster.tables()[P].definitions
    there.define(("A", "B"))
    there.enable()
    known = (True, "LocalEnabled", "Active", ("A", "B"))
    wait_until(lambda: (there.foreign, there.status, there.state, there.node_list) == known, "it is told")
    node = cluster.node("C")
    with node.transaction():
        node.create(Counter("x", 1))
    with node.transaction():
        node.get(Counter, "x").value = 2
    wait_until(
        lambda: len({cluster.node(n).runtime.copies[P].core.state.chain.state.lsn for n in "AB"}) == 1, "B has it, too"
    )
    cluster.kill("A")
    wait_until(lambda: (there.active, there.node_list, there.state) == ("B", ("B",), "Active"), "the list is current")
    at(cluster, "B").define(("B",))
    at(cluster, "B").enable(wait_s=60)
    wait_until(lambda: there.nodes == ("B",), "the list is current")
    assert cluster.tables()[P].definitions["C"].nodes == ("B",), "and so is what C said of it"
    cluster.kill("B")
    wait_until(lambda: there.state == "Unavailable", "nobody can be active")
    assert copies(cluster) == set()
    assert cluster.tables()[P].active is None or cluster.tables()[P].active.node == "B"  # type: ignore[union-attr]


@pytest.mark.feature("P10", "P13")
def test_a_plan_leaves_a_partition_alone_while_a_running_node_says_otherwise() -> None:
    with Cluster(3, partitions=2, registry=REGISTRY) as cluster:
        cluster.node("C").partitions["test-0"].define(("C", "A"))
        made = plans.make(fewer(cluster), list(cluster.tables().values()), "ABC", "ABC", ["test"])
        assert [m.partition for m in made.moves] == ["test-1"], "the others move"
        said = "C has defined test-0 on C, A and not enabled it, and the cluster has it on A, B, C"
        assert said in made.stay["test-0"]
        made = plans.make(fewer(cluster), list(cluster.tables().values()), "AB", "AB", ["test"], replaced="C")
        assert not made.stay, "C is gone for good"
        cluster.kill("C")
        cluster.restart("C")
        assert "C" not in cluster.tables()["test-0"].definitions


@pytest.mark.feature("P10", "P13")
def test_node_lists_that_differ_are_found_before_objects_are_mapped_anew() -> None:
    """The error names both lists and who has them; nothing is changed before they agree."""
    with Cluster(3, partitions=2, registry=REGISTRY) as cluster:
        node, listed = cluster.node("B"), cluster.tables()["test-1"].configured
        cluster.node("C").partitions["test-1"].define(("C", "A"))
        wait_until(lambda: node.runtime.router.tables["test-1"][1].definitions, "B knows it")
        before = node.runtime.adapters.coordinator.get("policies/test")
        policy = replace(cluster.config.policies["test"], ring_size=999)
        wanted = replace(cluster.config, policies={"test": policy})
        with pytest.raises(NodeListsError, match="C has defined test-1 on C, A and not enabled it, and the") as caught:
            node.runtime.operators.rebalance("test", wanted)
        assert caught.value.evidence["lists"] == [
            {"partition": "test-1", "node": "C", "defined": ["C", "A"], "listed": [*listed]}
        ]
        assert caught.value.exit_code == 5
        with pytest.raises(NodeListsError):
            wishes.check(node.runtime.adapters.coordinator, node.runtime.router, wanted, "test")
        assert node.runtime.adapters.coordinator.get("policies/test") == before
        cluster.node("C").partitions["test-1"].define(listed)  # B need not have heard
        assert node.runtime.operators.rebalance("test", wanted, wait_s=20) == 1


def fewer(cluster: Cluster) -> Config:
    """One copy less of each partition."""
    policy = cluster.config.policies["test"]
    less = replace(policy, sync_replicas=1, async_replicas=0)
    return replace(cluster.config, policies={"test": less})


@pytest.mark.feature("P7")
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(cluster: Cluster) -> None:
    before = cluster.tables()[P]
    with pytest.raises(UnknownNameError, match="there is no node X; known are A, B, C"):
        at(cluster, "A").define(("X",))
    for nodes, said in (((), "at least one node"), (("A", "A"), "A is named twice")):
        with pytest.raises(RefusedError, match=said):
            at(cluster, "A").define(nodes)
    with pytest.raises(RefusedError, match="p is not enabled on A"):
        at(cluster, "A").disable()
    with pytest.raises(RefusedError, match="A has not defined p"):
        at(cluster, "A").enable()
    with pytest.raises(RefusedError, match=r"client-0 is none of \[nodes\]"):
        cluster.client().partitions[P].define(("A",))  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="there is no partition q"):
        at(cluster, "A", "q")
    assert cluster.tables()[P] == before


@pytest.mark.feature("P7", "P12")
def test_enabling_waits_for_a_node_that_is_away_and_another_definition_takes_its_place(cluster: Cluster) -> None:
    place(cluster, "A", "B")
    cluster.kill("C")
    wait_until(lambda: len(cluster.node("A").runtime.router.nodes) == 2, "C is gone")
    at(cluster, "A").define(("C", "A"))
    with pytest.raises(DeadlineError, match="C makes its copy"):
        at(cluster, "A").enable(wait_s=0.2)
    at(cluster, "B").define(("B", "A"))
    with pytest.raises(RefusedError, match="moving to C, A already"):
        at(cluster, "B").enable()
    at(cluster, "B").enable(replace=True, wait_s=60)
    assert is_on(cluster, "B", "A")
