"""A znode that cannot be read is told by its name, whatever its bytes are (Q4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import CoordinatorError
from halog.metadata import config_versions, drains, restore_requests, upgrades, zone_switches
from halog.metadata.nodes import read_nodes
from halog.metadata.partition_tables import table_of
from halog.ports import Coordinator
from halog.runtime.placement import plan as plans
from halog.runtime.sites import voting

READS: dict[str, Callable[[Coordinator], object]] = {
    "nodes/A": lambda c: read_nodes(c, ["A"]),
    "closed/p-0": lambda c: restore_requests.closed_at(c, "p-0"),
    "restores/p-0": lambda c: restore_requests.restore_of(c, "p-0"),
    "partitions/p-0": lambda c: table_of(c, "p-0"),
    "zones/z": lambda c: zone_switches.read_switch(c, "z"),
    "drained/A": drains.drained_at,
    "config/active": config_versions.read,
    "site_votes/p-0": lambda c: voting.held(c, "p-0"),
    "plan": plans.read,
    "upgrade": upgrades.read_upgrade,
}


@pytest.mark.feature("Q4")
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"text"', b'{"name":"\xff","site":"\xff","by":"\xff"}'])
@pytest.mark.parametrize("path", READS)
def test_it_is_an_error_of_the_coordinator(path: str, data: bytes) -> None:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    coordinator.create(path, data)
    with pytest.raises(CoordinatorError):
        READS[path](coordinator)
