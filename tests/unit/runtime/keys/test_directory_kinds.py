"""The mapper is changed between consistent hashing and round robin: objects get entries, or lose them; in memory."""

from __future__ import annotations

import pytest

from halog.core.keys.mapping import Place
from halog.errors import ConflictError, DuplicateKeyError, RefusedError
from halog.testing.cluster import wait_until
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    Traffic,
    begin,
    changed,
    check as check_hashed,
    cluster_of,
    mapping,
    wait_done,
    where,
)
from tests.unit.runtime.keys.rounds import check, check_now, never_done, remapping_of, rounds, settled

pytestmark = pytest.mark.feature("P6", "P13")


def test_the_mapper_is_changed_alone() -> None:
    with cluster_of(2) as cluster:
        wished = changed(cluster.config, mapper="round_robin", ring_size=999)
        with pytest.raises(RefusedError, match="change the mapper alone, and partitions or ring_size when that is"):
            cluster.node("A").runtime.operators.rebalance(POLICY, wished)
        assert mapping(cluster).changing is None


def test_objects_get_entries_and_lose_them_under_traffic() -> None:
    """From hashing to going round and back: no object moves there, all go home on the way back."""
    with cluster_of(2, move_objects=7) as cluster:
        traffic = Traffic(cluster.client(), 80)
        traffic.fill()
        steady = [TYPES.info(Counter).index_key((name,)).hex() for name in traffic.names]
        before = {key: at for key, at in where(cluster).items() if key in steady}
        with traffic.running():
            wait_until(lambda: len(traffic.done) == 5, "no traffic")
            begin(cluster, mapper="round_robin")
            wait_done(cluster, 1)
            homes = check_now(cluster)
            assert {key: homes[bytes.fromhex(key)] for key in steady} == {k: at[0][0] for k, at in before.items()}
            traffic.goes_on()
            begin(cluster, mapper="consistent_hash")
            wait_done(cluster, 2)
            traffic.goes_on()
        traffic.finished()
        settled(cluster)
        check_hashed(cluster, cluster.config)
        assert {key: at for key, at in where(cluster).items() if key in steady} == before


def test_what_went_round_goes_home() -> None:
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(60)])
        expected = cluster.node("A").runtime.operators.moves(POLICY, changed(cluster.config, mapper="consistent_hash"))
        assert 30 <= sum(expected.values()) <= 60
        begin(cluster, mapper="consistent_hash")
        wait_done(cluster, 1)
        settled(cluster)
        check_hashed(cluster, cluster.config)
        with client.transaction():
            assert [client.get(Counter, f"c{i}").value for i in range(60)] == list(range(60))
            assert client.find(Counter, "none") is None


def test_a_change_of_the_mapper_is_turned_back_while_a_node_dies() -> None:
    with cluster_of(3, move_objects=3) as cluster:
        traffic = Traffic(cluster.client(), 100)
        traffic.fill()
        old = cluster.config
        never_done(cluster, "ABC")
        with traffic.running(4):
            begin(cluster, mapper="round_robin")
            wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
            cluster.kill("A")
            cluster.node("B").runtime.operators.turn_back(POLICY)
            wait_done(cluster, 2, 30)
        traffic.finished()
        cluster.settle()
        settled(cluster)
        check_hashed(cluster, old)


