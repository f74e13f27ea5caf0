"""A node that says nothing: only what may have happened is unknown (R5, X4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from halog import aio
from halog.errors import AvailabilityError, OutcomeUnknownError
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("R5")

REGISTRY = Registry()
CALL_S = 1.0
USUAL_S = 60.0
"""Of calls before the node falls silent, which a busy machine may answer late."""


@managed(key="name", registry=REGISTRY)
class Reg:
    name: str
    value: int = 0

    def look(self) -> int:
        return self.value


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One node, whose session lasts longer than anybody waits: it is silent, and nobody takes its place."""
    made = Cluster(1, partitions=1, sync_replicas=0, registry=REGISTRY)
    timing = replace(
        made.config.timing, attempt_timeout_ms=200, call_deadline_ms=int(USUAL_S * 1000), session_timeout_ms=60_000
    )
    made.config = replace(made.config, timing=timing).validate()
    with made.start():
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Any:
    made = cluster.client()
    with made.transaction():
        made.create(Reg("a"))
        made.create(Reg("b"))
    return made


def silence(cluster: Cluster, client: Any) -> None:
    """From now on the client waits in vain, and not for long."""
    cluster.pause("A")
    client.backend.asker.call_s = CALL_S


def _get(tx: Any) -> None:
    tx.get(Reg, "a")


def _changed_before(tx: Any) -> None:
    tx.create(Reg("c"))
    tx.get(Reg, "a")


READS: dict[str, Callable[[Any], object]] = {
    "get": _get,
    "find": lambda tx: tx.find(Reg, "none"),
    "extent": lambda tx: list(tx.extent(Reg)),
    "behind a change": _changed_before,
}


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("mode", ["active", "barrier"])
def test_a_read_that_nobody_answers_has_not_happened(cluster: Cluster, client: Any, what: str, mode: Any) -> None:
    silence(cluster, client)
    began = time.monotonic()
    try:
        with pytest.raises(AvailabilityError) as told, client.transaction(read=mode) as tx:
            READS[what](tx)
    finally:
        cluster.resume("A")
    assert told.value.happened is False
    assert "test-0" in str(told.value)
    assert tx.outcome == "rolled back"
    assert CALL_S * 0.9 < time.monotonic() - began < CALL_S + 15


@pytest.mark.parametrize("what", ["check", "method", "token"])
def test_nor_has_what_comes_behind_the_reads(cluster: Cluster, client: Any, what: str) -> None:
    with client.transaction() as tx:
        tx.create(Reg("t"))
    token = tx.token
    try:
        with pytest.raises(AvailabilityError) as told, client.transaction(after=token if what == "token" else ()) as tx:
            if what != "token":
                one = tx.get(Reg, "a")
                tx.get(Reg, "b")
            silence(cluster, client)
            if what == "method":
                one.look()
            elif what == "token":
                tx.get(Reg, "a")
    finally:
        cluster.resume("A")
    assert told.value.happened is False
    assert tx.outcome == "rolled back"


def test_nor_in_an_event_loop(cluster: Cluster, client: Any) -> None:
    async def main() -> None:
        async with aio.Node(client).transaction() as tx:
            await tx.get(Reg, "a")

    silence(cluster, client)
    try:
        with pytest.raises(AvailabilityError) as told:
            asyncio.run(main())
    finally:
        cluster.resume("A")
    assert told.value.happened is False


def test_a_commit_that_nobody_answers_is_unknown_and_named(cluster: Cluster, client: Any) -> None:
    try:
        with pytest.raises(OutcomeUnknownError) as told, client.transaction() as tx:
            tx.get(Reg, "a").value = 1
            silence(cluster, client)
    finally:
        cluster.resume("A")
    assert told.value.evidence["tx"] == tx.id.hex()
    assert tx.outcome == "unknown"


def test_what_became_of_it_is_not_told_by_silence(cluster: Cluster, client: Any) -> None:
    silence(cluster, client)
    try:
        with pytest.raises(AvailabilityError):
            client.runtime.operators.outcome("test-0", bytes(16), 1)
    finally:
        cluster.resume("A")
