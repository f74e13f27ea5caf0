"""Versions of the configuration in the coordinator: whole or not at all, one operator at a time, a bounded history."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.config import ClusterConfig, Config, PolicyConfig, SiteConfig, TimingConfig
from halog.errors import ConfigError, CoordinatorError, OutcomeUnknownError, RefusedError
from halog.metadata import config_versions as versions
from halog.metadata.config_versions import (
    ACTIVE,
    KEPT,
    OLD,
    VERSIONS,
    Draft,
    activate,
    digest,
    find,
    history,
    read,
)
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("P11")

BASE = Config(ClusterConfig("t"), SiteConfig(bootstrap="a:1", zookeeper="b:1"))


def draft(stay: int = 1, by: str = "ann@ops") -> Draft:
    config = dataclasses.replace(BASE, timing=TimingConfig(min_stay_ms=stay))
    return Draft(stay, by, "/etc/halog.toml", "", config)


class Hindered(MemoryCoordinator):
    """Each of the next writes of the active version comes to something else first."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.before: list[Any] = []
        self.behind: list[Any] = []

    def _hindered(self, write: Any) -> Any:
        if self.before:
            self.before.pop(0)()
        done = write()
        if self.behind:
            self.behind.pop(0)()
        return done

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        if path != ACTIVE:
            return super().create(path, data, ephemeral=ephemeral)
        return bool(self._hindered(lambda: super(Hindered, self).create(path, data)))

    def set(self, path: str, data: bytes, version: int) -> int:
        return int(self._hindered(lambda: super(Hindered, self).set(path, data, version)))


@pytest.fixture
def coordinator() -> Iterator[Hindered]:
    made = Hindered(MemoryTree())
    made.connect(lambda state: None)
    yield made
    made.close()


def no_answer() -> None:
    raise UnknownResult("no answer")


def test_a_version_is_what_was_drafted(coordinator: Hindered) -> None:
    assert (read(coordinator).version, read(coordinator).number, history(coordinator)) == (None, 0, [])
    made = activate(coordinator, read(coordinator), draft(7))
    assert (made.number, made.by, made.made_ms, made.digest) == (1, "ann@ops", 7, digest(draft(7).config))
    assert read(coordinator).version == made
    assert made.parsed() == draft(7).config
    assert made.parsed().source == "version 1"


def test_old_ones_are_kept_up_to_a_bound(coordinator: Hindered) -> None:
    for stay in range(1, KEPT + 4):
        activate(coordinator, read(coordinator), draft(stay))
    assert [v.number for v in history(coordinator)] == list(range(KEPT + 3, 2, -1))
    assert find(coordinator, 3).made_ms == 3
    with pytest.raises(ConfigError, match=f"no version 2 of the configuration; there are {KEPT + 3}, "):
        find(coordinator, 2)


@pytest.mark.parametrize("first", [True, False])
def test_whoever_comes_second_is_refused(coordinator: Hindered, first: bool) -> None:
    """At the very first activation as at a later one; what the quicker one did stands, with a whole history."""
    if not first:
        activate(coordinator, read(coordinator), draft(1))
    standing = read(coordinator)
    coordinator.before = [lambda: activate(coordinator, read(coordinator), draft(2, "bob@ops"))]
    with pytest.raises(RefusedError, match=r"bob@ops activated version \d meanwhile"):
        activate(coordinator, standing, draft(3))
    assert [v.made_ms for v in history(coordinator)] == ([2] if first else [2, 1])


@pytest.mark.parametrize("first", [True, False])
def test_what_was_compared_with_another_version_is_refused(coordinator: Hindered, first: bool) -> None:
    """The quicker one was done before the slower one began."""
    if not first:
        activate(coordinator, read(coordinator), draft(1))
    standing = read(coordinator)
    activate(coordinator, standing, draft(2, "bob@ops"))
    with pytest.raises(RefusedError, match=r"bob@ops activated version \d meanwhile"):
        activate(coordinator, standing, draft(3))
    assert [v.made_ms for v in history(coordinator)] == ([2] if first else [2, 1])


@pytest.mark.parametrize("first", [True, False])
def test_an_answer_that_does_not_come_is_looked_up(coordinator: Hindered, first: bool) -> None:
    """It landed all the same; or it did not, and the next attempt does."""
    if not first:
        activate(coordinator, read(coordinator), draft(1))
    coordinator.behind = [no_answer]
    landed = activate(coordinator, read(coordinator), draft(2))
    assert read(coordinator).version == landed
    coordinator.before = [no_answer]
    again = activate(coordinator, read(coordinator), draft(3))
    assert read(coordinator).version == again
    assert again.number == landed.number + 1


def test_without_any_answer_nothing_is_claimed(coordinator: Hindered) -> None:
    coordinator.before = [no_answer] * versions.ATTEMPTS
    with pytest.raises(OutcomeUnknownError, match="halog config history"):
        activate(coordinator, read(coordinator), draft())


def test_whoever_died_in_between_is_in_nobodys_way(coordinator: Hindered) -> None:
    """The active version was put aside, and the next one never came."""
    first = activate(coordinator, read(coordinator), draft(1))
    coordinator.create(f"{OLD}/1", first.to_bytes())
    assert [v.number for v in history(coordinator)] == [1]
    activate(coordinator, read(coordinator), draft(2))
    assert [v.number for v in history(coordinator)] == [2, 1]


def test_what_zookeeper_cannot_keep_is_refused_before_anything_is_written(
    coordinator: Hindered,
) -> None:
    policies = {f"p{n}": PolicyConfig(zone="z" * 300_000) for n in range(4)}
    large = draft()._replace(config=dataclasses.replace(BASE, policies=policies))
    with pytest.raises(RefusedError, match="more than the 900000 that ZooKeeper can keep"):
        activate(coordinator, read(coordinator), large)
    assert read(coordinator).version is None


def test_old_ones_that_cannot_be_deleted_now_are_deleted_later(
    coordinator: Hindered,
) -> None:
    last = KEPT + 4
    with coordinator.faults.fail("delete", UnknownResult("no answer")):
        for stay in range(1, last):
            activate(coordinator, read(coordinator), draft(stay))
        assert len(history(coordinator)) == last - 1
    activate(coordinator, read(coordinator), draft(last))
    assert [v.number for v in history(coordinator)] == [*range(last, last - KEPT - 1, -1)]


def test_a_znode_that_is_no_version_is_named() -> None:
    with pytest.raises(CoordinatorError, match="znode config/active holds no version"):
        VERSIONS.decode(ACTIVE, b"{}")


def test_a_digest_is_of_the_values_not_of_their_place() -> None:
    """Another file with the same values has it; relative paths are values as written."""
    moved = dataclasses.replace(BASE, source="elsewhere", written=frozenset())
    assert digest(moved) == digest(BASE)
    assert digest(dataclasses.replace(BASE, site=SiteConfig(embedded=Path("x")))) != digest(BASE)
