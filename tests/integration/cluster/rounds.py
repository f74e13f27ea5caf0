"""A process that creates, finds and deletes: `python -m tests.integration.cluster.rounds CONFIG PREFIX THREADS`.

Keys of its own, and keys that every such process tries to create. It says what it is about to do, and what came of it:
`try KEY`, then `made KEY`, `exists KEY` or `doubt KEY`; `drop KEY`, then `gone KEY` or `doubt KEY`; `problem …` for
whatever must not be. It may be killed at any moment.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

import halog
from halog.errors import DuplicateKeyError, OutcomeUnknownError
from halog.runtime.node.open import RunningNode
from tests.integration.cluster.fleet import Aircraft

STEADY = 300
"""Objects that are there all the time."""
RETRIES = 300
PACE_S = 0.005


class Worker:
    """One thread."""

    def __init__(self, node: RunningNode, prefix: str, number: int, lock: threading.Lock) -> None:
        self.node = node
        self.prefix = prefix
        self.number = number
        self._lock = lock

    def run(self) -> None:
        for n in itertools.count():
            own = f"{self.prefix}{self.number}-{n}"
            if self.create(own) == "made":
                self.look(own, there=True)
                if n % 3 == 0 and self.delete(own) == "gone":
                    self.look(own, there=False)
            if self.number == 0:
                self.create(f"both{n}")
            self.look(f"steady{n * 7 % STEADY}", there=True)
            time.sleep(PACE_S)

    def say(self, *words: str) -> None:
        with self._lock:
            sys.stdout.write(" ".join(words) + "\n")
            sys.stdout.flush()

    def create(self, key: str) -> str:
        def once() -> None:
            self.node.create(Aircraft(tail=key, landings=1))

        self.say("try", key)
        try:
            self.node.transactional(retries=RETRIES)(once)()
            outcome = "made"
        except DuplicateKeyError:
            outcome = "exists"
        except OutcomeUnknownError:
            outcome = "doubt"
        self.say(outcome, key)
        return outcome

    def delete(self, key: str) -> str:
        def once() -> None:
            self.node.delete(self.node.get(Aircraft, key))

        self.say("drop", key)
        try:
            self.node.transactional(retries=RETRIES)(once)()
            outcome = "gone"
        except OutcomeUnknownError:
            outcome = "doubt"
        self.say(outcome, key)
        return outcome

    def look(self, key: str, *, there: bool) -> None:
        """Read twice and checked at the end: a single look at a node that was replaced may be old."""

        def once() -> bool:
            found = self.node.find(Aircraft, key)
            self.node.get(Aircraft, "steady0")
            return found is not None

        if self.node.transactional(retries=RETRIES)(once)() != there:
            self.say("problem", key, "was missed" if there else "is still there")


def main(config: str, prefix: str, threads: int) -> None:
    node = halog.node(config)
    lock = threading.Lock()

    def run(number: int) -> None:
        worker = Worker(node, prefix, number, lock)
        try:
            worker.run()
        except BaseException as error:
            worker.say("problem", type(error).__name__, *str(error).split())
            raise

    for number in range(threads):
        threading.Thread(target=run, args=(number,)).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
