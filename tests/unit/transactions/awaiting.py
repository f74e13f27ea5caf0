"""Runs a coroutine on a node on the memory adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import halog.aio
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.model import REGISTRY

Body = Callable[[halog.aio.Node, MemoryNode], Coroutine[Any, Any, None]]


def run(body: Body, *, remote: bool = False, threads: int = 4) -> None:
    async def main() -> None:
        sync = MemoryNode(MemoryCluster(1), REGISTRY, remote=remote)
        async with halog.aio.Node(sync, threads=threads) as node:
            await asyncio.wait_for(body(node, sync), 10)

    asyncio.run(main())
