"""A command that upgrades asks nodes with the patience that it was given (U1)."""

from __future__ import annotations

from typing import cast

import pytest

from halog.cli.shared.connection import ClusterConnection
from halog.cli.upgrade.fleet import COUNTS_S, ConnectedFleet
from halog.runtime.rpc import frames


class Router:
    """It notes how long each node is waited for, and whether it scans."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[bool, float]] = {}

    def request(self, node: str, frame: frames.StateHashes, timeout_s: float) -> frames.StateHashesReply:
        self.asked[node] = (frame.scan, timeout_s)
        return frames.StateHashesReply(1, b"h", ())


class Connection:
    def __init__(self) -> None:
        self.router = Router()


@pytest.mark.feature("U1")
@pytest.mark.parametrize(("patience_s", "deep", "waits_s"), [(600.0, True, 600.0), (600.0, False, COUNTS_S)])
def test_a_node_that_reads_all_it_has_stored_has_the_commands_own_timeout(
    patience_s: float, deep: bool, waits_s: float
) -> None:
    connection = Connection()
    fleet = ConnectedFleet(cast(ClusterConnection, connection), (), patience_s, deep=deep)
    fleet.marks("C", {"p-0": "A"})
    assert connection.router.asked == {"C": (deep, waits_s), "A": (False, COUNTS_S)}
