"""`python -m tools.warm`: what the first start of the servers, of Spark and of the demo fetches and builds, once.

On a new machine a minute, on a slow one several: not to be part of the first test that needs it, which has a limit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from halog.demo import dataset
from halog.embedded import archives, jars
from halog.embedded.java import Java, find_java
from halog.embedded.progress import PlainProgress
from halog.errors import HalogError
from spark_jobs.spark import CONNECTOR


def main(
    java_of: Callable[[], Java] = find_java,
    jars_of: Callable[..., tuple[Path, bool]] = jars.ensure,
    archives_of: Callable[..., object] = archives.ensure,
    flights_of: Callable[..., object] = dataset.ensure,
) -> int:
    """1 if it cannot be done, with one line that says why."""
    progress = PlainProgress()
    try:
        java = java_of()
        servers, _ = jars_of(java, progress)
        archives_of(java, servers, progress)
        jars_of(java, progress, CONNECTOR)
        flights_of(progress)
    except HalogError as error:
        print(f"warm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
