"""Mappers asked at create in a whole runtime, in memory: their answers are kept, checked, and change like others'."""

from __future__ import annotations

import enum
import threading
from collections import Counter as Count
from collections.abc import Iterator
from typing import Any

import pytest

import halog
from halog.core.keys.mapping import PolicyMapping
from halog.errors import ConfigError, DuplicateKeyError, FieldTypeError, MapperError, RefusedError
from halog.runtime.keys.key_owners import layout_of
from halog.schema.placed import new_object
from halog.testing.cluster import Cluster, wait_until
from mappers import NewObject
from tests.unit.runtime.keys import at_create
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    Order,
    Traffic,
    begin,
    changed,
    check as check_hashed,
    cluster_of,
    configured,
    mapping,
    wait_done,
    where,
)
from tests.unit.runtime.keys.rounds import check, rounds, settled, spread

pytestmark = pytest.mark.feature("P6", "P13")

BY_VALUE = f"at_create:{at_create.MODULE}:by_value"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@halog.managed(key=("size", "name"), partition_by="size", registry=TYPES)
class Parcel:
    name: str
    size: Size = Size.SMALL
    items: list[str] | None = None


@halog.managed(registry=TYPES)
class Tall(Counter):
    height: int = 0


@pytest.fixture(autouse=True)
def asked() -> Iterator[list[Any]]:
    at_create.ASKED.clear()
    at_create.SAID.clear()
    yield at_create.ASKED
    at_create.SAID.clear()


def placed(nodes: int = 2, mapper: str = BY_VALUE, **values: Any) -> Cluster:
    return configured(cluster_of(nodes, modules=(at_create.MODULE,)), mapper=mapper, **values)


def home(cluster: Cluster, obj: Any) -> str:
    info = TYPES.info(type(obj))
    return check(cluster)[info.index_key(info.key_of(obj))]


# --- where objects are ---


def test_objects_are_where_the_mapper_said_and_are_found_by_key() -> None:
    """From another process, which has asked nobody where they are; also behind a node that died."""
    with placed(3) as cluster:
        client = cluster.client()
        for i in range(12):
            with client.transaction():
                client.create(Counter(f"c{i}", i % 4))
        client.load([Counter(f"l{i}", i % 4) for i in range(40)], batch=7)
        for key, partition in check(cluster).items():
            name = TYPES.info(Counter).decode_index_key(key)[0]
            assert partition == f"{POLICY}-{int(str(name)[1:]) % 4}", name
        active = cluster.tables()[f"{POLICY}-1"].active
        assert active is not None
        cluster.kill(active.node)
        cluster.settle()
        other = cluster.client()
        with other.transaction():
            assert all(other.get(Counter, f"c{i}").value == i % 4 for i in range(12))
            assert other.find(Counter, "none") is None
        with pytest.raises(DuplicateKeyError), other.transaction():
            other.create(Counter("c5", 2))


def test_the_mapper_sees_the_object_as_it_is_stored(asked: list[Any]) -> None:
    """Of its own class, enums by name; what it does to it changes nothing; it is asked once for each create."""

    def spoil(made: NewObject, partitions: tuple[str, ...], states: Any) -> str:
        if made.type_name == "Parcel":
            made.fields["items"].append("spoilt")
        return partitions[0]

    at_create.SAID.append(spoil)
    with placed() as cluster:
        client = cluster.client()
        with client.transaction():
            client.create(Parcel("a", Size.LARGE, ["x"]))
            client.create(Tall("t", 7, 180))
        assert [made[:2] for made, _, _ in asked] == [("Parcel", ("LARGE", "a")), ("Tall", ("t",))]
        assert dict(asked[1][0].fields) == {"name": "t", "value": 7, "height": 180}
        assert asked[0][1] == tuple(f"{POLICY}-{i}" for i in range(4))
        with client.transaction():
            assert client.get(Parcel, Size.LARGE, "a").items == ["x"]
            assert client.get(Counter, "t").value == 7


