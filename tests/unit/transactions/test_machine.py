"""Managed objects against a plain Python model: whatever transactions do, a dict and a few version numbers do the same.

Each rule is one verb. A rival commits in between, so the model also says which commits must conflict. Runs with methods
here and with methods elsewhere, and over a warm or cold cache of decoded values.
"""

from __future__ import annotations

import contextvars
import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from halog.errors import (
    ConflictError,
    CrossPartitionError,
    DuplicateKeyError,
    NotFoundError,
    NoTransactionError,
)
from halog.schema import Ref
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions import Transaction
from tests.unit.transactions.model import REGISTRY, Account, Refused

NUMBERS = st.integers(1, 2)
AMOUNTS = st.integers(-20, 20)
State = dict[str, Any]
ABSENT = -1


def plain(account: Account) -> State:
    return {"balance": account.balance, "tags": list(account.tags), "visits": account.place.visits}


class Machine(RuleBasedStateMachine):
    """`view`: what the open transaction must see, where it looked or created. `reads`: versions at first look."""

    remote = False
    listed = False
    """Are objects in any of several partitions, and have entries in a key directory?"""

    @initialize()
    def begin(self) -> None:
        cluster = MemoryCluster(partitions=4 if self.listed else 1)
        self.node = MemoryNode(
            cluster, REGISTRY, remote=self.remote, application_modules=[Account.__module__], listed=self.listed
        )
        self.rival = MemoryNode(cluster, REGISTRY, listed=self.listed)
        self.stamps = itertools.count(1)
        self.committed: dict[int, State] = {}
        self.versions: dict[int, int] = {}
        self.refs: dict[int, tuple[int, Ref[Account]]] = {}
        self.tx: Transaction | None = None
        for number in (1, 2):
            self.rival_commits(number, "create")
        self.open(False)

    def teardown(self) -> None:
        if hasattr(self, "node"):
            if self.tx is not None:
                self.tx.__exit__(KeyError, KeyError(), None)
            self.node.close()
            self.rival.close()

    # --- the model ---

    def look(self, number: int) -> State | None:
        if number not in self.view:
            self.base[number] = self.committed.get(number)
            self.view[number] = copy.deepcopy(self.base[number])
            self.reads[number] = self.versions.get(number, ABSENT)
        return self.view[number]

    def made(self, number: int, ref: Ref[Account], balance: int = 0) -> State:
        inst = next(self.stamps)
        self.refs[inst] = (number, ref)
        return {"balance": balance, "tags": [], "visits": 0, "inst": inst}

    def keep(self, number: int, state: State | None) -> None:
        if state is None:
            self.committed.pop(number, None)
            self.versions.pop(number, None)
        else:
            self.committed[number] = copy.deepcopy(state)
            self.versions[number] = next(self.stamps)

    def stale(self) -> set[int]:
        return {n for n, version in self.reads.items() if self.versions.get(n, ABSENT) != version}

    def changed(self) -> set[int]:
        return {n for n, state in self.view.items() if state != self.base[n]}

    @property
    def open_tx(self) -> Transaction:
        assert self.tx is not None
        return self.tx

    # --- life ---

    def open(self, forget: bool) -> None:
        if forget:
            self.node.space.images.clear()
        self.view: dict[int, State | None] = {}
        self.base: dict[int, State | None] = {}
        self.reads: dict[int, int] = {}
        self.objects: dict[int, Account] = {}
        self.tx = self.node.transaction().__enter__()

    @rule(forget=st.booleans())
    def commit(self, forget: bool) -> None:
        tx = self.open_tx
        self.tx = None
        changed, stale = self.changed(), self.stale()
        duplicates = {n for n in changed - self.reads.keys() if n in self.committed}
        expected: set[type[Exception]] = set()
        if stale and (changed or len(self.reads) > 1):
            expected.add(ConflictError)
        if duplicates:
            expected.add(DuplicateKeyError)
        try:
            tx.__exit__(None, None, None)
        except (ConflictError, DuplicateKeyError) as error:
            assert type(error) in expected  # noqa: PT017 - it may or may not be raised
            assert tx.outcome == "rolled back"
        else:
            assert not expected
            assert (tx.lsn is not None) == bool(changed)
            for number in changed:
                self.keep(number, self.view[number])
        self.check_ended()
        self.open(forget)

    @rule(forget=st.booleans())
    def roll_back(self, forget: bool) -> None:
        before = self.node.state_hash()
        self.open_tx.__exit__(KeyError, KeyError(), None)
        self.tx = None
        assert self.node.state_hash() == before
        self.check_ended()
        self.open(forget)

    def check_ended(self) -> None:
        for obj in self.objects.values():
            with pytest.raises(NoTransactionError):
                obj.balance = 5
        found: dict[int, State] = {}
        with self.rival.transaction() as tx:
            found.update({a.number: plain(a) for a in tx.extent(Account)})
        assert found == {n: _values(s) for n, s in self.committed.items()}

    @invariant()
    def live_objects_show_the_view(self) -> None:
        if getattr(self, "tx", None) is not None:
            for number, obj in self.objects.items():
                state = self.view[number]
                assert state is not None
                assert plain(obj) == _values(state)

    # --- verbs ---

    @rule(number=NUMBERS)
    def find(self, number: int) -> None:
        self.seen(number)

    def seen(self, number: int) -> Account | None:
        state = self.look(number)
        found = self.open_tx.find(Account, "x", number)
        assert (found is None) == (state is None)
        if found is not None:
            assert self.objects.setdefault(number, found) is found
        return found

    @rule(number=NUMBERS)
    def create(self, number: int) -> None:
        if self.view.get(number) is not None:
            with pytest.raises(DuplicateKeyError):
                self.open_tx.create(Account("x", number))
            return
        self.objects[number] = made = self.open_tx.create(Account("x", number))
        self.base.setdefault(number, None)
        self.view[number] = self.made(number, self.open_tx.ref(made))

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        found = self.seen(number)
        if found is None:
            return
        self.open_tx.delete(found)
        del self.objects[number]
        self.view[number] = None
        if number not in self.reads:  # created here and never looked at: as if nothing had been
            del self.view[number], self.base[number]

    @rule(number=NUMBERS, amount=AMOUNTS)
    def assign(self, number: int, amount: int) -> None:
        found, state = self.seen(number), self.view[number]
        if found is not None and state is not None:
            found.balance += amount
            state["balance"] += amount

    @rule(number=NUMBERS, text=st.sampled_from("ab"))
    def change_in_place(self, number: int, text: str) -> None:
        found, state = self.seen(number), self.view[number]
        if found is not None and state is not None:
            found.tags.append(text)
            found.place.visits += 1
            state["tags"].append(text)
            state["visits"] += 1

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        inst = data.draw(st.sampled_from(sorted(self.refs)))
        number, ref = self.refs[inst]
        state = self.look(number)
        if state is None or state["inst"] != inst:
            with pytest.raises(NotFoundError):
                self.open_tx.resolve(ref)
        else:
            found = self.open_tx.resolve(ref)
            assert self.objects.setdefault(number, found) is found

    @rule()
    def extent(self) -> None:
        for number in self.committed:
            self.look(number)
        found = {a.number: a for a in self.open_tx.extent(Account)}
        assert {n: plain(a) for n, a in found.items()} == {n: _values(s) for n, s in self.view.items() if s is not None}
        assert all(found[n] is obj for n, obj in self.objects.items())

    # --- calls ---

    @rule(number=NUMBERS, text=st.sampled_from("ab"))
    def call_tag(self, number: int, text: str) -> None:
        found, state = self.seen(number), self.view[number]
        if found is not None and state is not None and self.called(lambda: found.tag(text), number):
            state["tags"].append(text)

    @rule(number=NUMBERS, to=NUMBERS, amount=AMOUNTS)
    def call_transfer(self, number: int, to: int, amount: int) -> None:
        """Two objects change, or (not found, refused) none does."""
        one = self.seen(number)
        if one is None or self.is_apart(one, number, to) or not self.called(_nothing, number, to):
            return
        mine, other = self.look(number), self.look(to)
        assert mine is not None
        if other is None:
            with pytest.raises(NotFoundError):
                one.transfer(to, amount)
            return
        left = mine["balance"] - (amount if to != number else 0)
        if left < 0:
            with pytest.raises(Refused):
                one.transfer(to, amount)
            return
        other["balance"] += amount
        mine["balance"] -= amount
        assert one.transfer(to, amount) == left

    @rule(number=NUMBERS, other=NUMBERS)
    def call_replace(self, number: int, other: int) -> None:
        """A new instance under an old key, made by a method."""
        one = self.seen(number)
        if one is None or self.is_apart(one, number, other) or not self.called(_nothing, number, other):
            return
        if self.look(other) is None:
            with pytest.raises(NotFoundError):
                one.replace(other)
            return
        one.replace(other)
        self.objects.pop(other, None)
        found = self.open_tx.get(Account, "x", other)
        self.view[other] = self.made(other, self.open_tx.ref(found), balance=1)

    def is_apart(self, one: Account, number: int, to: int) -> bool:
        """Where objects go round the partitions, a method finds no others than those of its own object's."""
        if not self.listed or self.are_together(number, to):
            return False
        with pytest.raises((CrossPartitionError, ConflictError, DuplicateKeyError)):
            one.transfer(to, 0)
        return True

    def are_together(self, number: int, to: int) -> bool:
        index_key = self.node.space.info_of(Account).index_key
        entries = self.open_tx.entries
        home, other = entries[index_key(("x", number))].partition, entries.get(index_key(("x", to)))
        there = index_key(("x", to)) in self.node.cluster.partitions[home].objects
        if other is None or (other.ref is None and other.image is None):
            return there
        return other.partition == home and (there or not self.remote or to in self.changed())

    def called(self, call: Callable[[], Any], *numbers: int) -> bool:
        """False where a call elsewhere must notice that what this transaction read is stale."""
        if self.remote and any(n in self.stale() and n not in self.changed() for n in numbers):
            with pytest.raises(ConflictError):
                self.objects[numbers[0]].transfer(numbers[-1], 0)
            return False
        call()
        return True

    # --- the rival ---

    @rule(number=NUMBERS, what=st.sampled_from(["change", "delete", "create"]))
    def meddle(self, number: int, what: str) -> None:
        contextvars.Context().run(self.rival_commits, number, what)

    def rival_commits(self, number: int, what: str) -> None:
        state = copy.deepcopy(self.committed.get(number))
        if (state is None) != (what == "create"):
            return
        with self.rival.transaction() as tx:
            if state is None:
                state = self.made(number, tx.ref(tx.create(Account("x", number))))
            elif what == "delete":
                tx.delete(tx.get(Account, "x", number))
                state = None
            else:
                tx.get(Account, "x", number).balance += 1
                state["balance"] += 1
        self.keep(number, state)


class RemoteMachine(Machine):
    remote = True


class ListedMachine(Machine):
    listed = True


class RemoteListedMachine(Machine):
    remote = listed = True


def _nothing() -> None:
    """The call is made later."""


def _values(state: State) -> State:
    return {k: v for k, v in state.items() if k != "inst"}


@pytest.mark.feature("D1", "R5", "P6")
@pytest.mark.parametrize(
    "machine",
    [Machine, RemoteMachine, ListedMachine, RemoteListedMachine],
    ids=["active here", "active elsewhere", "listed", "listed, active elsewhere"],
)
def test_transactions_do_what_a_plain_model_does(machine: type[Machine]) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    limits = settings(max_examples=50, stateful_step_count=60, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=limits)
