"""Objects that were only looked at share what they were made from, and nothing an application can do shows it."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import halog.transactions as ht
from halog.errors import FieldTypeError, NotFoundError, NoTransactionError
from halog.schema import Registry, managed
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions import Transaction
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, Glider, Plain

pytestmark = pytest.mark.feature("D1")

OWN = Registry()


class Guard:
    def __setattr__(self, name: str, value: object) -> None:
        if name == "__dict__" or (name == "level" and isinstance(value, int) and value < 0):
            raise ValueError(f"not this {name}")
        super().__setattr__(name, value)


@managed(key="id", registry=OWN)
class Guarded(Guard):
    """A base that is not managed may have a say in assignments."""

    id: int
    level: int = 0


@managed(key="id", registry=OWN)
class Sender:
    """Lists can be changed in place, so its objects have entries from the start."""

    id: int
    sent: list[int]

    def give(self, amount: int) -> None:
        ht.current().get(Receiver, self.id).amount += amount
        raise ValueError("changed its mind")


@managed(key="id", registry=OWN)
class Receiver:
    id: int
    amount: int = 0


def warm(node: MemoryNode, *numbers: int) -> None:
    """From now on these are found without looking them up."""
    with node.transaction() as tx:
        for n in numbers:
            tx.find(Plain, n)


def something(tx: Transaction) -> None:
    """A transaction's first object has an entry from the start."""
    assert tx.find(Plain, 1000) is None


def texts(node: MemoryNode, *numbers: int) -> list[str]:
    with node.transaction() as tx:
        return [tx.get(Plain, n).text for n in numbers]


# --- nothing is shared ---


def by_assignment(obj: Plain, text: str) -> None:
    obj.text = text


def by_dict(obj: Plain, text: str) -> None:
    vars(obj)["text"] = text


def by_another_dict(obj: Plain, text: str) -> None:
    obj.__dict__ = {**obj.__dict__, "text": text}


def by_deletion(obj: Plain, text: str) -> None:
    del obj.text
    obj.text = text


CHANGES: list[Callable[[Plain, str], None]] = [by_assignment, by_dict, by_another_dict, by_deletion]
STEP = st.tuples(st.integers(0, 2), st.sampled_from([None, *CHANGES]), st.sampled_from(["", "a", "b"]))
LIVES = st.lists(st.tuples(st.booleans(), st.lists(STEP, max_size=6), st.booleans()), max_size=8)


@given(lives=LIVES)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_every_transaction_sees_what_was_committed_and_what_it_did_itself(
    lives: list[tuple[bool, list[tuple[int, Callable[[Plain, str], None] | None, str]], bool]],
) -> None:
    """Against a dict: objects of earlier transactions are kept, some spoilt after the end, and nobody else notices."""
    with MemoryNode(MemoryCluster(partitions=1), REGISTRY) as node:
        node.load(Plain(n) for n in range(3))
        committed = dict.fromkeys(range(3), "")
        kept: list[tuple[Plain, str]] = []
        for commits, steps, spoil in lives:
            view, mine = dict(committed), {}
            tx = node.transaction().__enter__()
            for number, change, text in steps:
                obj = mine[number] = tx.get(Plain, number)
                assert obj is tx.get(Plain, number)
                assert obj.text == view[number]
                if change is not None:
                    change(obj, text)
                    view[number] = text
            tx.__exit__(*((None, None, None) if commits else (KeyError, KeyError(), None)))
            if commits:
                committed = view
            for number, obj in mine.items():
                if spoil:
                    vars(obj).update(text="spoilt", _halog=None)
                kept.append((obj, "spoilt" if spoil else view[number]))
            assert texts(node, *range(3)) == [*committed.values()]
            assert all(obj.text == text for obj, text in kept)


def test_two_open_transactions_have_objects_of_their_own(here: MemoryNode) -> None:
    here.load([Plain(0, "old")])
    warm(here, 0)
    one, two = here.transaction(), here.transaction()
    one.begin(), two.begin()
    something(one), something(two)
    a, b = one.get(Plain, 0), two.get(Plain, 0)
    assert a is not b
    a.text = "new"
    a._note = "mine"  # type: ignore[attr-defined]
    assert b.text == "old"
    assert not hasattr(b, "_note")
    two.rollback()
    one.commit()
    assert texts(here, 0) == ["new"]
    assert b.text == "old"


