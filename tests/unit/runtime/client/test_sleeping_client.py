"""A client whose coordinator is away when a mapping has changed: it waits, as for a failover."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from halog.errors import UnreachableError
from halog.runtime.keys import routing
from tests.unit.runtime.keys.remapped import Counter, begin, cluster_of, wait_done

pytestmark = pytest.mark.feature("N4", "P6")


@contextmanager
def slept(call_ms: int) -> Iterator[tuple[Any, Any]]:
    """A client that has not heard of a change that is over by now, and its coordinator, which does not answer."""
    with cluster_of(2) as cluster:
        cluster.config = replace(cluster.config, timing=replace(cluster.config.timing, call_deadline_ms=call_ms))
        client: Any = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(40)])
        coordinator = client.runtime.adapters.coordinator
        coordinator.suspend()
        assert begin(cluster, ring_size=999) == 1
        wait_done(cluster, 1)
        yield client, coordinator


@pytest.mark.parametrize("expired", [False, True], ids=["the same session", "another one"])
def test_a_client_that_slept_waits_for_its_coordinator(expired: bool) -> None:
    """Reads, writes and methods; the session may have been lost meanwhile."""
    with slept(15_000) as (client, coordinator):
        if expired:
            coordinator.tree.end_session(coordinator.session)
        back = threading.Timer(0.7, coordinator.resume)
        back.start()
        began = time.monotonic()
        with client.transaction():
            assert [client.get(Counter, f"c{i}").value for i in range(40)] == list(range(40))
        assert 0.5 < time.monotonic() - began < 10.0
        back.join()
        with client.transaction():
            client.get(Counter, "c3").value = 33
        assert client.runtime.mapped.versions


def test_it_waits_no_longer_than_a_call_may_take() -> None:
    """Then it says what it waited for, and that nothing was done."""
    with slept(1_000) as (client, coordinator):
        began = time.monotonic()
        with (
            pytest.raises(UnreachableError, match=r"version 1.* within 1 s: .*; nothing was done"),
            client.transaction(),
        ):
            for i in range(40):
                client.get(Counter, f"c{i}").value = 0
        assert 0.9 < time.monotonic() - began < 8.0
        coordinator.resume()
        with client.transaction():
            assert [client.get(Counter, f"c{i}").value for i in range(40)] == list(range(40))


def test_what_its_watch_has_told_meanwhile_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks need not get an answer of his own."""
    monkeypatch.setattr(routing, "AGAIN_S", 0.01)
    with slept(15_000) as (client, coordinator):
        known = client.runtime.routing

        def away(policy: str) -> Any:
            coordinator.resume()
            raise UnreachableError("away for this one")

        monkeypatch.setattr(known.mappings, "learn", away)
        assert known.learned("test", 1).version == 1