def test_the_object_is_whole_when_it_is_created() -> None:
    with placed() as cluster:
        client = cluster.client()
        with client.transaction() as tx:
            wrong = Counter("c")
            wrong.value = "three"  # type: ignore[assignment]
            with pytest.raises(FieldTypeError, match="value"):
                client.create(wrong)
            tx.rollback()
        assert check(cluster) == {}


def test_a_subclass_is_placed_by_what_it_adds() -> None:
    at_create.SAID.append(lambda made, partitions, states: partitions[made.fields.get("height", 0)])
    with placed() as cluster:
        client = cluster.client()
        with client.transaction():
            client.create(Counter("c"))
            client.create(Tall("t", height=3))
        assert (home(cluster, Counter("c")), home(cluster, Tall("t"))) == (f"{POLICY}-0", f"{POLICY}-3")
        with client.transaction():
            assert type(client.get(Counter, "t")) is Tall
        together = [Counter(f"c{i}") if i % 2 else Tall(f"t{i}", height=2) for i in range(200)]
        client.load(together, batch=200)  # all in one transaction, or nearly
        homes = check(cluster)
        info = TYPES.info(Counter)
        for obj in together:
            assert homes[info.index_key((obj.name,))] == f"{POLICY}-{0 if type(obj) is Counter else 2}"


def test_what_a_method_creates_is_where_its_object_is(asked: list[Any]) -> None:
    with placed() as cluster:
        client = cluster.client()
        with client.transaction():
            client.create(Order("s", 1, "text"))
        first = home(cluster, Order("s", 1))
        count = len(asked)
        at_create.SAID.append(lambda made, partitions, states: next(p for p in partitions if p != first))
        with client.transaction():
            client.get(Order, "s", 1).again(2)
        assert (home(cluster, Order("s", 2)), len(asked)) == (first, count)


# --- what it must not say ---


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda made, partitions, states: "nowhere", f"said 'nowhere', which is no partition: {POLICY}-0, "),
        (lambda made, partitions, states: made.fields["weight"], "raised KeyError: 'weight'"),
    ],
    ids=["no partition", "raises"],
)
def test_an_answer_that_cannot_be_changes_nothing(said: at_create.Said, why: str) -> None:
    with placed() as cluster:
        client = cluster.client()
        at_create.SAID.append(said)
        named = rf"mapper {BY_VALUE} \(version 1\) for Counter \('c'\) {why}"
        with pytest.raises(MapperError, match=named) as caught, client.transaction():
            client.create(Counter("c"))
        assert caught.value.evidence == {"type": "Counter", "policy": POLICY}
        with client.transaction() as tx:  # the transaction goes on without it
            with pytest.raises(MapperError, match="nothing was done"):
                client.create(Counter("c"))
            at_create.SAID.append(lambda made, partitions, states: partitions[0])
            tx.create(Counter("d"))
            at_create.SAID.pop()
        with pytest.raises(MapperError, match=why):
            client.load([Counter(f"l{i}") for i in range(5)])
        assert [TYPES.info(Counter).decode_index_key(key)[0] for key in check(cluster)] == ["d"]


# --- loads ---


def test_it_sees_how_full_partitions_are_and_who_is_active(asked: list[Any]) -> None:
    with placed() as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i % 2) for i in range(20)])
        with client.transaction():
            client.create(Counter("x", 3))
        with client.transaction():
            client.delete(client.get(Counter, "c1"))

        def counted(node: Any) -> Any:
            with node.transaction() as tx:
                tx.create(Counter("never"))
                tx.rollback()
            states = dict(asked[-1][2])
            return [states[f"{POLICY}-{i}"].objects for i in range(4)] == [10, 9, 0, 1] and states

        for node in (client, cluster.node("A")):
            states = wait_until(lambda node=node: counted(node), "objects are not counted")  # type: ignore[misc]
            tables = cluster.tables()
            for name, state in states.items():
                active = tables[name].active
                assert (state.name, state.node, state.nodes) == (name, active and active.node, tables[name].configured)
                assert state.age_s is not None
                assert 0 <= state.age_s < 6
                assert state.cpu is not None
                assert state.cpu >= 0
                assert state.memory is not None
                assert 0 < state.memory < 1


