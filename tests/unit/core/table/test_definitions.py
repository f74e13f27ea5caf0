"""What nodes say of a partition: definitions, statuses, who may host it, and what becomes of it (P7, P8, P10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.table.definitions import (
    Status,
    admitting,
    defined,
    differing,
    disabled,
    enabled,
    forgotten,
    listed,
    status,
    why_nobody_is_left,
    why_not_define,
    why_not_disable,
    why_not_enable,
)
from halog.core.table.migration import assigned, moving, why_not, why_not_assigned
from halog.core.table.table import (
    DEFINED,
    DISABLED,
    ENABLED,
    SYNC,
    PartitionDefinition,
    PartitionTable,
    Replica,
    Target,
)
from tests.unit.core.kit import A, B, Core, create, epoch, table, tx, update

AB, CB = Target(("A", "B"), 1), Target(("C", "B"), 1)


def unplaced(**changes: Any) -> PartitionTable:
    """The application places it, and has not."""
    return table(**{"configured": (), "sync": 0, "admitted": (), **changes})


def on_ab(**changes: Any) -> PartitionTable:
    """The application placed it on A and B."""
    base: dict[str, Any] = {
        "configured": ("A", "B"),
        "admitted": ("A", "B"),
        "epoch": epoch(1),
        "active": A,
        "replicas": (Replica("B", 2, SYNC),),
        "definitions": {"A": PartitionDefinition(("A", "B"), 1, ENABLED)},
    }
    return table(**{**base, **changes})


# --- statuses ---


@pytest.mark.feature("P8")
def test_the_statuses_of_a_partition_that_the_application_places() -> None:
    t = unplaced()
    assert {status(t, n) for n in "ABC"} == {Status.UNDEFINED}
    t = defined(t, "A", AB)
    assert (status(t, "A"), status(t, "B")) == (Status.LOCAL_DEFINED, Status.REMOTE_DEFINED)
    t, target = enabled(t, "A", "AB")
    assert target == AB
    assert (status(t, "A"), status(t, "B"), status(t, "C")) == (
        Status.LOCAL_ENABLED,
        Status.REMOTE_ENABLED,
        Status.REMOTE_ENABLED,
    )
    t, _ = disabled(on_ab(), "B")
    assert status(t, "B") is Status.LOCAL_DISABLED


@pytest.mark.feature("P8")
def test_what_the_configuration_places_is_defined_and_enabled_by_it_everywhere() -> None:
    """Until a node says something of its own."""
    t = table()
    assert {status(t, n) for n in "ABCD"} == {Status.LOCAL_ENABLED}
    assert status(defined(t, "C", CB), "C") is Status.LOCAL_DEFINED
    assert status(disabled(t, "C")[0], "C") is Status.LOCAL_DISABLED


@pytest.mark.feature("P8")
def test_a_new_run_of_a_node_has_said_nothing_where_the_application_places_it() -> None:
    t = forgotten(on_ab(), "A")
    assert t.present == ("B",)
    assert status(t, "A") is Status.REMOTE_DEFINED, "nobody else has enabled it"
    assert status(t, "B") is Status.REMOTE_ENABLED, "it was there when A did"


@pytest.mark.feature("P7", "P8")
def test_a_new_run_takes_no_disable_back() -> None:
    configured = disabled(table(), "A")[0]
    assert forgotten(configured, "A") is configured, "only through the API is it enabled again"
    own, _ = disabled(on_ab(), "A")
    after = forgotten(own, "A")
    assert (status(after, "A"), after.present) == (Status.LOCAL_DISABLED, ("B",))
    shut, _ = disabled(on_ab(configured=("A",), admitted=("A",), replicas=()), "A")
    assert forgotten(shut, "A") is shut, "who else could let it be read?"


@pytest.mark.feature("P7", "P8")
def test_a_wish_that_was_not_enabled_ends_with_the_run_of_its_node() -> None:
    for before in (table(), on_ab()):
        assert "C" not in forgotten(defined(before, "C", CB), "C").definitions
    said = enabled(defined(table(), "C", CB), "C", "ABC")[0]
    assert forgotten(said, "C") is said, "the configuration has enabled it"


# --- define ---


@pytest.mark.feature("P7")
def test_a_definition_changes_nothing_but_itself() -> None:
    before = on_ab()
    after = defined(before, "C", CB)
    assert after.definitions["C"] == PartitionDefinition(("C", "B"), 1, DEFINED)
    assert msgspec.structs.replace(after, definitions=before.definitions) == before


@pytest.mark.feature("P7")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (Target((), 0), "at least one node"),
        (Target(("C", "C"), 1), "C is named twice"),
        (Target(("C", "B"), 2), "1 sync replicas at most"),
    ],
)
def test_a_list_that_cannot_be_is_refused(target: Target, said: str) -> None:
    assert said in (why_not_define(on_ab(), "C", target) or "")


@pytest.mark.feature("P9", "P10")
def test_a_foreign_partition_is_defined_as_the_cluster_has_it() -> None:
    said = why_not_define(on_ab(), "C", Target(("B", "A"), 1)) or ""
    assert "on B, A, and the cluster has it on A, B" in said
    assert why_not_define(on_ab(), "C", AB) is None
    assert why_not_define(on_ab(target=CB), "D", CB) is None, "where it goes is where it is to be"
    assert why_not_define(unplaced(), "C", AB) is None, "there is no other list yet"
    assert why_not_define(on_ab(), "C", CB) is None, "a wish of its own is no inconsistency"


@pytest.mark.feature("P10", "P13")
def test_a_definition_not_in_effect_is_an_inconsistency_once_all_is_planned() -> None:
    assert differing(on_ab(), "ABC") == []
    (found,) = differing(defined(on_ab(), "C", CB), "ABC")
    assert found == ("p", "C", ("C", "B"), ("A", "B"))
    assert "C has defined p on C, B and not enabled it, and the cluster has it on A, B" in str(found)
    assert differing(defined(on_ab(), "C", AB), "ABC") == []
    assert differing(defined(on_ab(), "C", CB), "AB") == [], "C cannot decide, and its wish ends with its run"
    both = defined(defined(on_ab(), "C", CB), "B", Target(("B", "A"), 1))
    assert [d.node for d in differing(both, "ABC")] == ["C", "B"]


# --- enable ---


@pytest.mark.feature("P7")
def test_who_has_not_defined_it_cannot_enable_it() -> None:
    assert "C has not defined p in this run" in (why_not_enable(on_ab(), "C") or "")
    assert why_not_enable(table(), "C") is None, "the configuration has"
    assert enabled(table(), "C", "ABC") == (table(), None), "and enabled it, too"


@pytest.mark.feature("P7")
def test_enabling_where_it_is_already_moves_nothing() -> None:
    t = defined(on_ab(), "B", AB)
    after, target = enabled(t, "B", "AB")
    assert target is None
    assert status(after, "B") is Status.LOCAL_ENABLED
    assert enabled(after, "B", "AB") == (after, None)


@pytest.mark.feature("P7")
def test_all_nodes_that_hear_of_it_may_host_it_and_no_others() -> None:
    """B is down: it has to say so itself when it comes."""
    after, _ = enabled(defined(unplaced(), "A", AB), "A", "AC")
    assert after.admitted == ("A",)
    assert admitting(after, ("A", "B"), "AB").admitted == ("A", "B")
    assert admitting(table(), ("A", "B"), "AB").admitted is None, "the configuration places it"


@pytest.mark.feature("P7", "R7")
def test_nothing_speaks_against_the_first_placement_with_a_quorum() -> None:
    """Nobody has had it, so nobody is missed; the quorum is that of the nodes it gets."""
    empty = unplaced(quorum=1)
    assert why_not_assigned(empty, unlogged=True) is None
    assert assigned(empty, Target(("A", "B", "C"), 1)).quorum == 2


@pytest.mark.feature("P8", "R7")
def test_a_quorum_that_has_not_enabled_it_again_is_named() -> None:
    said = why_not_assigned(on_ab(quorum=2, admitted=()), unlogged=False) or ""
    assert "p has not been enabled by a majority of A, B since they were started" in said
    assert "none of A, B is running" in (why_not_assigned(on_ab(quorum=2, admitted=None), unlogged=False) or "")


@pytest.mark.feature("P7", "P9")
def test_a_foreign_node_that_enables_it_only_says_so() -> None:
    after, target = enabled(defined(on_ab(), "C", AB), "C", "ABC")
    assert target is None
    assert after.admitted == ("A", "B")
    assert status(after, "C") is Status.LOCAL_ENABLED


@pytest.mark.feature("P7", "P8")
def test_definitions_in_effect_follow_where_it_goes_and_wishes_do_not() -> None:
    t = on_ab(
        definitions={
            "A": PartitionDefinition(("A", "B"), 1, ENABLED),
            "D": PartitionDefinition(("A", "B"), 1, DEFINED),
            "C": PartitionDefinition(("C", "B"), 1, DEFINED),
            "E": PartitionDefinition(("E", "A", "B"), 1, DISABLED),
        }
    )
    to = Target(("B",), 0)
    said = {n: (d.nodes, d.sync_replicas) for n, d in moving(t, to).definitions.items()}
    assert said == {"A": (("B",), 0), "D": (("B",), 0), "C": (("C", "B"), 1), "E": (("E", "A", "B"), 1)}


# --- disable ---


@pytest.mark.feature("P7")
def test_a_node_that_disables_it_leaves_its_place_to_the_next() -> None:
    after, target = disabled(on_ab(), "A")
    assert target == Target(("B",), 0)
    assert after.definitions["A"] == PartitionDefinition(("A", "B"), 1, DISABLED)
    assert enabled(after, "A", "AB")[1] is None, "it is on A still"
    gone = msgspec.structs.replace(after, configured=("B",), sync_replicas=0)
    assert enabled(gone, "A", "AB")[1] == AB, "enabled again it comes back to where it was"


@pytest.mark.feature("P7")
def test_another_definition_alone_undoes_no_disable() -> None:
    alone, _ = disabled(table(configured=("A",)), "A")
    after = defined(alone, "A", Target(("A", "B"), 1))
    assert after.shut
    assert status(after, "A") is Status.LOCAL_DISABLED
    assert disabled(after, "A")[0] == after
    opened, target = enabled(after, "A", "AB")
    assert (status(opened, "A"), target) == (Status.LOCAL_ENABLED, Target(("A", "B"), 1))


@pytest.mark.feature("P7")
def test_of_a_migration_under_way_only_that_node_is_taken_out() -> None:
    assert disabled(on_ab(target=Target(("C", "A", "B"), 2)), "A")[1] == Target(("C", "B"), 1)


@pytest.mark.feature("P7", "P8")
def test_it_is_left_only_to_nodes_that_host_it() -> None:
    """B was restarted: it has not enabled it, and nobody could move it once A has gone."""
    t = on_ab(admitted=("A",))
    said = why_nobody_is_left(t, "A", Target(("B",), 0), "AB") or ""
    assert "B would have p without A, and has not enabled it since it was started" in said
    assert why_nobody_is_left(t, "C", AB, "AB") is None
    assert why_nobody_is_left(on_ab(), "A", Target(("B",), 0), "AB") is None
    assert why_nobody_is_left(table(), "A", Target(("B",), 0), "AB") is None, "the configuration places it"


@pytest.mark.feature("P7", "P9")
def test_a_foreign_node_or_the_only_one_moves_nothing() -> None:
    assert disabled(on_ab(), "C")[1] is None
    alone, target = disabled(table(configured=("A",)), "A")
    assert target is None
    assert alone.shut
    assert not enabled(alone, "A", "A")[0].shut
    assert not moving(alone, Target(("B",), 0)).shut, "it is moved to a node that takes it"


@pytest.mark.feature("P7")
def test_what_is_not_enabled_cannot_be_disabled_and_a_disabled_node_is_no_target() -> None:
    assert "not enabled on B" in (why_not_disable(unplaced(), "B") or "")
    assert "disabled on C: enable it there first" in (why_not(disabled(on_ab(), "C")[0], CB) or "")


def only_node() -> Core:
    """A, active and alone."""
    core = Core(configured=("A",), sync=0)
    core.loaded()
    core.cas_ok()
    core.land()
    core.land()
    return core


@pytest.mark.feature("P7")
def test_disabled_on_its_only_node_it_takes_nothing_new_and_answers_what_it_took() -> None:
    core = only_node()
    core.submit(1)
    core.step(ev.TableSeen(9, disabled(core.p.state.table, "A")[0]))
    core.acknowledge()
    assert core.replies() == [res.Success(2)], "it was in flight"
    core.submit(2, create(b"other"))
    (refused,) = core.replies()
    assert isinstance(refused, res.Refusal)
    assert "p is disabled on A, the only node it has" in refused.why
    core.step(ev.TableSeen(10, enabled(core.p.state.table, "A", "A")[0]))
    core.submit(3, create(b"third"))
    assert core.of(fx.Append)


@pytest.mark.feature("P7")
def test_disabled_on_its_only_node_it_votes_for_whoever_only_reads_it() -> None:
    core = only_node()
    core.submit(1)
    core.acknowledge()
    core.step(ev.TableSeen(9, disabled(core.p.state.table, "A")[0]))
    found, both = {b"k": 2}, ("p", "q")
    core.step(ev.PrepareAsked(51, tx(51), "q", both, b"d", (), (update(b"k", 2),), found))
    (refused,) = core.replies()
    assert isinstance(refused, res.Refusal), "it would change"
    core.step(ev.PrepareAsked(52, tx(52), "q", both, b"d", ((b"k", 7),), (), found))
    (refused,) = core.replies()
    assert isinstance(refused, res.VersionConflict), "what it read is still checked"
    core.step(ev.PrepareAsked(53, tx(53), "q", both, b"d", ((b"k", 2),), (), found))
    core.acknowledge()
    assert core.replies() == [res.Success(3)]


# --- elections and the znode ---


@pytest.mark.feature("P8", "P10")
def test_an_election_does_not_wait_for_a_node_that_has_not_enabled_it() -> None:
    core = Core(B, configured=("A", "B"), admitted=("B",))
    core.alive(A)
    core.loaded()
    assert core.of(fx.SetTable), "A is up, and neither waited for nor asked"


@pytest.mark.feature("P7")
def test_a_table_nobody_said_anything_of_reads_as_before() -> None:
    """Nodes of older versions read it."""
    plain = table().to_bytes()
    assert not any(name in plain for name in (b"definitions", b"admitted", b"resync"))
    for t in (unplaced(), defined(on_ab(), "C", CB)):
        assert PartitionTable.from_bytes(t.to_bytes()) == t
    assert listed(on_ab(target=CB)) == ("C", "B")
