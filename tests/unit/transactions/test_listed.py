"""Objects that go round the partitions, and have entries in a key directory: what each verb does about them."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from halog import aio
from halog.backend import Work
from halog.core.keys.directory import entry_key, is_entry, object_key, unpacked
from halog.core.log.records import UPDATE
from halog.errors import ConflictError, CrossPartitionError, DuplicateKeyError, NotFoundError
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions.kind import Read
from halog.transactions.token import Token
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, Glider, Plain

pytestmark = pytest.mark.feature("P6")

PARTITIONS = 4


@pytest.fixture(params=["active here", "active elsewhere"])
def node(request: pytest.FixtureRequest) -> Iterator[MemoryNode]:
    with made(MemoryCluster(PARTITIONS), remote=request.param == "active elsewhere") as node:
        yield node


@pytest.fixture
def rival(node: MemoryNode) -> Iterator[MemoryNode]:
    """Another process."""
    with made(node.cluster) as rival:
        yield rival


def made(cluster: MemoryCluster, *, remote: bool = False) -> MemoryNode:
    return MemoryNode(
        cluster, REGISTRY, remote=remote, application_modules=["tests.unit.transactions.model"], listed=True
    )


def elsewhere(change: Callable[[], object]) -> None:
    contextvars.Context().run(change)


def check(cluster: MemoryCluster) -> dict[bytes, str]:
    """Each object has one entry, that says where it is; key → partition."""
    homes: dict[bytes, str] = {}
    listed: dict[bytes, str] = {}
    for name, partition in cluster.partitions.items():
        for key, found in partition.objects.items():
            known, says = (listed, unpacked(found.value).partition) if is_entry(key) else (homes, name)
            assert object_key(key) not in known
            known[object_key(key)] = says
    assert homes == listed
    for key, home in homes.items():
        (ref,) = {
            p.objects[k].ref for p in cluster.partitions.values() for k in (key, entry_key(key)) if k in p.objects
        }
        assert cluster.partitions[home].objects[key].ref == ref
    return homes


def presented(node: MemoryNode) -> list[tuple[str, Work]]:
    """What is presented from now on."""
    seen: list[tuple[str, Work]] = []
    node.backend.before_commit = lambda partition, work: seen.append((partition, work))
    return seen


def test_creates_go_round_and_are_found_by_key(node: MemoryNode) -> None:
    for i in range(40):
        with node.transaction() as tx:
            tx.create(Plain(i, str(i)))
    homes = check(node.cluster)
    assert set(Counter(homes.values()).values()) == {40 // PARTITIONS}
    with node.transaction() as tx:
        assert [tx.get(Plain, i).text for i in range(40)] == [str(i) for i in range(40)]
        assert tx.find(Plain, 40) is None
        assert sorted(p.id for p in tx.extent(Plain)) == list(range(40))


def test_a_load_goes_round_object_by_object(node: MemoryNode) -> None:
    node.load((Plain(i) for i in range(200)), batch=30)
    assert set(Counter(check(node.cluster).values()).values()) == {200 // PARTITIONS}
    with pytest.raises(DuplicateKeyError, match=r"2 objects were not loaded.*Plain [35].*other 1 were"):
        node.load([Plain(3), Plain(5), Plain(500)])
    assert len(check(node.cluster)) == 201


def test_changing_an_object_takes_its_own_partition_only(node: MemoryNode) -> None:
    node.load(Plain(i) for i in range(8))
    seen = presented(node)
    for i in range(8):
        with node.transaction() as tx:
            tx.get(Plain, i).text = "changed"
    assert [(len(work.reads), [w.op for w in work.writes]) for _, work in seen] == [(0, [UPDATE])] * 8
    homes = check(node.cluster)
    assert Counter(partition for partition, _ in seen) == Counter(homes.values())


def test_an_object_that_is_where_it_was_is_found_without_its_entry(node: MemoryNode, rival: MemoryNode) -> None:
    """Who has seen it asks one partition; who has not, or where it is elsewhere by now, the directory, too."""
    node.load([Plain(1, "first")])

    def asked() -> int:
        before = node.backend.requests
        with node.transaction() as tx:
            tx.get(Plain, 1)
        return node.backend.requests - before

    assert [asked(), asked(), asked()] == [2, 1, 1]
    with rival.transaction() as tx:
        tx.delete(tx.get(Plain, 1))
    with node.transaction() as tx:
        assert tx.find(Plain, 1) is None
    for text in ("second", "third"):
        with rival.transaction() as tx:
            if old := tx.find(Plain, 1):
                tx.delete(old)
        with rival.transaction() as tx:
            tx.create(Plain(1, text))
        with node.transaction() as tx:
            assert tx.get(Plain, 1).text == text


def test_an_entry_in_the_partition_of_its_object_is_one_commit(node: MemoryNode) -> None:
    seen = presented(node)
    for i in range(40):
        with node.transaction() as tx:
            tx.create(Plain(i))
    together = [work for _, work in seen if len(work.writes) == 2]
    apart = [work for _, work in seen if len(work.writes) == 1]
    assert len(together) + len(apart) // 2 == 40
    assert len(together) > 0


def test_a_key_that_exists_is_not_created_again_wherever_its_turn_is(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Plain(1))
    for _ in range(PARTITIONS):
        before = node.state_hash()
        with pytest.raises(DuplicateKeyError, match="Plain 1 exists") as caught, node.transaction() as tx:
            tx.create(Plain(1, "again"))
        assert not is_entry(caught.value.evidence["key"])
        assert node.state_hash() == before
    with node.transaction() as tx:
        tx.get(Plain, 1)
        with pytest.raises(DuplicateKeyError):
            tx.create(Plain(1))


def test_who_found_a_key_free_and_was_too_late_meets_a_conflict(node: MemoryNode, rival: MemoryNode) -> None:
    def faster() -> None:
        with rival.transaction() as tx:
            tx.create(Plain(1, "rival"))

    with pytest.raises(ConflictError, match="Plain 1"), node.transaction() as tx:
        assert tx.find(Plain, 1) is None
        elsewhere(faster)
        tx.create(Plain(1))
    assert len(check(node.cluster)) == 1


def test_that_there_is_none_is_checked_where_a_transaction_rests_on_it(node: MemoryNode, rival: MemoryNode) -> None:
    node.load([Plain(2)])

    def faster() -> None:
        with rival.transaction() as tx:
            tx.create(Plain(1))

    with pytest.raises(ConflictError, match="Plain 1"), node.transaction() as tx:
        assert tx.find(Plain, 1) is None
        elsewhere(faster)
        assert tx.find(Plain, 1) is None
        tx.get(Plain, 2).text = "rests on it"
    with pytest.raises(ConflictError, match="Plain 3"), node.transaction() as tx:
        assert tx.find(Plain, 3) is None
        elsewhere(lambda: rival.load([Plain(3)]))
        tx.get(Plain, 2)


def test_a_delete_takes_its_entry_along(node: MemoryNode) -> None:
    node.load(Plain(i) for i in range(20))
    for i in range(0, 20, 2):
        with node.transaction() as tx:
            tx.delete(tx.get(Plain, i))
            assert tx.find(Plain, i) is None
    with node.transaction() as tx:
        for found in list(tx.extent(Plain))[:5]:
            tx.delete(found)
    assert len(check(node.cluster)) == 5
    with node.transaction() as tx:
        for i in range(0, 20, 2):
            assert tx.find(Plain, i) is None
            tx.create(Plain(i))
    assert len(check(node.cluster)) == 15


def test_delete_and_create_in_one_transaction_is_a_new_instance(node: MemoryNode) -> None:
    for i in range(8):
        with node.transaction() as tx:
            old = tx.ref(tx.create(Plain(i, "old")))
        with node.transaction() as tx:
            tx.delete(tx.get(Plain, i))
            new = tx.ref(tx.create(Plain(i, "new")))
        check(node.cluster)
        with node.transaction() as tx:
            assert tx.resolve(new).text == "new"
            with pytest.raises(NotFoundError):
                tx.resolve(old)


def test_created_and_deleted_in_one_transaction_leaves_nothing(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.delete(tx.create(Plain(1)))
        assert tx.find(Plain, 1) is None
    assert check(node.cluster) == {}


def test_who_deletes_what_another_one_deleted_meets_a_conflict(node: MemoryNode, rival: MemoryNode) -> None:
    node.load([Plain(1)])

    def faster() -> None:
        with rival.transaction() as tx:
            tx.delete(tx.get(Plain, 1))

    with pytest.raises(ConflictError, match="Plain 1"), node.transaction() as tx:
        found = tx.get(Plain, 1)
        elsewhere(faster)
        tx.delete(found)
    assert check(node.cluster) == {}


def test_an_object_made_anew_elsewhere_is_not_taken_for_the_one_that_was_read(
    node: MemoryNode, rival: MemoryNode
) -> None:
    node.load([Plain(1, "first")])

    def anew() -> None:
        for _ in range(2):  # its turn is at another partition each time
            with rival.transaction() as tx:
                tx.delete(tx.get(Plain, 1))
            with rival.transaction() as tx:
                tx.create(Plain(1, "second"))

    with pytest.raises(ConflictError), node.transaction() as tx:
        found = tx.get(Plain, 1)
        elsewhere(anew)
        found.text = "third"
    with node.transaction() as tx:
        assert tx.get(Plain, 1).text == "second"
    check(node.cluster)


def test_subclasses_share_the_keys_of_their_base(node: MemoryNode) -> None:
    with node.transaction() as tx:
        tx.create(Glider("G1", span=18.0))
    with node.transaction() as tx:
        assert isinstance(tx.get(Aircraft, "G1"), Glider)
        assert tx.find(Glider, "G1") is not None
    with pytest.raises(DuplicateKeyError), node.transaction() as tx:
        tx.create(Aircraft("G1"))
    assert len(check(node.cluster)) == 1


# --- methods ---


def test_a_method_runs_where_its_object_is_and_its_changes_are_kept(node: MemoryNode) -> None:
    node.load(Account("ann", i) for i in range(8))
    for i in range(8):
        with node.transaction() as tx:
            account = tx.get(Account, "ann", i)
            account.tag("a")
            account.tag("b")
        assert tx.home == check(node.cluster)[REGISTRY.info(Account).index_key(("ann", i))]
    with node.transaction() as tx:
        assert [tx.get(Account, "ann", i).tags for i in range(8)] == [["a", "b"]] * 8


def test_a_method_creates_and_deletes_where_its_object_is(node: MemoryNode) -> None:
    """The entries are written by whoever commits."""
    with node.transaction() as tx:
        tx.create(Account("ann", 1))
    with node.transaction() as tx:
        tx.get(Account, "ann", 1).replace(1)
    homes = check(node.cluster)
    assert len(homes) == 1
    with node.transaction() as tx:
        assert tx.get(Account, "ann", 1).balance == 1


def test_a_method_does_not_find_what_is_elsewhere_or_nowhere(node: MemoryNode) -> None:
    """Not even that there is none: it is told by name, and the transaction goes on."""
    for number in (1, 2):
        with node.transaction() as tx:
            tx.create(Account("ann", number))
    with node.transaction() as tx:
        one = tx.get(Account, "ann", 1)
        with pytest.raises(CrossPartitionError, match="Account 'ann', 2 is not"):
            one.transfer(2, 5)
        with pytest.raises(CrossPartitionError, match="Account 'ann', 3 is not"):
            one.transfer(3, 5)
        one.tag("still here")
    with node.transaction() as tx:
        assert tx.get(Account, "ann", 1).tags == ["still here"]


def test_a_method_finds_what_is_in_its_partition(node: MemoryNode) -> None:
    node.load(Account("ann", i, 100) for i in range(2 * PARTITIONS))
    homes = check(node.cluster)
    key = REGISTRY.info(Account).index_key
    one = 0
    other = next(i for i in range(1, 99) if homes[key(("ann", i))] == homes[key(("ann", one))])
    with node.transaction() as tx:
        tx.get(Account, "ann", one).transfer(other, 30)
    with node.transaction() as tx:
        assert [tx.get(Account, "ann", i).balance for i in (one, other)] == [70, 130]


# --- sessions ---


def made_anew(node: MemoryNode, text: str) -> Token:
    """What the create has written; the delete is another session's."""
    node.load([Plain(2)])  # it takes the turn of the partition where the other one was
    with node.transaction() as tx:
        tx.delete(tx.get(Plain, 1))
    with node.transaction() as tx:
        tx.create(Plain(1, text))
    return tx.token


