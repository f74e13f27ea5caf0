"""A client: lands an aircraft as often as it is told to. `python /app/land.py N14228 3`."""

from __future__ import annotations

import sys

from fleet import Aircraft

import halog


def main(tail: str, times: int) -> None:
    """One transaction per landing."""
    with halog.node("/etc/halog/halog.toml") as node:
        for _ in range(times):
            with node.transaction() as tx:
                aircraft = node.find(Aircraft, tail) or node.create(Aircraft(tail=tail))
                landings = aircraft.land(1400)
            sys.stdout.write(f"{tail} {landings} at {tx.lsn}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
