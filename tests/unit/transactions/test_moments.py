"""With `read="local"` a transaction sees each partition at one moment, or is told that it cannot (R5)."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator

import pytest

from halog.backend import KnownMappings
from halog.core.keys.directory import is_entry
from halog.errors import ConflictError
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.model import REGISTRY, Account, Plain

pytestmark = pytest.mark.feature("R5")


def elsewhere(change: Callable[[], object]) -> None:
    contextvars.Context().run(change)


def accounts(node: MemoryNode, balance: int) -> None:
    with node.transaction() as tx:
        for number in (1, 2):
            account = tx.find(Account, "ann", number) or tx.create(Account("ann", number))
            account.balance = balance


def test_a_partition_is_seen_as_it_was_at_the_first_read(here: MemoryNode) -> None:
    accounts(here, 5)
    with here.transaction(read="local") as tx:
        one = tx.get(Account, "ann", 1)
        elsewhere(lambda: accounts(here, 7))
        assert [one.balance, tx.get(Account, "ann", 2).balance] == [5, 5]
        assert {a.balance for a in tx.extent(Account)} == {5}
    with here.transaction(read="local") as tx:
        assert {a.balance for a in tx.extent(Account)} == {7}


def test_what_is_created_meanwhile_stays_absent_and_what_goes_stays(here: MemoryNode) -> None:
    accounts(here, 5)

    def change() -> None:
        with here.transaction() as tx:
            tx.delete(tx.get(Account, "ann", 2))
            tx.create(Account("ann", 3))

    with here.transaction(read="local") as tx:
        assert tx.find(Account, "ann", 4) is None
        elsewhere(change)
        assert tx.find(Account, "ann", 3) is None
        assert {a.number for a in tx.extent(Account)} == {1, 2}


def test_other_partitions_have_moments_of_their_own(spread: MemoryNode) -> None:
    first = spread.space.route(Plain, (0,)).partition
    other = next(i for i in range(1, 99) if spread.space.route(Plain, (i,)).partition != first)
    spread.load([Plain(0, "before"), Plain(other, "before")])

    def change() -> None:
        with spread.transaction() as tx:
            for i in (0, other):
                tx.get(Plain, i).text = "after"

    with spread.transaction(read="local") as tx:
        assert tx.get(Plain, 0).text == "before"
        elsewhere(change)
        assert tx.get(Plain, other).text == "after"


# --- mappings that change ---


def test_while_objects_move_what_was_read_is_checked_at_the_end(here: MemoryNode) -> None:
    accounts(here, 5)
    here.backend.mapped = KnownMappings(changing=True)
    with here.transaction(read="local") as tx:
        assert [tx.get(Account, "ann", number).balance for number in (1, 2)] == [5, 5]
    with pytest.raises(ConflictError, match="Account 'ann', 1"), here.transaction(read="local") as tx:
        tx.get(Account, "ann", 1)
        elsewhere(lambda: accounts(here, 7))
        tx.get(Account, "ann", 2)


def test_a_transaction_under_which_objects_begin_to_move_is_told(spread: MemoryNode) -> None:
    spread.load(Plain(i) for i in range(9))
    with pytest.raises(ConflictError, match="where objects of partition"), spread.transaction(read="local") as tx:
        tx.get(Plain, 0)
        spread.backend.mapped = KnownMappings(changing=True)
        for i in range(9):
            tx.get(Plain, i)


# --- key directories ---


def behind(node: MemoryNode) -> tuple[int, int]:
    """Its own copy of one partition lacks what was created last: that object, whose entry is elsewhere and was read by
    then, and an older one that it has."""
    node.load(Plain(i, "old") for i in range(8))
    node.backend.lag()
    node.load(Plain(i, "new") for i in range(8, 40))
    homes = {key: name for name, at in node.cluster.partitions.items() for key in at.objects if not is_entry(key)}

    def home(i: int) -> str:
        return homes[REGISTRY.info(Plain).index_key((i,))]

    new = next(i for i in range(8, 40) if node.space.route(Plain, (i,)).partition != home(i))
    old = next(i for i in range(8) if home(i) == home(new))
    node.backend.catch_up(*(name for name in node.cluster.partitions if name != home(new)))
    return new, old


@pytest.fixture
def listed() -> Iterator[MemoryNode]:
    with MemoryNode(MemoryCluster(4), REGISTRY, listed=True) as node:
        yield node


def test_an_object_that_a_copy_lacks_is_looked_for_at_the_active_nodes(listed: MemoryNode) -> None:
    new, old = behind(listed)
    with listed.transaction(read="local") as tx:
        assert tx.get(Plain, new).text == "new"
        assert tx.get(Plain, old).text == "old"


def test_where_a_partition_was_seen_already_it_is_told(listed: MemoryNode) -> None:
    """Another moment of that partition would be another one than what was read is of."""
    new, old = behind(listed)
    with pytest.raises(ConflictError, match=f"Plain {new} came to partition"), listed.transaction(read="local") as tx:
        assert tx.get(Plain, old).text == "old"
        tx.get(Plain, new)