def test_a_session_reads_its_own_object_from_copies_that_lag(node: MemoryNode, rival: MemoryNode) -> None:
    """Where the old one was, which this process remembers, the session has seen nothing."""
    node.load([Plain(1, "first")])
    with node.transaction() as tx:
        tx.get(Plain, 1)
    node.backend.lag()
    token = made_anew(rival, "second")
    sessions: tuple[Read, ...] = ("local", "active")
    for read in sessions:
        with node.transaction(read=read, after=token) as tx:
            assert tx.get(Plain, 1).text == "second"
    with node.transaction(read="local") as tx:
        assert tx.get(Plain, 1).text == "first", "it may be old"


def test_a_session_finds_what_it_changed_though_the_entry_is_in_a_copy_that_lags(
    node: MemoryNode, rival: MemoryNode
) -> None:
    """Its position does not name the partition of the entry."""
    node.backend.lag()
    rival.load(Plain(i, "first") for i in range(8))
    for i in range(8):
        with rival.transaction() as tx:
            tx.get(Plain, i).text = "changed"
        with node.transaction(read="local", after=tx.token) as tx:
            assert tx.get(Plain, i).text == "changed"


# --- asyncio ---


def test_async_transactions_do_the_same(node: MemoryNode) -> None:
    async def story() -> None:
        async_node = aio.Node(node)
        for i in range(PARTITIONS):
            async with async_node.transaction() as tx:
                await tx.create(Plain(i, "a"))
        async with async_node.transaction() as tx:
            (await tx.get(Plain, 1)).text = "b"
            await tx.delete(await tx.get(Plain, 2))
        async with async_node.transaction() as tx:
            assert await tx.find(Plain, 2) is None
            assert (await tx.get(Plain, 1)).text == "b"

    asyncio.run(story())
    assert len(check(node.cluster)) == PARTITIONS - 1
