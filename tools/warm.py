"""`python -m tools.warm`: what the first start of the servers, of Spark and of the demo fetches and builds, once.

On a new machine a minute, on a slow one several: not to be part of the first test that needs it, which has a limit.
"""

from __future__ import annotations

import sys

from halog.demo import dataset
from halog.embedded import archives, jars
from halog.embedded.java import find_java
from halog.embedded.progress import PlainProgress
from halog.errors import HalogError
from spark_jobs.spark import CONNECTOR


def main() -> int:
    """1 if it cannot be done, with one line that says why."""
    progress = PlainProgress()
    try:
        java = find_java()
        servers, _ = jars.ensure(java, progress)
        archives.ensure(java, servers, progress)
        jars.ensure(java, progress, CONNECTOR)
        dataset.ensure(progress)
    except HalogError as error:
        print(f"warm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
