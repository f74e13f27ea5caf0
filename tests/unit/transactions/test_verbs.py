"""The verbs of a transaction (D1, D2), with methods run here and elsewhere alike."""

from __future__ import annotations

import copy
import pickle

import pytest

from halog.errors import (
    DuplicateKeyError,
    FieldTypeError,
    NotFoundError,
    NoTransactionError,
    UnknownTypeError,
)
from halog.schema import Ref
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions import space
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, Glider, NeverDeclared, Place, Plain

pytestmark = pytest.mark.feature("D1")


def test_a_created_object_is_there_in_the_next_transaction(node: MemoryNode) -> None:
    with node.transaction():
        made = Aircraft("N1", miles=5)
        assert node.create(made) is made
    with node.transaction() as tx:
        assert tx.get(Aircraft, "N1") == Aircraft("N1", 0, 5)


def test_the_same_object_is_the_same_python_object(node: MemoryNode) -> None:
    with node.transaction() as tx:
        made = tx.create(Account("ann", 1))
        assert tx.get(Account, "ann", 1) is made
        assert tx.get(Account, ("ann", 1)) is made
        assert tx.resolve(tx.ref(made)) is made
        assert list(tx.extent(Account)) == [made]
    with node.transaction() as tx:
        one = tx.get(Account, "ann", 1)
        assert tx.find(Account, "ann", 1) is one is next(tx.extent(Account))


def test_get_raises_and_find_returns_none_where_nothing_is(node: MemoryNode) -> None:
    with node.transaction() as tx:
        assert tx.find(Aircraft, "N1") is None
        with pytest.raises(NotFoundError, match="Aircraft 'N1' does not exist"):
            tx.get(Aircraft, "N1")


@pytest.mark.parametrize("key", [(), (1,), (None,), (["N1"],), ("a", "b"), (b"N1",)])
def test_a_key_of_a_wrong_type_is_named(node: MemoryNode, key: tuple[object, ...]) -> None:
    with node.transaction() as tx, pytest.raises(FieldTypeError, match="Aircraft"):
        tx.find(Aircraft, *key)


def test_true_is_no_int_even_after_one_was_looked_up(node: MemoryNode) -> None:
    """1 == True == 1.0 must not let a remembered key stand in for a wrong one."""
    with node.transaction() as tx:
        tx.create(Plain(1))
        assert tx.get(Plain, 1).id == 1
        for wrong in (True, 1.0):
            with pytest.raises(FieldTypeError):
                tx.get(Plain, wrong)
        tx.create(Account("ann", 1))
        assert tx.get(Account, "ann", 1) is tx.get(Account, ("ann", 1))
        for key in (("ann", True), (("ann", True),), (("ann",),), ("ann",)):
            with pytest.raises(FieldTypeError):
                tx.get(Account, *key)