def test_what_began_before_the_mapper_changed_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests on whether objects have entries: what it has found absent, what it creates, what it deletes."""
    with cluster_of(2) as cluster:
        client, rival = cluster.client(), cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(20)])

        def change(version: int, mapper: str) -> None:
            begin(cluster, mapper=mapper)
            wait_done(cluster, version)
            wait_until(lambda: all(n.backend.mapped.versions for n in (client, rival)), "they do not know")

        with pytest.raises(ConflictError, match="how objects of partition"), client.transaction():
            client.create(Counter("new"))
            change(1, "round_robin")
        with rival.transaction():
            assert rival.find(Counter, "new") is None
            rival.create(Counter("new"))
        with pytest.raises(ConflictError, match="how objects of partition"), client.transaction():
            assert client.find(Counter, "later") is None
            client.get(Counter, "c1").value += 1
            change(2, "consistent_hash")
        with pytest.raises(ConflictError), client.transaction():
            client.delete(client.get(Counter, "c2"))
            change(3, "round_robin")
        assert len(check(cluster)) == 21


def test_what_began_while_objects_got_entries_ends_when_all_have_them() -> None:
    """It has looked for both, so it need not be run again."""
    with cluster_of(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(20)])
        for version, mapper in ((1, "round_robin"), (2, "consistent_hash")):
            notes = {}
            for name in "AB":
                remapping = remapping_of(cluster, name)
                notes[name], remapping._note = remapping._note, lambda *_: None
            begin(cluster, mapper=mapper)
            wait_until(lambda: client.backend.mapped.changing, "it does not know")
            with client.transaction():
                assert client.find(Counter, f"new{version}") is None
                client.create(Counter(f"new{version}"))
                client.delete(client.get(Counter, f"c{version}"))
                for name, note in notes.items():
                    remapping_of(cluster, name)._note = note
                wait_done(cluster, version)
                wait_until(lambda: not client.backend.mapped.changing, "it does not know the end")
            with client.transaction():
                assert client.get(Counter, f"new{version}") is not None
                assert client.find(Counter, f"c{version}") is None
                assert len(list(client.extent(Counter))) == 20
        settled(cluster)
        check_hashed(cluster, cluster.config)


def test_the_last_object_loses_its_entry_while_a_transaction_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which partitions have a directory, and where entries belong, are looked up one after the other."""
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(20)])
        remappings = [remapping_of(cluster, name) for name in "AB"]
        notes = [remapping._note for remapping in remappings]
        for remapping in remappings:
            remapping._note = lambda *_: None
        begin(cluster, mapper="consistent_hash")
        wait_until(lambda: client.backend.mapped.changing, "it does not know")
        places_of, ends = client.space.places_of, []

        def at_the_end(key: bytes, partition: str) -> Place:
            if not ends:
                ends.append(key)
                for remapping, note in zip(remappings, notes, strict=True):
                    remapping._note = note
                wait_done(cluster, 1)
                wait_until(lambda: not client.backend.mapped.changing, "it does not know the end")
            return places_of(key, partition)

        with client.transaction():
            client.create(Counter("new"))
            monkeypatch.setattr(client.space, "places_of", at_the_end)
        assert ends
        monkeypatch.undo()
        with client.transaction():
            assert client.get(Counter, "new") is not None
        settled(cluster)
        check_hashed(cluster, cluster.config)


def test_loads_meet_objects_with_and_without_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they get them, and while they lose them, keys stay unique."""
    with cluster_of(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"a{i}") for i in range(20)])
        for version, mapper in ((1, "round_robin"), (2, "consistent_hash")):
            with monkeypatch.context() as still:
                for name in "AB":  # so that nothing gets an entry, or loses it
                    still.setattr(cluster.node(name).runtime.remapping, "_carry_on", lambda *_: None)
                begin(cluster, mapper=mapper)
                wait_until(lambda: client.backend.mapped.changing, "it does not know")
                made = [Counter(f"{kind}{i}") for kind in ("a", f"new{version}-") for i in range(20)]
                with pytest.raises(DuplicateKeyError, match="20 objects were not loaded"):
                    client.load(made)
                with pytest.raises(DuplicateKeyError, match="40 objects were not loaded"):
                    client.load(made)
                for key in ("a3", f"new{version}-3"):
                    with client.transaction():
                        client.delete(client.get(Counter, key))
                    with client.transaction():
                        assert client.find(Counter, key) is None
                        client.create(Counter(key, 1))
                    with pytest.raises(DuplicateKeyError):  # again while the one before is on its way
                        client.transactional()(lambda key=key: client.create(Counter(key, 2)))()
                with client.transaction():
                    assert len(list(client.extent(Counter))) == 20 + 20 * version
            wait_done(cluster, version)
        settled(cluster)
        check_hashed(cluster, cluster.config)
