"""What one worker of `pytest -n … --dist loadfile` runs: a file, whose fixtures are then played once; and all files of
suites whose servers take seconds to start, or whose Spark takes ten."""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadFileScheduling

WHOLE = {
    "tests/contract/": "its two servers",
    "tests/integration/sites/": "two sites, and Spark",
    "tests/integration/spark/": "two sites, and Spark",
}
"""What the files of a directory use together."""


def unit(nodeid: str) -> str:
    """Tests of the same one are run by the same worker. Units with many tests begin first."""
    file = nodeid.partition("::")[0]
    return next((name for directory, name in WHOLE.items() if file.startswith(directory)), file)


def is_last(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Of its directory, in the order in which tests were collected. A worker of several keeps to that within a unit
    only, and may get one behind it that was collected before: there a unit's last test is also its directory's."""
    if nextitem is None:
        return True
    if "PYTEST_XDIST_WORKER" in os.environ and unit(item.nodeid) != unit(nextitem.nodeid):
        return True
    directory, items = item.path.parent, item.session.items
    if nextitem.path.parent == directory:
        return False
    return all(later.path.parent != directory for later in items[items.index(nextitem) :])


class Scheduling(LoadFileScheduling):
    """The same with units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
