"""A process that opens a node, forks, and tells how its children ended and whether it goes on:
`python forking.py <halog.toml> <name or ""> <way> …`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import halog
from halog import aio
from halog.errors import ForkedError, NodeError
from tests.integration.objects.shop import Shelf

CHILD_S = 60.0


def ends_in_the_block(node: Any) -> None:
    sys.exit(0)


def raises_in_the_block(node: Any) -> None:
    raise SystemExit(0)


def leaves_the_block(node: Any) -> None:
    """Done by `main`."""


def closes_and_forgets(node: Any) -> None:
    node.close()
    node.runtime.close()
    del node
    gc.collect()
    sys.exit(0)


def is_refused(node: Any) -> None:
    refused = 0
    for what in (
        lambda: node.transaction().__enter__(),
        lambda: node.load([]),
        lambda: node.get(Shelf, "a"),
        lambda: halog.transaction(lambda: None)(),
    ):
        try:
            what()
        except (ForkedError, NodeError):
            refused += 1
    sys.exit(0 if refused == 4 else 1)


def opens_its_own(node: Any) -> None:
    with halog.node(sys.argv[1]) as own, own.transaction() as tx:
        tx.create(Shelf(f"child{os.getpid()}", 1))
    sys.exit(0)


WAYS: dict[str, Callable[[Any], None]] = {
    f.__name__: f
    for f in (ends_in_the_block, raises_in_the_block, leaves_the_block, closes_and_forgets, is_refused, opens_its_own)
}


def forked(node: Any, way: str) -> bool:
    """In the parent: False, once it has told how the child ended. In the child: True, it is to leave the block."""
    began, pid = time.monotonic(), os.fork()
    if pid == 0:
        WAYS[way](node)
        return True
    _tell(way, pid, began)
    return False


def _tell(way: str, pid: int, began: float) -> None:
    code: object = "hangs"
    while time.monotonic() - began < CHILD_S:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.01)
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    print(json.dumps([way, code, time.monotonic() - began]), flush=True)


def in_a_transaction(node: Any, way: str) -> bool:
    """The child leaves the transaction, too; with nothing to say it is told that its changes are not kept."""
    began, child = time.monotonic(), False
    pid = 0
    try:
        with node.transaction() as tx:
            tx.create(Shelf(f"{way}{os.getpid()}", 1))
            pid = os.fork()
            if pid == 0:
                child = True
                if way == "exits_in_a_transaction":
                    sys.exit(0)
    except ForkedError:
        assert child
        sys.exit(0 if tx.outcome == "rolled back" else 1)
    if child:
        sys.exit(2)
    _tell(way, pid, began)
    return False


def in_an_event_loop(node: Any) -> None:
    """The last one: the loop of a child that ends takes the parent's with it (they share what they wait with), whoever
    uses it. So the parent only tells how its child ended."""

    async def main() -> None:
        way, began = "in_an_event_loop", time.monotonic()
        async with aio.Node(node) as awaited, awaited.transaction() as tx:
            await tx.create(Shelf(f"{way}{os.getpid()}", 1))
            pid = os.fork()
            if pid == 0:
                sys.exit(0)
            _tell(way, pid, began)
            os._exit(0)

    asyncio.run(main())


OTHERS = {"exits_in_a_transaction": in_a_transaction, "leaves_a_transaction": in_a_transaction}


def main() -> None:
    _, toml, name, *ways = sys.argv
    with halog.node(toml, name=name or None) as node:
        for way in ways:
            if OTHERS.get(way, forked)(node, way):
                return  # a child: out of the block
        with node.transaction() as tx:
            tx.create(Shelf(f"parent{os.getpid()}", 1))
        with node.transaction() as tx:
            assert tx.get(Shelf, f"parent{os.getpid()}").stock == 1
        print(json.dumps(["parent", 0, 0.0]), flush=True)
        in_an_event_loop(node)


if __name__ == "__main__":
    main()
