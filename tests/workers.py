"""What one worker of `pytest -n … --dist loadfile` runs: a file, whose fixtures are then played once; and all files
that use servers which take seconds to start, or Spark, which takes ten."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

WHOLE = {
    "tests/contract/": "its two servers",
    "tests/integration/sites/": "two sites, and Spark",
    "tests/integration/spark/": "two sites, and Spark",
    **{f"tests/faults/test_{name}.py": "two sites that are hurt" for name in ("apart", "packets", "site_lost")},
    **{f"tests/faults/test_{name}.py": "a cluster behind links" for name in ("broker", "network")},
    **{
        f"tests/faults/test_{name}.py": "a cluster that is hurt"
        for name in ("hostile", "processes", "spread", "zookeeper")
    },
}
"""What files, or those of a directory, use together."""


SINGLY = ("tests/scenarios/test_merge_crash_points.py", "tests/integration/cluster/test_versions.py")
"""Files whose tests share nothing but time: some seconds of CPU each, or half a minute, so any worker takes one."""


def unit(nodeid: str) -> str:
    """Tests of the same one are run by the same worker. Units with many tests begin first."""
    file = nodeid.partition("::")[0]
    if file in SINGLY:
        return nodeid
    return next((name for place, name in WHOLE.items() if file.startswith(place)), file)


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


FIRST = (
    "two sites, and Spark",
    "its two servers",
    "tests/integration/demo/test_demo.py",
    "tests/integration/embedded/test_supervisor.py",
    "tests/integration/cluster/test_versions.py",
    "tests/integration/cluster/test_upgrades.py",
    "tests/integration/cluster/test_migration.py",
    "tests/integration/cluster/test_many_partitions.py",
    "tests/integration/cluster/test_sync_policies.py",
    "tests/integration/embedded/test_servers.py",
    "tests/integration/cluster/test_recovery.py",
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
"""Units that take long, of servers half a minute and more, of others some seconds of CPU; the longest of each stage
first. Who began one of them last would be waited for by all others: units with many tests begin first, and these have
few."""


def turn(unit: str) -> int:
    """Units of a lower one are begun earlier; of the same one, in xdist's order."""
    place = unit.partition("::")[0]
    return FIRST.index(place) if place in FIRST else len(FIRST)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """The same with units, the long ones first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)
