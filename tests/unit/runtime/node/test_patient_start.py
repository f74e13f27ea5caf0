"""A node that starts while its coordinator gives no answer, or its log has no leader: it goes on trying as long as a
call may take (N4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.conf import unreachable as unreachable_log
from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryTree
from halog.config import Config
from halog.errors import UnreachableError
from halog.ports import UnknownResult
from halog.runtime.node.open import open_node
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.support.adapters import Adapters
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("N4")


SOON_S = 20.0
"""On a busy machine, too."""


def unreachable() -> Exception:
    return UnreachableError("the coordinator does not answer", coordinator=True)


def leaderless() -> Exception:
    return unreachable_log(KafkaAccess("b:1"), KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))


class Flaky(MemoryCoordinator):
    """Its n-th request fails in each of the first few sessions, or all from there on: those of who cleans up, too."""

    def __init__(self, tree: MemoryTree, nth: int, error: Callable[[], Exception] | None, *, lasts: bool) -> None:
        super().__init__(tree)
        self._left = nth
        self._error = error
        self._lasts = lasts
        self.has_joined = False

    def joined(self) -> None:
        self.has_joined = True

    def _check(self) -> None:
        super()._check()
        self._left -= 1
        if (self._left == 0 or (self._lasts and self._left < 0)) and self._error is not None:
            raise self._error()


def config(call_ms: int) -> Config:
    """Of one node, which is not started."""
    made = Cluster(nodes=1, partitions=2, registry=Registry()).config
    return replace(made, timing=replace(made.timing, call_deadline_ms=call_ms))


def starts(
    nth: int,
    error: Callable[[], Exception],
    times: int,
    call_ms: int = 15_000,
    paces: Paces = PACES,
    *,
    lasts: bool = False,
) -> tuple[Any, list[Adapters]]:
    """The node, once it has started, and what was made for its attempts: so many of them fail."""
    tree, broker, made = MemoryTree(), MemoryBroker(), list[Adapters]()

    def adapters(config: Config, name: str) -> Adapters:
        coordinator = Flaky(tree, nth, error if len(made) < times else None, lasts=lasts)
        made.append(Adapters(MemoryLog(broker), coordinator, MemoryChannel(), None, lambda site: None))  # type: ignore[arg-type,return-value]
        return made[-1]

    return open_node(config(call_ms), "client", paces, registry=Registry(), adapters=adapters), made


ERRORS = {"away": unreachable, "unknown": lambda: UnknownResult("create: no answer"), "leaderless": leaderless}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("nth", [1, 2, 5, 9, 17])
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "and on"])
def test_a_start_that_got_no_answer_is_tried_again(nth: int, error: Any, lasts: bool) -> None:
    """At whichever question it failed (of what it may have made it asks by itself); nothing of the attempts before is
    left running."""
    before = {t.name for t in threading.enumerate()}
    opened, made = starts(nth, error, times=2, paces=PACES._replace(again_s=0.01), lasts=lasts)
    assert len(made) == 3
    assert not made[0].coordinator.is_connected  # type: ignore[attr-defined]
    assert [m.coordinator.has_joined for m in made] == [False, False, True]  # type: ignore[attr-defined]
    opened.close()
    until = time.monotonic() + 60
    while {t.name for t in threading.enumerate() if t.name.startswith("halog")} - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not {t.name for t in threading.enumerate() if t.name.startswith("halog")} - before


def test_it_is_given_up_in_time() -> None:
    """As long as a call may take, and one attempt more at most."""
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="the coordinator does not answer"):
        starts(3, unreachable, times=1_000, call_ms=1_000)
    assert 0.9 < time.monotonic() - began < SOON_S


def test_anything_else_is_told_at_once() -> None:
    """Nobody waits for a server that is not there, or is another one."""
    began, tries = time.monotonic(), list[Adapters]()
    with pytest.raises(UnreachableError, match="nobody listens"):
        tries += starts(3, lambda: UnreachableError("nobody listens"), times=1_000, call_ms=60_000)[1]
    assert time.monotonic() - began < SOON_S
