"""A bank's client process: `python -m tests.integration.cluster.bankers CONFIG PREFIX THREADS`.

Aircraft are accounts, miles the money. Each transfer takes from one and gives to another, mostly in another partition,
and writes a Flight beside both, so that half of it would be seen. It says `try`, then `done` or `unknown`, with the
transfer's number and both accounts; it may be killed at any moment.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading

import halog
from halog.errors import HalogError
from halog.transactions.node import Node
from tests.integration.cluster.fleet import Aircraft, Flight

ACCOUNTS = tuple(f"bank{i}" for i in range(10))
BALANCE = 1_000


def opened(node: Node) -> None:
    """Every account, in one transaction."""

    @node.transactional(retries=200)
    def run() -> None:
        for tail in ACCOUNTS:
            if node.find(Aircraft, tail) is None:
                node.create(Aircraft(tail=tail, miles=BALANCE))

    run()


def transfer(node: Node, frm: str, to: str, amount: int, number: int, of: str) -> None:
    """All of it or nothing, however often it is run."""

    @node.transactional(retries=200)
    def run() -> None:
        node.get(Aircraft, frm).miles -= amount
        node.get(Aircraft, to).miles += amount
        for tail in (frm, to):
            node.create(Flight(tail=tail, number=number, of=of))

    run()


def total(node: Node) -> int:
    """As one transaction sees it."""

    @node.transactional(retries=200)
    def run() -> int:
        return sum(node.get(Aircraft, tail).miles for tail in ACCOUNTS)

    return run()


def attempt(node: Node, frm: str, to: str, number: int, of: str) -> str:
    """What became of a transfer, as its application was told."""
    try:
        transfer(node, frm, to, random.randint(1, 9), number, of)
    except HalogError as error:
        sys.stderr.write(f"{number}: {error!r} {error.evidence}\n")
        return "unknown" if error.happened is None else "failed"
    return "done"


def main(config: str, prefix: str, threads: int) -> None:
    node = halog.node(config)
    lock, numbers = threading.Lock(), itertools.count(random.randrange(1 << 40) << 10)

    def say(*words: object) -> None:
        with lock:
            sys.stdout.write(" ".join(map(str, words)) + "\n")
            sys.stdout.flush()

    def run() -> None:
        while True:
            number = next(numbers)
            frm, to = random.sample(ACCOUNTS, 2)
            say("try", number, frm, to)
            say(attempt(node, frm, to, number, prefix), number, frm, to)

    for _ in range(threads):
        threading.Thread(target=run).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
