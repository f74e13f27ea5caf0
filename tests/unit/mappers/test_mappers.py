"""Mappers: even shares, minimal movement, the same result everywhere and for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mappers import ConsistentHash, Mapper, RoundRobin, stable_hash
from mappers.consistent_hash import share

ROOT = Path(__file__).resolve().parents[3]
VECTORS = {b"": 17691788313410565066, b"a": 4953017060842850943}
PLACES = "a06559243633123a1689b2814ab187ab"

RINGS = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(10 * (n + 1), 3000)))


def brute_ring(partitions: int, ring_size: int) -> list[int]:
    """The dumb twin: slot by slot, each new partition takes, from whoever has too much, the slots it got last."""
    history: list[list[int]] = [list(range(ring_size))]
    for new in range(1, partitions):
        history.append([])
        for owner in range(new):
            surplus = []
            while len(history[owner]) > -((owner - ring_size) // (new + 1)):
                surplus.append(history[owner].pop())
            history[new].extend(reversed(surplus))
    return [next(p for p, slots in enumerate(history) if s in slots) for s in range(ring_size)]


@pytest.mark.feature("P6")
@given(RINGS)
@settings(max_examples=40, deadline=None)
def test_the_ring_is_the_brute_force_ones(ring: tuple[int, int]) -> None:
    """The fast table and the dumb twin agree on every slot."""
    assert list(ConsistentHash(*ring).slots()) == brute_ring(*ring)


@pytest.mark.feature("P6")
@given(RINGS)
@settings(max_examples=100, deadline=None)
def test_shares_differ_by_at_most_one_slot(ring: tuple[int, int]) -> None:
    """Every partition owns its share of the ring, to the slot."""
    partitions, ring_size = ring
    owned = Counter(ConsistentHash(partitions, ring_size).slots())
    assert [owned[p] for p in range(partitions)] == [share(p, partitions, ring_size) for p in range(partitions)]
    assert max(owned.values()) - min(owned.values()) <= 1


@pytest.mark.feature("P6")
@given(RINGS)
@settings(max_examples=100, deadline=None)
def test_growing_moves_only_the_new_partitions_share(ring: tuple[int, int]) -> None:
    """Each slot that changes owner goes to the new partition, and there are exactly as many as its share."""
    partitions, ring_size = ring
    before, after = ConsistentHash(partitions, ring_size).slots(), ConsistentHash(partitions + 1, ring_size).slots()
    moved = [b for a, b in zip(before, after, strict=True) if a != b]
    assert set(moved) == {partitions}
    assert len(moved) == share(partitions, partitions + 1, ring_size)


@given(st.binary(max_size=60), st.integers(1, 400))
def test_a_key_maps_to_the_owner_of_its_slot(key: bytes, partitions: int) -> None:
    """Same key, same partition, also of another instance."""
    mapper = ConsistentHash(partitions, 4096)
    assert 0 <= mapper.partition(key) < partitions
    assert (
        mapper.partition(key)
        == mapper.slots()[stable_hash(key) % 4096]
        == ConsistentHash(partitions, 4096).partition(key)
    )


def test_real_keys_spread() -> None:
    """10,000 tail numbers over 12 partitions: no partition is off by more than a fifth."""
    mapper = ConsistentHash(12)
    counts = Counter(mapper.partition(f"N{i}AA".encode()) for i in range(10_000))
    assert all(667 <= counts[p] <= 1000 for p in range(12)), counts


def test_the_hash_is_what_its_documentation_says() -> None:
    """Fixed vectors, and BLAKE2b written out: a changed bit would send every key elsewhere."""
    for data, expected in VECTORS.items():
        assert stable_hash(data) == expected
        assert expected == int.from_bytes(blake2b(data, digest_size=8, person=b"halog.mapper.v1").digest(), "big")


def places() -> str:
    return "".join(format(ConsistentHash(12).partition(b"N%d" % i), "x") for i in range(32))


def test_places_are_fixed() -> None:
    """These keys lie in these partitions on every node; if this fails, objects would not be found any more."""
    assert places() == PLACES


def test_another_process_maps_alike() -> None:
    """Neither hash randomisation nor an executor without halog changes a place."""
    code = (
        "import sys\nfrom mappers import ConsistentHash\n"
        "print(''.join(format(ConsistentHash(12).partition(b'N%d' % i), 'x') for i in range(32)))\n"
        "assert not [m for m in sys.modules if m.startswith(('halog', 'random', 'threading'))]\n"
    )
    env = {"PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == PLACES


@pytest.mark.parametrize(
    ("partitions", "ring_size", "why"),
    [(0, 100, "1 to 4096"), (4097, 1 << 20, "1 to 4096"), (10, 99, "at least 100"), (1, (1 << 24) + 1, "at most")],
)
def test_a_ring_that_cannot_be_even_is_refused(partitions: int, ring_size: int, why: str) -> None:
    """The ring must be far larger than the number of partitions."""
    with pytest.raises(ValueError, match=why):
        ConsistentHash(partitions, ring_size)
    assert ConsistentHash(10, 100).partitions == 10


@pytest.mark.feature("P6")
@given(st.integers(1, 50), st.integers(0, 100), st.lists(st.binary(max_size=3), max_size=200))
def test_round_robin_goes_around(partitions: int, start: int, keys: list[bytes]) -> None:
    """Each create goes to the next partition, whatever the key; counts differ by at most one."""
    mapper = RoundRobin(partitions, start)
    got = [mapper.partition(key) for key in keys]
    assert got == [(start + i) % partitions for i in range(len(keys))]


def test_round_robin_from_many_threads_skips_and_repeats_nothing() -> None:
    """8 threads take 8,000 turns: each partition exactly its share."""
    mapper, got = RoundRobin(7), []

    def take() -> None:
        got.extend([mapper.partition(b"") for _ in range(1000)])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(got) == Counter(i % 7 for i in range(8000))


@pytest.mark.parametrize(("partitions", "start"), [(0, 0), (1, -1)])
def test_round_robin_refuses_nonsense(partitions: int, start: int) -> None:
    """No partitions, or a turn before the first."""
    with pytest.raises(ValueError, match="must"):
        RoundRobin(partitions, start)


def test_both_are_mappers_and_say_whether_a_key_decides() -> None:
    """A look-up may ask a mapper only if the key alone decides."""
    mappers: list[Mapper] = [ConsistentHash(3), RoundRobin(3)]
    assert all(isinstance(m, Mapper) for m in mappers)
    assert [m.by_key for m in mappers] == [True, False]