def test_the_least_loaded_partition_makes_up_for_what_was_deleted_and_for_new_partitions() -> None:
    """Round robin does neither."""
    with configured(cluster_of(2), mapper="least_loaded") as cluster:
        client = cluster.client()
        wait_until(lambda: counted(client, cluster), "nothing is counted")
        client.load([Counter(f"c{i}") for i in range(40)])
        assert set(spread(cluster).values()) == {10}
        for key in [key for key, partition in check(cluster).items() if partition == f"{POLICY}-2"]:
            with client.transaction():
                client.delete(client.get(Counter, *TYPES.info(Counter).decode_index_key(key)))
        fresh = cluster.client()
        wait_until(lambda: counted(fresh, cluster), "what was deleted is counted")
        fresh.load([Counter(f"n{i}") for i in range(10)])
        assert spread(cluster) == Count({f"{POLICY}-{i}": 10 for i in range(4)})
        begin(cluster, partitions=5)
        wait_done(cluster, 1)
        wait_until(lambda: fresh.backend.mapped.versions, "it does not know of the change")
        wait_until(lambda: counted(fresh, cluster), "the new partition is not counted")
        fresh.load([Counter(f"m{i}") for i in range(10)])
        assert spread(cluster) == Count({f"{POLICY}-{i}": 10 for i in range(5)})


def counted(node: Any, cluster: Cluster) -> bool:
    """Has a process heard of all that is there?"""
    there, states = spread(cluster), node.backend.routing.loads.states(tuple(cluster.tables()))
    return all((states[name].objects, states[name].placed) == (there[name], 0) for name in cluster.tables())


# --- changes ---


def test_from_hashing_to_it_to_going_round_and_home_again() -> None:
    """No object moves until hashing says where each belongs."""
    with cluster_of(2, modules=(at_create.MODULE,), move_objects=7) as cluster:
        traffic = Traffic(cluster.client(), 60)
        traffic.fill()
        steady = [TYPES.info(Counter).index_key((name,)).hex() for name in traffic.names]

        def now() -> dict[str, str]:
            return {key: at[0][0] for key, at in where(cluster).items() if key in steady}

        before = now()
        with traffic.running():
            wait_until(lambda: len(traffic.done) == 5, "no traffic")
            for version, mapper in ((1, BY_VALUE), (2, "round_robin"), (3, "least_loaded"), (4, BY_VALUE)):
                begin(cluster, mapper=mapper)
                wait_done(cluster, version)
                traffic.goes_on()
                assert now() == before, mapper
            begin(cluster, mapper="consistent_hash")
            wait_done(cluster, 5)
            traffic.goes_on()
        traffic.finished()
        settled(cluster)
        check_hashed(cluster, cluster.config)
        assert now() == before


def test_mapper_ring_and_partitions_change_at_once_where_objects_have_entries() -> None:
    with configured(rounds(2), mapper="round_robin") as cluster:
        cluster.client().load([Counter(f"c{i}", i) for i in range(24)])
        before = check(cluster)
        begin(cluster, mapper="least_loaded", ring_size=999, partitions=6)
        wait_done(cluster, 1)
        assert check(cluster) == before


def test_from_or_to_a_function_of_the_key_it_goes_by_way_of_hashing() -> None:
    with placed() as cluster:
        wished = changed(cluster.config, mapper=f"{at_create.MODULE}:by_value")
        with pytest.raises(RefusedError, match="go by way of consistent_hash"):
            cluster.node("A").runtime.operators.rebalance(POLICY, wished)
        assert mapping(cluster).changing is None