# --- every change is noticed ---


@pytest.mark.parametrize("value", [True, 1.0, "1", type("Count", (int,), {})(1)], ids=repr)
def test_an_equal_value_of_a_wrong_type_is_refused(here: MemoryNode, value: Any) -> None:
    here.load([Aircraft("N1", landings=1)])
    with here.transaction() as tx:
        tx.get(Aircraft, "N1")
    with pytest.raises(FieldTypeError, match="landings"), here.transaction() as tx:
        something(tx)
        tx.get(Aircraft, "N1").landings = value


def test_an_equal_value_of_other_bytes_is_written(here: MemoryNode) -> None:
    here.load([Glider("G1", span=0.0)])
    with here.transaction() as tx:
        something(tx)
        tx.get(Glider, "G1").span = -0.0
    assert tx.lsn is not None
    with here.transaction() as tx:
        assert str(tx.get(Glider, "G1").span) == "-0.0"


def test_an_attribute_that_is_no_field_is_refused(here: MemoryNode) -> None:
    here.load([Plain(0), Plain(1)])
    warm(here, 0, 1)
    with pytest.raises(FieldTypeError, match="colour"), here.transaction() as tx:
        tx.get(Plain, 0)
        tx.get(Plain, 1).colour = "red"  # type: ignore[attr-defined]


def test_a_deleted_attribute_is_its_default_again(here: MemoryNode) -> None:
    """Also where another object has one more."""
    here.load([Plain(0, "a"), Plain(1, "b")])
    warm(here, 0, 1)
    with here.transaction() as tx:
        something(tx)
        del tx.get(Plain, 0).text
        tx.get(Plain, 1)._note = 5  # type: ignore[attr-defined]
    assert texts(here, 0, 1) == ["", "b"]


def test_one_change_among_many_reads_is_all_that_is_written(here: MemoryNode) -> None:
    here.load(Plain(n) for n in range(100))
    warm(here, *range(100))
    with here.transaction() as tx:
        found = [tx.get(Plain, n) for n in range(100)]
        found[70].text = "new"
    log = here.backend.cluster.partitions["memory-0"].log
    assert texts(here, *range(100)) == ["new" if n == 70 else "" for n in range(100)]
    assert len(log[-1]) < 10_000  # 100 versions read and one object


# --- the binding ---


def test_base_and_subclass_lead_to_one_object(here: MemoryNode) -> None:
    here.load([Glider("G1"), Aircraft("N1")])
    for _ in range(2):
        with here.transaction() as tx:
            something(tx)
            assert tx.get(Aircraft, "G1") is tx.get(Glider, "G1")
            assert tx.find(Glider, "N1") is None
            with pytest.raises(NotFoundError):
                tx.get(Glider, "N1")
            assert type(tx.get(Aircraft, "N1")) is Aircraft


def test_an_object_that_outlives_its_transaction_knows_how_that_ended(node: MemoryNode) -> None:
    node.load([Aircraft("N1")])
    with node.transaction() as tx:
        something(tx)
        obj = tx.get(Aircraft, "N1")
    ref = node.ref(obj)
    with pytest.raises(NoTransactionError, match=r"Aircraft 'N1'.* has committed"):
        obj.land(5)
    del tx
    with pytest.raises(NoTransactionError, match=r"Aircraft 'N1'.* has committed"):
        obj.land(5)
    with pytest.raises(NoTransactionError, match="would be lost"):
        obj.miles = 5
    assert node.ref(obj) == ref
    with pytest.raises(KeyError), node.transaction() as tx:
        something(tx)
        obj = tx.get(Aircraft, "N1")
        raise KeyError
    del tx
    with pytest.raises(NoTransactionError, match="was rolled back"):
        obj.land(5)


