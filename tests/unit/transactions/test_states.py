"""What was read while a partition stood still is not checked again, and not looked up again; never anything else."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Collection

import pytest

from halog.errors import ConflictError
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.model import Plain

pytestmark = pytest.mark.feature("D1")


def counted(node: MemoryNode) -> list[str]:
    """Partitions whose reads were checked at the end of a transaction, from now on."""
    checked: list[str] = []
    real = node.backend.validate

    def validate(partition: str, reads: Collection[tuple[bytes, int]], *, least: int = 0, mapping: int = 0) -> None:
        checked.append(partition)
        real(partition, reads)

    node.backend.validate = validate  # type: ignore[method-assign]
    return checked


def elsewhere(node: MemoryNode, change: Callable[[], None]) -> None:
    def run() -> None:
        with node.transaction():
            change()

    contextvars.Context().run(run)


def set_text(node: MemoryNode, number: int, text: str) -> None:
    elsewhere(node, lambda: setattr(node.get(Plain, number), "text", text))


def test_reads_of_a_partition_that_stood_still_are_not_checked_again(here: MemoryNode) -> None:
    here.load([Plain(i) for i in range(3)])
    checked = counted(here)
    for _ in range(2):  # the second time nothing is looked up either
        with here.transaction() as tx:
            assert [tx.get(Plain, i).text for i in range(3)] == ["", "", ""]
            assert tx.find(Plain, 99) is None
    assert checked == []


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_change_between_two_reads_is_noticed(here: MemoryNode, changed: int) -> None:
    here.load([Plain(i, "old") for i in range(3)])
    for _ in range(2):
        with here.transaction() as tx:
            [tx.get(Plain, i).text for i in range(3)]
    checked = counted(here)
    texts: list[str] = []

    def read() -> None:
        with here.transaction() as tx:
            texts.append(tx.get(Plain, 0).text)
            set_text(here, changed, "new")
            texts.extend(tx.get(Plain, i).text for i in (1, 2))

    if changed == 0:
        with pytest.raises(ConflictError, match="Plain 0"):
            read()
    else:
        read()
    assert checked == ["memory-0"]
    assert texts == ["new" if i == changed and i else "old" for i in range(3)]


def test_a_change_after_the_last_read_is_noticed(here: MemoryNode) -> None:
    here.load([Plain(0), Plain(1)])
    with pytest.raises(ConflictError), here.transaction() as tx:
        tx.get(Plain, 0)
        tx.get(Plain, 1)
        set_text(here, 1, "new")


def test_a_key_found_absent_and_created_meanwhile_is_noticed(here: MemoryNode) -> None:
    here.load([Plain(0)])
    with pytest.raises(ConflictError), here.transaction() as tx:
        assert tx.find(Plain, 5) is None
        tx.get(Plain, 0)
        here.load([Plain(5)])


def test_reads_of_several_partitions_are_checked(spread: MemoryNode) -> None:
    first = spread.space.route(Plain, (0,)).partition
    other = next(i for i in range(1, 99) if spread.space.route(Plain, (i,)).partition != first)
    spread.load([Plain(0), Plain(other)])
    checked = counted(spread)
    with spread.transaction() as tx:
        tx.get(Plain, 0), tx.get(Plain, other)
    assert len(checked) == 2


def test_an_extent_is_checked(here: MemoryNode) -> None:
    here.load([Plain(0), Plain(1)])
    checked = counted(here)
    with here.transaction() as tx:
        tx.get(Plain, 0)
        list(tx.extent(Plain))
    assert checked == ["memory-0"]


def test_a_node_that_is_not_active_looks_up_and_checks(here: MemoryNode) -> None:
    here.load([Plain(0), Plain(1)])
    states = here.backend.states
    checked = counted(here)
    kept = dict(states)
    states.clear()  # what a copy does that is no longer active
    with here.transaction() as tx:
        tx.get(Plain, 0), tx.get(Plain, 1)
    assert checked == ["memory-0"]
    states.update(kept)


def test_what_is_read_in_the_middle_of_a_change_is_never_taken_for_one_snapshot(here: MemoryNode) -> None:
    """One commit changes two objects; a reader comes between the first and the second."""
    here.load([Plain(0, "old"), Plain(1, "old")])
    for _ in range(2):
        with here.transaction() as tx:
            [tx.get(Plain, i).text for i in range(2)]
    at = here.backend.cluster.partitions["memory-0"]
    half, go_on = threading.Event(), threading.Event()

    class Slow(dict):  # type: ignore[type-arg]
        def __setitem__(self, key: bytes, value: object) -> None:
            super().__setitem__(key, value)
            if not half.is_set():
                half.set()
                assert go_on.wait(5)

    at.objects = Slow(at.objects)

    def change() -> None:
        with here.transaction() as tx:
            for i in range(2):
                tx.get(Plain, i).text = "new"

    writer = threading.Thread(target=change)
    writer.start()
    assert half.wait(5)
    checked = counted(here)
    try:
        with pytest.raises(ConflictError), here.transaction() as tx:
            texts = [tx.get(Plain, i).text for i in range(2)]
            go_on.set()
            writer.join(5)
        assert texts == ["new", "old"]
    finally:
        go_on.set()
    assert checked == ["memory-0"]
