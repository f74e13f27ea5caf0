"""Custom mappers: what they say is checked, and stays what it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mappers import ConsistentHash, CustomMapper, Mapper, MisplacedError, version_of, versioned

pytestmark = pytest.mark.feature("P6")

ROOT = Path(__file__).resolve().parents[3]
RINGS = "8371981a1c9c 9ac013d9f043"
"""Partitions of b"N0" to b"N11": 16 partitions on 4,096 slots, and 100 on 65,536, modulo 16."""


def mapper(function: Callable[[str, tuple[Any, ...]], Any], names: tuple[str, ...] = ("eu", "us")) -> CustomMapper:
    return CustomMapper("app:by", function, "Order", names, lambda raw: (raw.decode(),))


def test_it_is_told_type_and_values_and_names_the_partition() -> None:
    made: Mapper = mapper(lambda name, key: "us" if (name, key) == ("Order", ("n1",)) else "eu")
    assert [made.partition(b"n1"), made.partition(b"n2")] == [1, 0]
    assert (made.by_key, made.partitions, isinstance(made, Mapper)) == (True, 2, True)


@pytest.mark.parametrize("answer", ["asia", None, 0, True, ["eu"], ("eu",)])
def test_what_is_no_partition_is_an_error(answer: Any) -> None:
    """It names mapper, type, key, answer and the partitions there are."""
    with pytest.raises(MisplacedError) as error:
        mapper(lambda name, key: answer).partition(b"n1")
    assert str(error.value) == f"mapper app:by for Order ('n1') said {answer!r}, which is no partition: eu, us"


def test_what_fails_is_an_error() -> None:
    with pytest.raises(MisplacedError, match=r"app:by for Order \('n1'\) raised KeyError: 'n1'"):
        mapper(lambda name, key: {}[key[0]]).partition(b"n1")


def test_what_is_no_function_of_the_key_is_an_error() -> None:
    """Round robin written as a custom mapper does not pass for one."""
    turns = iter(["eu", "us"] * 2)
    with pytest.raises(MisplacedError, match="said 'eu' and then 'us': it must look at type and key only"):
        mapper(lambda name, key: next(turns)).partition(b"n1")


def test_a_function_has_a_version() -> None:
    @versioned(7)
    def by(name: str, key: tuple[Any, ...]) -> str:
        return "eu"

    assert (version_of(by), version_of(lambda name, key: "eu")) == (7, 1)
    for wrong in (0, "2", True, 1.0):
        with pytest.raises(ValueError, match="a whole number from 1"):
            version_of(versioned(wrong)(lambda name, key: "eu"))  # type: ignore[arg-type]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(800, 5000), st.lists(st.binary(max_size=9), max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_growth_moves_keys_to_new_partitions_only(before: int, more: int, ring: int, keys: list[bytes]) -> None:
    """From n to n + k: a key stays, or goes to one of the k; and no more of the ring moves than the k own."""
    old, new = ConsistentHash(before, ring), ConsistentHash(before + more, ring)
    for key in keys:
        assert new.partition(key) == old.partition(key) or new.partition(key) >= before
        assert old.partition(key) == old.slots()[old.slot(key)]
    moved = sum(a != b for a, b in zip(old.slots(), new.slots(), strict=True))
    assert moved == sum(owner >= before for owner in new.slots())
    assert abs(moved - ring * more / (before + more)) <= more, "the least an even ring takes, to the slot"


def test_other_rings_are_fixed_too_whatever_the_hash_seed() -> None:
    """Golden vectors, in processes with different hash seeds: if this fails, objects would not be found any more."""
    code = (
        "from mappers import ConsistentHash, stable_hash\n"
        "rings = ConsistentHash(16, 4096), ConsistentHash(100)\n"
        "print(*(''.join(format(r.partition(b'N%d' % i) % 16, 'x') for i in range(12)) for r in rings))\n"
        "print(stable_hash(b'halog'))\n"
    )
    for seed in ("0", "1", "4242"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        run = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
        assert run.stdout.split("\n")[:2] == [RINGS, "10807617522068999406"]
