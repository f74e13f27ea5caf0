"""A node that hosts what it is given, and uses everything: `python -m tests.integration.cluster.foreigner CONFIG NAME`.

It says `seen STATE ACTIVE NODES FOREIGN` whenever what it knows of p-0 changes; and `done TAIL` for each aircraft that
it has created and changed, one after the other, or `failed` with the error's name. It may be killed at any moment.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import halog
from halog.errors import HalogError
from halog.runtime.node.open import RunningNode
from tests.integration.cluster.fleet import Aircraft

LOOK_S = 0.02


def create_and_change(node: RunningNode, tail: str) -> None:
    """In two transactions."""

    @node.transactional(retries=200)
    def create() -> None:
        node.create(Aircraft(tail=tail))

    @node.transactional(retries=200)
    def land() -> None:
        node.get(Aircraft, tail).land(10)

    create()
    land()


def main(config: str, name: str) -> None:
    lock = threading.Lock()

    def say(*words: object) -> None:
        with lock:
            sys.stdout.write(" ".join(map(str, words)) + "\n")
            sys.stdout.flush()

    def watch(node: RunningNode) -> None:
        before: tuple[object, ...] = ()
        while True:
            p = node.partitions["p-0"]
            seen = p.state, p.active or "-", ",".join(p.node_list) or "-", p.foreign
            if seen != before:
                say("seen", *seen)
            before = seen
            time.sleep(LOOK_S)

    with halog.node(config, name=name) as node:
        threading.Thread(target=watch, args=(node,), daemon=True).start()
        for n in itertools.count():
            tail = f"{name}{os.getpid()}-{n}"
            try:
                create_and_change(node, tail)
                say("done", tail)
            except HalogError as error:
                say("failed", type(error).__name__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
