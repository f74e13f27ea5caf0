"""A job in a process of its own whose mover writes down what it is given, and hangs after some: to be killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import spark_jobs
from halog.config import load_config
from spark_jobs.finder import Finder
from spark_jobs.mover import Counts, Misplaced
from spark_jobs.rebalance import changed
from spark_jobs.site import connect


class Hanging:
    """What came is in the file before the call returns."""

    def __init__(self, file: Path, stop_after: int) -> None:
        self.file = file
        self.left = stop_after

    def move(self, partition: str, objects: Misplaced) -> Counts:
        with self.file.open("a") as out:
            for key, target, lsn in zip(objects.keys, objects.targets, objects.lsns, strict=True):
                out.write(f"{partition} {key.hex()} {lsn} {target}\n")
        self.left -= len(objects)
        if self.left <= 0:
            print("hanging", flush=True)
            time.sleep(600)
        return {"moved": len(objects)}

    def gone(self, partition: str, keys: Sequence[bytes]) -> Counts:
        return {}

    def settle(self) -> Counts:
        return {}


def main(config: str, checkpoint: str, file: str, stop_after: str) -> None:
    spark = spark_jobs.session("local[1]", "halog-killed")
    wanted = changed(load_config(config), "p", ring_size=1_000)
    with connect(config) as site:
        Finder(spark, site, wanted, "p", Hanging(Path(file), int(stop_after)), Path(checkpoint), max_offsets=40).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