def test_a_partition_that_is_emptied_asks_the_mapper() -> None:
    """With the objects in hand; one whose answer cannot be stays, and the change says why."""
    with placed() as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(40)])
        at_create.SAID.append(lambda made, partitions, states: partitions[made.fields["value"] % 3 == 0])
        wished = changed(cluster.config, partitions=2)
        fives = [i for i in range(40) if i % 4 >= 2]
        expected = Count((f"{POLICY}-{i % 4}", f"{POLICY}-{int(i % 3 == 0)}") for i in fives)
        assert cluster.node("A").runtime.operators.moves(POLICY, wished) == expected
        right = at_create.SAID[-1]
        at_create.SAID.append(lambda m, p, s: "nowhere" if m.key == ("c2",) else right(m, p, s))
        begin(cluster, partitions=2)
        wait_until(lambda: Count(home_of(cluster).values())[f"{POLICY}-3"] == 0, "objects do not move")
        wait_until(lambda: list(at_of(cluster, 2)) == ["c2"], "others do not move")
        assert mapping(cluster).changing is not None
        at_create.SAID.pop()
        wait_done(cluster, 1)
        assert {key: at for key, at in home_of(cluster).items() if int(key[1:]) in fives} == {
            f"c{i}": f"{POLICY}-{int(i % 3 == 0)}" for i in fives
        }
        check(cluster)


def home_of(cluster: Cluster) -> dict[str, str]:
    """Name → partition, while they move."""
    info = TYPES.info(Counter)
    prefix = info.family_id.hex()
    found = {key: at for key, at in where(cluster).items() if key.startswith(prefix)}
    return {str(info.decode_index_key(bytes.fromhex(key))[0]): at[0][0] for key, at in found.items()}


def at_of(cluster: Cluster, number: int) -> Iterator[str]:
    return (name for name, at in home_of(cluster).items() if at == f"{POLICY}-{number}")


def test_a_new_version_takes_effect_everywhere_and_code_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with placed() as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}") for i in range(4)])
        assert layout_of(cluster.config, POLICY).mapper_version == 1
        monkeypatch.setattr(at_create, "by_value", at_create.last)
        begin(cluster)
        wait_done(cluster, 1)
        assert mapping(cluster).now.mapper_version == 2
        wait_until(lambda: client.backend.mapped.versions, "it does not know of the change")
        client.load([Counter(f"n{i}") for i in range(4)])
        assert Count(check(cluster).values()) == {f"{POLICY}-0": 4, f"{POLICY}-3": 4}
        with monkeypatch.context() as old:
            old.delattr(at_create.last, "earlier")
            old.setattr(at_create.last, "version", 3)
            node = cluster.node("A").runtime
            held = mapping(cluster).now
            with pytest.raises(
                ConfigError, match=r"node A: .* goes by version 2 of mapper at_create:.*, and this code"
            ):
                node.mover.check_code(POLICY, held)


def test_processes_create_at_the_same_time_and_each_key_once() -> None:
    at_create.SAID.append(lambda made, partitions, states: partitions[threading.get_ident() % len(partitions)])
    with placed() as cluster:
        clients = [cluster.client() for _ in range(2)]
        done: list[str] = []

        def create(node: Any) -> None:
            for i in range(15):

                @node.transactional(retries=50)
                def once(i: int = i) -> None:
                    node.create(Counter(f"c{i}"))

                try:
                    once()
                except DuplicateKeyError:
                    continue
                done.append(f"c{i}")

        threads = [threading.Thread(target=create, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(done) == sorted({f"c{i}" for i in range(15)})
        assert len(check(cluster)) == 15


def test_bytes_are_read_by_their_definition() -> None:
    info = TYPES.info(Parcel)
    made = new_object(info.parsed, info.encode(Parcel("a", Size.LARGE)))
    assert made == ("Parcel", ("LARGE", "a"), {"name": "a", "size": "LARGE", "items": None})
    assert PolicyMapping(layout_of(configured(cluster_of(1), mapper="least_loaded").config, POLICY)).kind == "listed"
