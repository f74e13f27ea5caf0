"""A client process: `python -m tests.integration.cluster.client CONFIG PREFIX THREADS`.

Each transaction creates an aircraft and nine flights of it, whole or not at all. It says `try TAIL` before and
`done TAIL` after each, to be killed at any moment.
"""

from __future__ import annotations

import itertools
import sys
import threading

import halog
from tests.integration.cluster.fleet import Aircraft, Flight

FLIGHTS = 9


def main(config: str, prefix: str, threads: int) -> None:
    node = halog.node(config)
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def run(number: int) -> None:
        for n in itertools.count():
            tail = f"{prefix}{number}-{n}"
            say(f"try {tail}")
            with node.transaction():
                node.create(Aircraft(tail=tail, landings=FLIGHTS))
                for flight in range(FLIGHTS):
                    node.create(Flight(tail=tail, number=flight, of=prefix))
            say(f"done {tail}")

    for number in range(threads):
        threading.Thread(target=run, args=(number,)).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