def test_a_copy_is_not_the_object(node: MemoryNode) -> None:
    node.load([Aircraft("N1")])
    with node.transaction() as tx:
        something(tx)
        obj = tx.get(Aircraft, "N1")
        shallow = copy.copy(obj)
        with pytest.raises(NoTransactionError, match="is a copy"):
            shallow.land(1)
        with pytest.raises(NoTransactionError, match="is a copy"):
            tx.delete(shallow)
        assert tx.ref(shallow) == tx.ref(obj)
    with node.transaction() as tx:
        something(tx)
        obj = tx.get(Aircraft, "N1")
        assert copy.deepcopy(obj).land(7) == 7
        assert obj.miles == 0


def test_a_failed_method_restores_what_was_only_looked_at() -> None:
    with MemoryNode(MemoryCluster(partitions=1), OWN) as own:
        own.load([Sender(1, []), Receiver(1)])
        with own.transaction() as tx:
            sender, receiver = tx.get(Sender, 1), tx.get(Receiver, 1)
            receiver.amount = 7
            with pytest.raises(ValueError, match="mind"):
                sender.give(100)
            assert receiver.amount == 7
        with own.transaction() as tx:
            assert tx.get(Receiver, 1).amount == 7


def test_reads_before_and_after_a_call_are_one_transaction(node: MemoryNode) -> None:
    node.load([Aircraft(t) for t in "abc"])
    with node.transaction() as tx:
        a, b = tx.get(Aircraft, "a"), tx.get(Aircraft, "b")
        assert a.land(5) == 5
        c = tx.get(Aircraft, "c")
        c.miles = 9
        a.lend("b", 2)
        assert [a, b, c] == [tx.get(Aircraft, t) for t in "abc"]
        assert [o.miles for o in (a, b, c)] == [3, 2, 9]
    with node.transaction() as tx:
        assert [tx.get(Aircraft, t).miles for t in "abc"] == [3, 2, 9]


def test_values_that_can_be_changed_in_place_are_never_shared(here: MemoryNode) -> None:
    here.load([Account("x", 1, tags=["a"])])
    for _ in range(2):
        with pytest.raises(KeyError), here.transaction() as tx:
            tx.get(Account, "x", 1).tags.append("b")
            raise KeyError
    with here.transaction() as tx:
        assert tx.get(Account, "x", 1).tags == ["a"]


def test_a_class_with_a_say_in_assignments_keeps_it() -> None:
    with MemoryNode(MemoryCluster(partitions=1), OWN) as own:
        own.load([Guarded(1, 5)])
        for level in (6, 7):
            with own.transaction() as tx:
                tx.find(Receiver, 1000)
                found = tx.get(Guarded, 1)
                with pytest.raises(ValueError, match="not this level"):
                    found.level = -1
                found.level = level
        with own.transaction() as tx:
            assert tx.get(Guarded, 1).level == 7


# --- memory ---


def test_what_nobody_holds_is_gone_with_its_transaction(here: MemoryNode) -> None:
    here.load([Plain(0), Plain(1)])
    warm(here, 0, 1)
    gc.disable()
    try:
        with here.transaction() as tx:
            something(tx)
            dropped, kept = weakref.ref(tx.get(Plain, 0)), tx.get(Plain, 1)
            assert dropped() is not None
        assert dropped() is None
        with pytest.raises(NoTransactionError):
            kept.text = "new"
    finally:
        gc.enable()


def test_a_transaction_that_is_never_ended_can_be_freed(here: MemoryNode) -> None:
    here.load([Aircraft("N1")])
    tx = here.transaction()
    tx.begin()
    something(tx)
    obj, gone = tx.get(Aircraft, "N1"), weakref.ref(tx)
    del tx
    gc.collect()
    assert gone() is None
    with pytest.raises(NoTransactionError, match="was rolled back"):
        obj.land(5)


def test_an_object_only_looked_at_costs_the_collector_one_thing(here: MemoryNode) -> None:
    here.load([Plain(0, "text"), Plain(1)])
    warm(here, 0, 1)
    with here.transaction() as tx:
        something(tx)
        assert not any(gc.is_tracked(vars(tx.get(Plain, n))) for n in (0, 1))
