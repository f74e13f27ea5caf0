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

EARLY = (
    "tests/scenarios/test_merge_crash_points.py",
    "tests/unit/schema/test_values.py",
    "tests/unit/spark_jobs/test_handed_on.py",
    "tests/unit/spark_jobs/test_branching_worlds.py",
    "tests/unit/transactions/test_machine.py",
    "tests/unit/transactions/test_interrupted_calls.py",
    "tests/unit/core/sites/test_merge_model.py",
    "tests/unit/schema/test_typing.py",
    "tests/unit/restore/test_looked_at.py",
    "tests/unit/core/sites/test_switch_model.py",
    "tests/unit/core/sites/test_sync_sites_model.py",
    "tests/unit/docs/test_docstrings.py",
    "tests/unit/mappers/test_mappers.py",
    "tests/unit/adapters/test_members_watch.py",
    "tests/unit/spark_jobs/test_branching.py",
)
"""Files with few tests that take seconds of CPU each, the longest first. Those with the most tests begin first: these
would be the last ones, one worker would be at each, and the others would have nothing left to do."""


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
    """The same with units; and what is long with few tests begins right behind the first units."""

    def schedule(self) -> None:
        super().schedule()
        for file in reversed(EARLY):
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=False)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
