"""An application that hosts a node and is told of the others: `python -m tests.integration.cluster.notified CONFIG NODE
[hangs]`.

Each change of a remote node becomes a flight of an aircraft that has the node's name, in the notifier's transaction. It
says `begin available B` and `end available B` around that. With `hangs` no notifier returns before its node closes.
"""

from __future__ import annotations

import sys
import threading

import halog
from halog.runtime.events.node_notifiers import NodeChange
from tests.integration.cluster.fleet import Aircraft, Flight


def main(config: str, name: str, hangs: bool) -> None:
    node, closing, lock = halog.node(config, name=name), threading.Event(), threading.Lock()

    def say(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def tell(what: str, change: NodeChange) -> None:
        say(f"begin {what} {change.node}")
        if hangs:
            closing.wait()
            return
        aircraft = node.find(Aircraft, change.node) or node.create(Aircraft(tail=change.node))
        number = aircraft.land(0)
        node.create(Flight(tail=change.node, number=number, of=f"{what}: {change.state}: {change.why}"))
        say(f"end {what} {change.node}")

    node.on_node_change(
        available=lambda change: tell("available", change), unavailable=lambda change: tell("unavailable", change)
    )
    say("up")
    closing.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["hangs"])
