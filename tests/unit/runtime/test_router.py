"""Requests that wait at a node found dead fail as soon as the partition table says so."""

from __future__ import annotations

import msgspec

from halog.core.ids import Member
from halog.core.table import SYNC, PartitionTable, Replica
from halog.runtime.members import NodeInfo
from halog.runtime.router import Router

A, B = Member("A", 1), Member("B", 1)
LED_BY_A = PartitionTable(
    name="p-0", log_id="00" * 16, topic="t", index=0, policy="p", configured=("A", "B"), sync_replicas=1,
    active=A, replicas=(Replica("B", 1, SYNC),),
)  # fmt: skip


class Dropping:
    """A channel that remembers what it was told to drop."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop(self, address: str) -> None:
        self.dropped.append(address)


def router() -> tuple[Router, Dropping]:
    channel = Dropping()
    made = Router("client", channel, 1.0)  # type: ignore[arg-type]
    made.nodes_seen({n: NodeInfo(n, 1, f"host-{n}:1", 0, True, 0, "") for n in "AB"})
    made.table_seen("p-0", 1, LED_BY_A)
    return made, channel


def test_an_active_node_that_left_the_node_list_is_not_waited_for() -> None:
    made, channel = router()
    made.table_seen("p-0", 2, msgspec.structs.replace(LED_BY_A, active=B, replicas=()))
    assert channel.dropped == ["host-A:1"]


def test_an_active_node_that_handed_over_may_still_answer() -> None:
    made, channel = router()
    made.table_seen("p-0", 2, msgspec.structs.replace(LED_BY_A, active=B, replicas=(Replica("A", 1, SYNC),)))
    made.table_seen("p-0", 1, LED_BY_A)
    assert channel.dropped == []
