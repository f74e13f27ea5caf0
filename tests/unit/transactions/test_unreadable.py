"""Objects whose bytes cannot be read, as an older halog may have written them: named, and in nobody's way."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from halog import aio
from halog.backend import Work, Write
from halog.core.log.records import CREATE
from halog.errors import RecordFormatError
from halog.schema import TypeInfo
from halog.schema.scalars import write_long
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.schema.shapes_strategy import declare

FAR = write_long(253_402_318_800_000_000)
"""Five hours behind the end of year 9999."""
FEATURE = pytest.mark.feature("D2")


def spoil(node: MemoryNode, info: TypeInfo, name: str) -> None:
    """An object with a moment that no calendar has."""
    key = info.index_key((name,))
    value = info.encode(info.cls(name, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
    value = value[:8] + info.encode_key((name,)) + FAR + value[-1:]
    partition = node.backend.partition_of(info.name, info.routing_key((name,)))
    write = Write(CREATE, node.backend.new_reference().to_bytes(), key, value, -1)
    node.backend.commit(partition, node.backend.new_transaction_id(), Work((), (write,)))


@pytest.fixture
def tickets() -> TypeInfo:
    return declare({"name": str, "until": dt.datetime, "used": int}, key="name", cls_name="Ticket", body={"used": 0})


def opened(info: TypeInfo, **more: Any) -> MemoryNode:
    return MemoryNode(MemoryCluster(partitions=3), info.cls.__halog_registry__, **more)


@FEATURE
@pytest.mark.parametrize("remote", [False, True])
def test_an_extent_gives_all_others_and_then_names_it(tickets: TypeInfo, remote: bool) -> None:
    """Behind the last object, so that whoever handles each has handled all that can be."""
    with opened(tickets, remote=remote) as node:
        with node.transaction():
            for n in range(20):
                node.create(tickets.cls(f"t{n}", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
        spoil(node, tickets, "spoilt")
        got: list[str] = []
        with node.transaction():
            with pytest.raises(RecordFormatError, match=r"Ticket 'spoilt' in partition .* cannot be read") as caught:
                got.extend(t.name for t in node.extent(tickets.cls))
            assert caught.value.evidence["key"] == tickets.index_key(("spoilt",))
        assert sorted(got) == sorted(f"t{n}" for n in range(20))
        spoil(node, tickets, "another")
        with node.transaction(), pytest.raises(RecordFormatError, match="2 objects of the extent of Ticket") as caught:
            list(node.extent(tickets.cls))
        assert sorted(caught.value.evidence["objects"]) == ["Ticket 'another'", "Ticket 'spoilt'"]


@FEATURE
def test_an_awaited_extent_gives_all_others_too(tickets: TypeInfo) -> None:
    """Also those of the last page, which is fetched together with the error."""

    async def names(node: MemoryNode) -> list[str]:
        got: list[str] = []
        async with aio.Node(node, threads=1).transaction() as tx:
            with pytest.raises(RecordFormatError, match="Ticket 'spoilt'"):
                async for ticket in tx.extent(tickets.cls):
                    got.append(ticket.name)
        return got

    with opened(tickets) as node:
        with node.transaction():
            for n in range(7):
                node.create(tickets.cls(f"t{n}", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
        spoil(node, tickets, "spoilt")
        assert sorted(asyncio.run(names(node))) == sorted(f"t{n}" for n in range(7))


def test_a_look_names_it_and_others_can_be_changed(tickets: TypeInfo) -> None:
    """Also in one transaction with it."""
    with opened(tickets) as node:
        with node.transaction():
            node.create(tickets.cls("good", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
        spoil(node, tickets, "spoilt")
        with node.transaction():
            node.get(tickets.cls, "good").used += 1
            with pytest.raises(RecordFormatError, match=r"Ticket 'spoilt' in partition .*halog get --raw"):
                node.get(tickets.cls, "spoilt")
        with node.transaction():
            assert node.get(tickets.cls, "good").used == 1