def test_remembered_places_are_bounded(here: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than are remembered, of several classes: each is found, again and again."""
    monkeypatch.setattr(space, "MAX_ROUTES", 3)
    with here.transaction() as tx:
        for n in range(5):
            tx.create(Plain(n, f"{n}"))
            tx.create(Aircraft(f"N{n}", n))
    for _ in range(2):
        with here.transaction() as tx:
            assert [tx.get(Plain, n).text for n in range(5)] == ["0", "1", "2", "3", "4"]
            assert [tx.get(Aircraft, f"N{n}").landings for n in range(5)] == [0, 1, 2, 3, 4]
        assert sum(map(len, here.space.routes.values())) <= 3


def test_what_is_remembered_of_a_place_is_not_older_than_what_is_committed(cluster: MemoryCluster) -> None:
    """An object read before, changed, deleted and made anew by another node."""
    with MemoryNode(cluster, REGISTRY) as one, MemoryNode(cluster, REGISTRY) as other:
        with other.transaction() as tx:
            tx.create(Plain(1, "a"))
        with one.transaction() as tx:
            assert tx.get(Plain, 1).text == "a"
        with other.transaction() as tx:
            tx.get(Plain, 1).text = "b"
        with one.transaction() as tx:
            assert tx.get(Plain, 1).text == "b"
        with other.transaction() as tx:
            tx.delete(tx.get(Plain, 1))
        with one.transaction() as tx:
            assert tx.find(Plain, 1) is None
        with other.transaction() as tx:
            tx.create(Plain(1, "c"))
        with one.transaction() as tx:
            assert tx.get(Plain, 1).text == "c"


def test_an_undeclared_class_is_named(node: MemoryNode) -> None:
    with node.transaction() as tx:
        for use in (lambda: tx.get(NeverDeclared, 1), lambda: tx.create(NeverDeclared()), lambda: tx.create(3)):
            with pytest.raises(UnknownTypeError, match="not declared"):
                use()


def test_a_deleted_object_is_gone(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Aircraft("N1"))
    with node.transaction() as tx:
        one = tx.get(Aircraft, "N1")
        tx.delete(one)
        assert tx.find(Aircraft, "N1") is None
        assert list(tx.extent(Aircraft)) == []
        with pytest.raises(NoTransactionError, match="deleted"):
            one.land(3)
    with node.transaction() as tx:
        assert tx.find(Aircraft, "N1") is None


def test_created_and_deleted_in_one_transaction_is_nothing(node: MemoryNode) -> None:
    before = node.state_hash()
    with node.transaction() as tx:
        tx.delete(tx.create(Aircraft("N1")))
        assert tx.find(Aircraft, "N1") is None
    assert node.state_hash() == before
    assert tx.lsn is None


def test_created_over_an_unseen_one_and_deleted_shows_the_committed_one(node: MemoryNode) -> None:
    """A delete of what was only created here must not hide, nor delete, what was there before."""
    with node.transaction() as tx:
        tx.create(Aircraft("N1", miles=7))
    with node.transaction() as tx:
        tx.delete(tx.create(Aircraft("N1")))
        assert tx.get(Aircraft, "N1").miles == 7
    with node.transaction() as tx:
        tx.delete(tx.create(Aircraft("N1")))
        assert [a.miles for a in tx.extent(Aircraft)] == [7]
    with node.transaction() as tx:
        assert tx.get(Aircraft, "N1").miles == 7


def test_delete_and_create_is_a_new_instance(node: MemoryNode) -> None:
    with node.transaction() as tx:
        old = node.ref(tx.create(Aircraft("N1", miles=7)))
    with node.transaction() as tx:
        tx.delete(tx.get(Aircraft, "N1"))
        new = tx.ref(tx.create(Aircraft("N1", miles=1)))
        assert new != old
    with node.transaction() as tx:
        assert tx.resolve(new).miles == 1
        with pytest.raises(NotFoundError, match="gone"):
            tx.resolve(old)


def test_a_reference_outlives_changes_and_may_be_a_field(node: MemoryNode) -> None:
    with node.transaction() as tx:
        bob = tx.create(Account("x", 2))
        tx.create(Account("x", 1, friend=tx.ref(bob)))
        bob.balance = 4
    with node.transaction() as tx:
        friend = tx.get(Account, "x", 1).friend
        assert friend is not None
        assert isinstance(friend, Ref)
        assert tx.resolve(friend).balance == 4
        assert tx.ref(tx.resolve(friend)) == friend


def test_a_reference_is_had_from_a_committed_object_too(node: MemoryNode) -> None:
    with node.transaction():
        made = node.create(Aircraft("N1"))
    ref = node.ref(made)
    with node.transaction():
        assert node.resolve(ref).tail == "N1"


def test_create_where_the_key_is_known_to_exist_is_refused_at_once(node: MemoryNode) -> None:
    with node.transaction() as tx:
        one = tx.create(Aircraft("N1"))
        for again in (one, Aircraft("N1")):
            with pytest.raises(DuplicateKeyError, match="Aircraft 'N1'"):
                tx.create(again)


def test_create_of_an_existing_key_is_a_duplicate_at_commit(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Aircraft("N1", miles=7))
    before = node.state_hash()
    with pytest.raises(DuplicateKeyError, match="Aircraft 'N1' exists"), node.transaction() as tx:
        tx.create(Aircraft("N1"))
    assert node.state_hash() == before
    assert tx.outcome == "rolled back"


def test_subclasses_share_the_key_space_and_are_found_as_their_base(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Glider("G1", span=18.0))
        tx.create(Aircraft("N1"))
    with node.transaction() as tx:
        glider = tx.get(Aircraft, "G1")
        assert isinstance(glider, Glider)
        assert tx.get(Glider, "G1") is glider
        assert tx.find(Glider, "N1") is None
        assert sorted(a.tail for a in tx.extent(Aircraft)) == ["G1", "N1"]
        assert [a.tail for a in tx.extent(Glider)] == ["G1"]


@pytest.mark.feature("D2")
def test_an_extent_shows_all_partitions_and_this_transaction(spread: MemoryNode) -> None:
    spread.load(Plain(i) for i in range(50))
    with spread.transaction() as tx:
        assert sorted(p.id for p in tx.extent(Plain)) == list(range(50))
        assert list(tx.extent(Aircraft)) == []


def test_changes_in_place_are_noticed(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Account("x", 1))
    with node.transaction() as tx:
        one = tx.get(Account, "x", 1)
        one.tags.append("new")
        one.limits["day"] = 5
        one.place.visits += 1
    with node.transaction() as tx:
        again = tx.get(Account, "x", 1)
        assert (again.tags, again.limits, again.place) == (["new"], {"day": 5}, Place("Bern", 1))


def test_a_change_in_place_that_is_rolled_back_is_not_seen_by_anyone(node: MemoryNode) -> None:
    """Decoded values are shared between transactions; nobody may change them."""
    with node.transaction() as tx:
        tx.create(Account("x", 1, tags=["a"]))
    with pytest.raises(RuntimeError), node.transaction() as tx:
        one = tx.get(Account, "x", 1)
        one.tags.append("lost")
        one.place.city = "Lost"
        raise RuntimeError
    with node.transaction() as tx:
        assert tx.get(Account, "x", 1) == Account("x", 1, tags=["a"])


def test_only_reading_writes_nothing(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Account("x", 1, tags=["a"]))
        tx.create(Aircraft("N1"))
    before = node.state_hash()
    with node.transaction() as tx:
        one = tx.get(Account, "x", 1)
        one.balance = one.balance
        one.tags = list(one.tags)
        assert tx.get(Aircraft, "N1").miles == 0
    assert node.state_hash() == before
    assert tx.lsn is None


def test_a_wrong_type_is_noticed_even_if_it_compares_equal(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Aircraft("N1", miles=1))
    before = node.state_hash()
    with pytest.raises(FieldTypeError, match=r"Aircraft\.miles: expected int, got bool"), node.transaction() as tx:
        tx.get(Aircraft, "N1").miles = True
    assert node.state_hash() == before


def test_an_attribute_that_is_no_field_is_not_lost_in_silence(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Aircraft("N1"))
    with pytest.raises(FieldTypeError, match=r"Aircraft\.mile: not a field"), node.transaction() as tx:
        tx.get(Aircraft, "N1").mile = 3  # type: ignore[attr-defined]
    with node.transaction() as tx:
        tx.get(Aircraft, "N1")._cache = 3  # type: ignore[attr-defined]


def test_a_deleted_field_is_named(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Account("x", 1))
    with pytest.raises(FieldTypeError, match="tags"), node.transaction() as tx:
        del tx.get(Account, "x", 1).tags


def test_copies_of_an_object_are_plain_objects(node: MemoryNode) -> None:
    with node.transaction() as tx:
        one = tx.create(Account("x", 1))
        for plain in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301 - our own bytes, a moment old
            plain.tags.append("plain")
            plain.tag("by method")
            assert plain.tags == ["plain", "by method"]
            with pytest.raises(NoTransactionError):
                tx.delete(plain)
        assert one.tags == []
