"""Wishes of operators whose answers are lost, or that meet each other (T8)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.core.keys.mapping import Layout, MappingChange, PolicyMapping, begun, opened, turned_back
from halog.errors import RefusedError
from halog.metadata import mapped_policies
from halog.runtime.remap import remap_request as wishes

pytestmark = pytest.mark.feature("P13")

OLD, NEW, OTHER = (Layout("consistent_hash", 2, ring) for ring in (1_000, 2_000, 3_000))
NOW = PolicyMapping(OLD)
OPEN = opened(begun(NOW, NEW))
BACK = PolicyMapping(NEW, 2, MappingChange(OLD, open=True, back=True))
ROUTER: Any = SimpleNamespace(nodes={}, tables={}, me="tool")


class Coordinator(MemoryCoordinator):
    """Somebody else is there first: just before the next write."""

    first: Callable[[], None] | None = None

    def set(self, path: str, data: bytes, version: int) -> int:
        first = self.first
        self.first = None
        if first is not None:
            first()
        return super().set(path, data, version)


def holding(mapping: PolicyMapping) -> Coordinator:
    made = Coordinator()
    made.connect(lambda state: None)
    made.create(mapped_policies.path_of("p"), mapped_policies.packed({}, mapping))
    return made


def held(coordinator: Coordinator) -> PolicyMapping:
    return mapped_policies.read(coordinator, "p").mapping


@pytest.fixture(autouse=True)
def _wished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is the layout itself."""
    monkeypatch.setattr(wishes, "wished", lambda config, policy: config)


def first(coordinator: Coordinator, step: Callable[[PolicyMapping], PolicyMapping]) -> Callable[[], None]:
    """Somebody else takes this step before."""

    def taken() -> None:
        mapped_policies.step(coordinator, "p", step)

    return taken


def begin(coordinator: Coordinator, layout: Any) -> int:
    return wishes.begin(coordinator, ROUTER, layout, "p")


@pytest.mark.parametrize("mapping", [begun(NOW, NEW), OPEN], ids=["not open", "open"])
def test_turned_back_once_also_if_the_answer_is_lost(mapping: PolicyMapping) -> None:
    coordinator = holding(mapping)
    coordinator.lose_reply()
    assert wishes.turn_back(coordinator, "p") == turned_back(mapping).version
    assert held(coordinator) == turned_back(mapping)


def test_two_who_turn_back_at_once_turn_it_back_once() -> None:
    coordinator = holding(OPEN)
    coordinator.first = first(coordinator, turned_back)
    assert wishes.turn_back(coordinator, "p") == 2
    assert held(coordinator) == BACK


def test_turned_back_a_second_time_it_does_not_go_ahead_again() -> None:
    coordinator = holding(BACK)
    with pytest.raises(RefusedError, match="is being turned back already"):
        wishes.turn_back(coordinator, "p")
    assert held(coordinator) == BACK


def test_the_change_that_was_seen_is_turned_back_and_no_other() -> None:
    """It opens meanwhile, which makes no difference; or it is done, and the next is under way."""
    coordinator = holding(begun(NOW, NEW))
    coordinator.first = first(coordinator, opened)
    wishes.turn_back(coordinator, "p")
    assert held(coordinator) == BACK
    coordinator = holding(OPEN)
    after = begun(PolicyMapping(NEW, 1), OTHER)
    coordinator.first = first(coordinator, lambda now: after)
    with pytest.raises(RefusedError, match="has come to its end, version 1"):
        wishes.turn_back(coordinator, "p")
    assert held(coordinator) == after


def test_a_change_is_begun_if_only_the_answer_is_lost() -> None:
    coordinator = holding(NOW)
    coordinator.lose_reply()
    assert begin(coordinator, NEW) == 1
    assert held(coordinator) == begun(NOW, NEW)


@pytest.mark.parametrize("after", [OPEN, PolicyMapping(NEW, 1)], ids=["open", "done"])
def test_a_change_that_was_begun_may_be_further_when_it_is_looked_up(after: PolicyMapping) -> None:
    coordinator = holding(NOW)
    coordinator.first = first(coordinator, lambda now: after)
    assert begin(coordinator, NEW) == 1
    assert held(coordinator) == after


def test_another_change_that_came_first_is_refused_by_name() -> None:
    coordinator = holding(NOW)
    coordinator.first = first(coordinator, lambda now: begun(now, OTHER))
    with pytest.raises(RefusedError, match="another change is under way"):
        begin(coordinator, NEW)


def test_who_waits_does_not_take_another_change_for_his_own() -> None:
    """It was turned back before anything moved; the next one has its version."""
    for mapping in (begun(NOW, OTHER), opened(begun(NOW, OTHER)), PolicyMapping(OTHER, 1)):
        with pytest.raises(RefusedError, match="was turned back"):
            wishes.wait_until_done(holding(mapping), "p", 1, NEW, 5.0)
    wishes.wait_until_done(holding(PolicyMapping(NEW, 1)), "p", 1, NEW, 5.0)
