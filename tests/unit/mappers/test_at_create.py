"""Mappers asked at create: what they say is checked; the ready-made one evens out numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from mappers import AtCreateMapper, MisplacedError, NewObject, PartitionState, States, least_loaded

pytestmark = pytest.mark.feature("P6")

NAMES = ("p-0", "p-1", "p-2")


def new(key: str = "n1", **fields: Any) -> NewObject:
    return NewObject("Order", (key,), MappingProxyType({"name": key, **fields}))


def mapper(function: Callable[..., Any]) -> AtCreateMapper:
    return AtCreateMapper("at_create:app:by", function, NAMES)


def states(**of: PartitionState) -> States:
    return {name: of.get(name.replace("-", ""), PartitionState(name)) for name in NAMES}


def test_it_is_given_the_object_the_partitions_and_their_state() -> None:
    asked: list[tuple[NewObject, tuple[str, ...], States]] = []

    def by(made: NewObject, partitions: tuple[str, ...], seen: States) -> str:
        asked.append((made, partitions, seen))
        return partitions[made.fields["size"]]

    known = states()
    assert mapper(by).choose(new(size=2), known) == "p-2"
    assert asked == [(new(size=2), NAMES, known)]
    assert asked[0][2] is known


@pytest.mark.parametrize("answer", ["asia", None, 0, True, ["p-0"], ("p-0",), ""])
def test_what_is_no_partition_is_an_error(answer: Any) -> None:
    """It names mapper, type, key, answer and the partitions there are; it is asked once."""
    with pytest.raises(MisplacedError) as error:
        mapper(lambda made, partitions, seen: answer).choose(new(), states())
    said = f"mapper at_create:app:by for Order ('n1') said {answer!r}, which is no partition: p-0, p-1, p-2"
    assert str(error.value) == said


def test_what_fails_is_an_error() -> None:
    with pytest.raises(MisplacedError, match=r"at_create:app:by for Order \('n1'\) raised KeyError: 'size'"):
        mapper(lambda made, partitions, seen: made.fields["size"]).choose(new(), states())


def test_it_may_say_something_else_each_time() -> None:
    turns = iter(NAMES)
    made = mapper(lambda made, partitions, seen: next(turns))
    assert [made.choose(new(), states()) for _ in NAMES] == list(NAMES)


def test_nobody_changes_an_object_through_what_a_mapper_sees() -> None:
    made = new(size=1)
    with pytest.raises(TypeError):
        made.fields["size"] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.key = ("other",)  # type: ignore[misc]


# --- least loaded ---


def at(name: str, objects: int | None, placed: int = 0, node: str | None = "A") -> PartitionState:
    return PartitionState(name, node=node, objects=objects, placed=placed)


def test_the_fewest_objects_win_those_that_were_just_placed_among_them() -> None:
    seen = states(p0=at("p-0", 10), p1=at("p-1", 7), p2=at("p-2", 8))
    assert least_loaded(new(), NAMES, seen) == "p-1"
    seen = states(p0=at("p-0", 10), p1=at("p-1", 7, placed=2), p2=at("p-2", 8))
    assert least_loaded(new(), NAMES, seen) == "p-2"


def test_a_partition_that_nobody_serves_or_has_counted_is_the_last_choice() -> None:
    seen = states(p0=at("p-0", 100), p1=at("p-1", 0, node=None), p2=at("p-2", None))
    assert least_loaded(new(), NAMES, seen) == "p-0"
    seen = states(p0=at("p-0", None, node=None), p1=at("p-1", None, node=None), p2=at("p-2", None))
    assert least_loaded(new(), NAMES, seen) == "p-2"


def test_where_nothing_is_known_keys_decide_evenly_and_always_alike() -> None:
    said = [least_loaded(new(f"n{i}"), NAMES, states()) for i in range(300)]
    assert said == [least_loaded(new(f"n{i}"), NAMES, states()) for i in range(300)]
    assert min(Counter(said)[name] for name in NAMES) > 60
