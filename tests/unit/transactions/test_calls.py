"""Method calls (R5, D1): the same here and on the active node elsewhere."""

from __future__ import annotations

import contextvars

import pytest

import halog.transactions as ht
from halog.backend import Invocation, Work
from halog.errors import (
    ConflictError,
    CrossPartitionError,
    FieldTypeError,
    HalogError,
    NotFoundError,
    RemoteCallError,
)
from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions.execute import execute
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, Plain, Refused

pytestmark = pytest.mark.feature("R5", "D1")


@pytest.fixture
def filled(node: MemoryNode) -> MemoryNode:
    with node.transaction() as tx:
        tx.create(Aircraft("N1", miles=10))
        tx.create(Account("x", 1, balance=10))
        tx.create(Account("x", 2))
    return node


def test_a_method_changes_its_object(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        assert one.land(5) == 15
        assert (one.landings, one.miles) == (1, 15)
        assert one.land_twice(miles=1) == 17
    with filled.transaction() as tx:
        assert tx.get(Aircraft, "N1") == Aircraft("N1", 3, 17)


def test_a_call_may_look_at_what_was_created_and_deleted_without_looking(filled: MemoryNode) -> None:
    """Account 2 is there all the time; only the call finds out, and what it read and changed counts."""
    with filled.transaction() as tx:
        tx.delete(tx.create(Account("x", 2)))
        assert tx.get(Account, "x", 1).transfer(2, amount=3) == 7
        assert tx.get(Account, "x", 2).balance == 3
    with filled.transaction() as tx:
        assert tx.get(Account, "x", 2).balance == 3
    with pytest.raises(ConflictError), filled.transaction() as tx:
        tx.delete(tx.create(Account("x", 2)))
        tx.get(Account, "x", 1).transfer(2, amount=1)
        contextvars.Context().run(_somebody_else_deposits, filled)


def _somebody_else_deposits(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.get(Account, "x", 2).balance += 1


def test_a_method_runs_where_the_object_is_active(cluster: MemoryCluster) -> None:
    with MemoryNode(cluster, REGISTRY, remote=True) as away:
        with away.transaction() as tx:
            one = tx.create(Aircraft("N1"))
            before = away.backend.requests
            one.land(1)
            one.land_twice(1)
            assert away.backend.requests - before == 2
        away.backend.active = True
        with away.transaction() as tx:
            one = tx.get(Aircraft, "N1")
            before = away.backend.requests
            one.land_twice(1)
            assert away.backend.requests == before


def test_a_call_sees_what_the_transaction_changed_before(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        one.miles = 100
        assert one.land(1) == 101
        one.miles += 1
        assert one.land(1) == 103
    with filled.transaction() as tx:
        assert tx.get(Aircraft, "N1").miles == 103


def test_a_method_reaches_other_objects_and_the_caller_sees_it(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        one, two = tx.get(Account, "x", 1), tx.get(Account, "x", 2)
        assert one.transfer(2, 4) == 6
        assert two.balance == 4
        assert tx.get(Account, "x", 2) is two
    with filled.transaction() as tx:
        assert [a.balance for a in tx.extent(Account)] == [6, 4]


def test_objects_found_and_changed_only_by_the_method_are_committed(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        tx.get(Account, "x", 1).transfer(2, 3)
    with filled.transaction() as tx:
        assert tx.get(Account, "x", 2).balance == 3


def test_what_a_method_leaves_alone_is_not_made_anew(filled: MemoryNode) -> None:
    """The caller may hold a list of an object; only objects the method changed get new values."""
    with filled.transaction() as tx:
        one, two = tx.get(Account, "x", 1), tx.get(Account, "x", 2)
        one.tags.append("a")
        held = one.tags
        two.tag("b")
        held.append("c")
        assert one.tags == ["a", "c"]


def test_a_method_creates_and_its_reference_comes_back(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        ref = tx.get(Aircraft, "N1").lend("N2", 4)
        made = tx.resolve(ref)
        assert made is tx.get(Aircraft, "N2")
        made.miles += 1
    with filled.transaction() as tx:
        assert tx.resolve(ref) == Aircraft("N2", 0, 5)
        assert tx.get(Aircraft, "N1").miles == 6


def test_a_method_deletes_and_the_callers_object_is_dead(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        two = tx.create(Aircraft("N2"))
        tx.get(Aircraft, "N1").scrap("N2")
        assert tx.find(Aircraft, "N2") is None
        with pytest.raises(HalogError):
            two.land(1)
    with filled.transaction() as tx:
        assert tx.find(Aircraft, "N2") is None


def test_a_method_replaces_an_instance(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        old = tx.ref(tx.get(Account, "x", 2))
        tx.get(Account, "x", 1).replace(2)
        assert tx.get(Account, "x", 2).balance == 1
    with filled.transaction() as tx:
        assert tx.ref(tx.get(Account, "x", 2)) != old


def test_a_methods_exception_leaves_the_transaction_as_before_the_call(filled: MemoryNode) -> None:
    """Not enough: both balances were changed by the method already."""
    with filled.transaction() as tx:
        one, two = tx.get(Account, "x", 1), tx.get(Account, "x", 2)
        one.balance = 11
        with pytest.raises(Refused):
            one.transfer(2, 50)
        assert (one.balance, two.balance) == (11, 0)
        one.transfer(2, 1)
    with filled.transaction() as tx:
        assert [a.balance for a in tx.extent(Account)] == [10, 1]


def test_objects_touched_only_by_a_failed_method_are_as_before(filled: MemoryNode) -> None:
    with filled.transaction() as tx, pytest.raises(Refused):
        tx.get(Account, "x", 1).transfer(2, 50)
    with filled.transaction() as tx:
        assert [a.balance for a in tx.extent(Account)] == [10, 0]


def test_what_a_failed_method_read_is_still_checked(filled: MemoryNode, cluster: MemoryCluster) -> None:
    """The caller goes on because of what the method saw, so it must still hold at commit."""
    with MemoryNode(cluster, REGISTRY) as rival, pytest.raises(ConflictError), filled.transaction() as tx:
        one = tx.get(Account, "x", 1)
        with pytest.raises(Refused):
            one.transfer(2, 50)
        one.tag("refused")
        _elsewhere(rival)


def _elsewhere(rival: MemoryNode) -> None:
    """Another client changes account 2, in a context of its own."""

    def change() -> None:
        with rival.transaction() as tx:
            tx.get(Account, "x", 2).balance += 1

    contextvars.Context().run(change)


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [("key", KeyError, "'key'"), ("own", Refused, "no slot"), ("exit", SystemExit, "3")],
)
def test_exceptions_arrive_as_their_own_class(
    filled: MemoryNode, how: str, kind: type[BaseException], text: str
) -> None:
    with filled.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        with pytest.raises(kind, match=text) as caught:
            one.refuse(how)
        assert type(caught.value) is kind
        assert one.landings == 0


def test_what_cannot_be_made_again_arrives_as_remote_call_error(filled: MemoryNode) -> None:
    with filled.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        with pytest.raises(RemoteCallError, match="Awkward: need 5, have 2") as caught:
            one.refuse("awkward")
    assert caught.value.evidence["class"].endswith("model:Awkward")
    assert "in refuse" in caught.value.evidence["traceback"]


def test_an_exception_of_a_module_not_named_stays_unknown(cluster: MemoryCluster) -> None:
    """[application] modules names whose exceptions may be built from the wire; nothing else is."""
    with MemoryNode(cluster, REGISTRY, remote=True) as node, node.transaction() as tx:
        one = tx.create(Aircraft("N1"))
        with pytest.raises(RemoteCallError, match="Refused"):
            one.refuse("own")


def test_arguments_and_results_of_wrong_types_change_nothing(cluster: MemoryCluster) -> None:
    with MemoryNode(cluster, REGISTRY, remote=True) as node, node.transaction() as tx:
        one = tx.create(Aircraft("N1"))
        with pytest.raises(FieldTypeError, match="land miles: expected int, got str"):
            one.land("far")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            one.land()  # type: ignore[call-arg]
        with pytest.raises(FieldTypeError, match="result"):
            one.badly_typed()
        assert one == Aircraft("N1")


def test_a_call_on_an_object_deleted_elsewhere_conflicts(filled: MemoryNode, cluster: MemoryCluster) -> None:
    def scrap() -> None:
        with rival.transaction() as tx:
            tx.delete(tx.get(Aircraft, "N1"))

    with MemoryNode(cluster, REGISTRY) as rival, pytest.raises(ConflictError), filled.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        contextvars.Context().run(scrap)
        one.land(1)


def test_a_repeated_call_has_no_effect_twice(cluster: MemoryCluster) -> None:
    """The active node keeps nothing: the same invocation gives the same answer."""
    backend = MemoryBackend(cluster)
    with MemoryNode(cluster, REGISTRY) as node, node.transaction() as tx:
        tx.create(Aircraft("N1"))
    info = REGISTRY.info(Aircraft)
    key = info.index_key(("N1",))
    args = info.methods["land"].encode_args((5,), {})
    call = Invocation(info.type_id, key, "land", args, Work((), ()))
    once, twice = (execute("memory-0", call, backend, REGISTRY) for _ in range(2))
    assert once == twice
    assert once.result is not None
    assert info.methods["land"].decode_result(once.result) == 5
    assert backend.fetch("memory-0", [key])[0] == once.found[0]


@pytest.mark.feature("U1")
@pytest.mark.parametrize(("method", "fails"), [("land", False), ("fly", True)])
def test_what_a_later_version_adds_to_a_work_comes_back_from_a_call(
    cluster: MemoryCluster, method: str, fails: bool
) -> None:
    """The caller's halog may be newer than that of the node which runs the method."""
    with MemoryNode(cluster, REGISTRY) as node, node.transaction() as tx:
        tx.create(Aircraft("N1"))
    info = REGISTRY.info(Aircraft)
    work = Work((), (), later={"traces": b"\x81"})
    args = b"" if fails else info.methods[method].encode_args((5,), {})
    call = Invocation(info.type_id, info.index_key(("N1",)), method, args, work)
    done = execute("memory-0", call, MemoryBackend(cluster), REGISTRY)
    assert (done.error is not None) == fails
    assert done.work.later == work.later


@pytest.mark.parametrize(("key", "method", "kind"), [("N9", "land", "NotFoundError"), ("N1", "fly", "RemoteCallError")])
def test_a_call_of_nothing_is_answered_with_an_error(here: MemoryNode, key: str, method: str, kind: str) -> None:
    with here.transaction() as tx:
        tx.create(Aircraft("N1"))
    info = REGISTRY.info(Aircraft)
    call = Invocation(info.type_id, info.index_key((key,)), method, b"", Work((), ()))
    invoked = here.executor("memory-0", call)
    assert invoked.result is None
    assert invoked.error is not None
    assert invoked.error["class"] == f"halog.errors:{kind}"


@pytest.mark.parametrize("remote", [False, True])
def test_a_method_cannot_leave_its_partition_wherever_it_runs(remote: bool) -> None:
    with MemoryNode(MemoryCluster(12), REGISTRY, remote=remote) as node, node.transaction() as tx:
        tails = [f"N{i}" for i in range(12)]
        home = {tail: tx.space.route(Aircraft, (tail,)).partition for tail in tails}
        other = next(tail for tail in tails if home[tail] != home["N0"])
        with pytest.raises(CrossPartitionError, match="N0.*" + other):
            tx.create(Aircraft("N0")).lend(other, 3)


@pytest.mark.parametrize("remote", [False, True])
def test_a_method_sees_an_extent_if_its_partition_has_all_of_it(remote: bool) -> None:
    """Else the error says that it cannot, at once, wherever it runs; it said that a key was malformed."""
    with MemoryNode(MemoryCluster(1), REGISTRY, remote=remote) as node, node.transaction() as tx:
        assert tx.create(Aircraft("N0")).fleet() == ["N0"]
    with MemoryNode(MemoryCluster(12), REGISTRY, remote=remote) as node, node.transaction() as tx:
        for i in range(12):
            tx.create(Aircraft(f"N{i}"))
        with pytest.raises(CrossPartitionError, match="an extent of Aircraft reads 12 partitions"):
            tx.get(Aircraft, "N0").fleet()
        assert len(list(tx.extent(Aircraft))) == 12


def test_inside_a_method_the_current_transaction_is_the_callers(here: MemoryNode) -> None:
    with here.transaction() as tx:
        tx.create(Plain(1))
        assert ht.current() is tx
        with pytest.raises(NotFoundError):
            tx.create(Aircraft("N1")).scrap("N2")
        assert ht.current() is tx
