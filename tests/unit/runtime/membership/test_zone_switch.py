"""The znode of a zone's quorum: compare-and-set, whatever others do and whatever the coordinator answers (Q1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.errors import CoordinatorError, RefusedError, VersionError
from halog.metadata.zone_switches import ATTEMPTS, ZoneSwitch, read_switch, set_switch
from halog.ports import UnknownResult, Versioned

OFF, ON = ZoneSwitch(off=True, reason="a rack moves", since_ms=5), ZoneSwitch(off=False, reason="it has moved")


class Tree:
    """One znode, and what happens as it is about to be written."""

    def __init__(self) -> None:
        self.found: Versioned | None = None
        self.before: list[Callable[[], None]] = []
        self.writes = self.syncs = 0

    def get(self, path: str) -> Versioned | None:
        assert path == "zones/west"
        return self.found

    def create(self, path: str, data: bytes) -> bool:
        self._meets()
        if self.found is not None:
            return False
        self.put(data, 0)
        return True

    def set(self, path: str, data: bytes, version: int) -> int:
        self._meets()
        if self.found is None or self.found.version != version:
            raise VersionError("another version")
        self.put(data, version + 1)
        return version + 1

    def sync(self, path: str) -> None:
        self.syncs += 1

    def put(self, data: bytes, version: int) -> None:
        self.writes += 1
        self.found = Versioned(data, version)

    def _meets(self) -> None:
        if self.before:
            self.before.pop(0)()


def switch(tree: Tree, wanted: ZoneSwitch) -> ZoneSwitch:
    return set_switch(tree, "west", wanted)  # type: ignore[arg-type]


def stands(tree: Tree) -> ZoneSwitch:
    return read_switch(tree, "west")  # type: ignore[arg-type]


@pytest.mark.feature("Q1")
def test_a_switch_that_was_never_set_is_on() -> None:
    tree = Tree()
    assert stands(tree) == ZoneSwitch()
    assert switch(tree, ON) == ZoneSwitch()
    assert tree.writes == 0, "it is on already"


@pytest.mark.feature("Q1")
def test_it_is_set_once_and_keeps_the_first_reason() -> None:
    tree = Tree()
    assert switch(tree, OFF) == OFF
    assert switch(tree, ZoneSwitch(off=True, reason="another")) == OFF
    assert (stands(tree), tree.writes) == (OFF, 1)
    assert switch(tree, ON) == ON


@pytest.mark.feature("Q1")
def test_another_operator_is_quicker() -> None:
    """At the first switch and at a later one: what he set is looked at again."""
    tree = Tree()
    tree.before = [lambda: tree.put(ON.to_bytes(), 0)]
    assert switch(tree, OFF) == OFF
    assert tree.found is not None
    tree.before = [lambda: tree.put(OFF.to_bytes(), 9)]
    assert switch(tree, ON) == ON
    assert tree.found.version == 10


def _unknown() -> None:
    raise UnknownResult("no answer")


@pytest.mark.feature("Q1")
def test_an_answer_that_does_not_come_is_looked_up() -> None:
    """It did not land; then it did."""
    tree = Tree()
    tree.before = [_unknown]
    assert switch(tree, OFF) == OFF
    assert tree.syncs == 1

    def landed() -> None:
        tree.put(ON.to_bytes(), 7)
        _unknown()

    tree.before = [landed]
    assert switch(tree, ON) == ON
    assert tree.found == Versioned(ON.to_bytes(), 7)


@pytest.mark.feature("Q1")
def test_one_that_always_changes_is_refused_and_bytes_of_others_are_named() -> None:
    tree = Tree()
    tree.before = [_unknown] * ATTEMPTS
    with pytest.raises(RefusedError, match="zone west changes too often"):
        switch(tree, OFF)
    tree.put(b"\xff", 1)
    with pytest.raises(CoordinatorError, match="znode zones/west holds no switch"):
        stands(tree)
