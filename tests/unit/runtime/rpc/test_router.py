"""Requests that wait at a node found dead fail as soon as the partition table says so."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.backend import Work
from halog.core.ids import EpochId, Member
from halog.core.table.table import SYNC, PartitionTable, Replica
from halog.errors import DeadlineError, NotActiveError, OutcomeUnknownError, PartitionUnavailableError, UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.remote_sites import RemotePaces, RemoteSite
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.versions import SPOKEN
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import wait_until

A, B = Member("A", 1), Member("B", 1)
LED_BY_A = PartitionTable(
    name="p-0",
    log_id="00" * 16,
    topic="t",
    index=0,
    policy="p",
    configured=("A", "B"),
    sync_replicas=1,
    active=A,
    replicas=(Replica("B", 1, SYNC),),
)


class Dropping:
    """A channel that remembers what it was told to drop."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def expect(self, address: str, node: str, *, tls: bool) -> None: ...

    def drop(self, address: str) -> None:
        self.dropped.append(address)


def router() -> tuple[Router, Dropping]:
    channel = Dropping()
    made = Router("client", channel, 1.0)  # type: ignore[arg-type]
    made.nodes_seen({n: NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB"})
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


@pytest.mark.feature("N3")
def test_a_node_that_may_be_gone_is_told() -> None:
    """Its partition went to another node, or a request met nobody there."""
    told: list[str] = []
    channel: Any = SimpleNamespace(drop=_nothing, expect=_nothing, request=_nobody)
    made = Router("client", channel, 1.0, silent=told.append)
    made.nodes_seen({n: NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB"})
    made.table_seen("p-0", 1, LED_BY_A)
    with pytest.raises(UnreachableError):
        made.once(made, "B", b"", time.monotonic() + 1)
    assert told == ["B"]
    made.table_seen("p-0", 2, msgspec.structs.replace(LED_BY_A, active=B, replicas=()))
    assert told == ["B", "A"]


def _nothing(*_: object, **more: object) -> None:
    """Nothing comes of it."""


def _nobody(address: str, frame: bytes, timeout_s: float, **more: object) -> bytes:
    raise UnreachableError(f"{address} refuses connections", sent=False)


def test_what_another_connection_reads_counts_whatever_its_version() -> None:
    """The coordinator of another site was built anew: its znodes begin at 0 again."""
    trees = [MemoryTree(), MemoryTree()]
    for tree, table in zip(trees, (LED_BY_A, msgspec.structs.replace(LED_BY_A, active=B, replicas=())), strict=True):
        made = MemoryCoordinator(tree)
        made.connect(lambda state: None)
        made.create("partitions/p-0", table.to_bytes())
        for _ in range(3 if tree is trees[0] else 0):
            made.set("partitions/p-0", table.to_bytes(), made.get("partitions/p-0").version)  # type: ignore[union-attr]
    left, reached = list(trees), list[MemoryCoordinator]()

    def reach(site: str) -> SiteAccess:
        coordinator = MemoryCoordinator(left.pop(0))
        coordinator.connect(lambda state: None)
        reached.append(coordinator)
        return SiteAccess(site, SimpleNamespace(close=lambda: None), coordinator)  # type: ignore[arg-type]

    paces = RemotePaces(look_s=0.05)
    far = RemoteSite("east", Dropping(), {}, reach, lambda remote: None, paces)  # type: ignore[arg-type]
    far.follow("p-0", time.monotonic() + 10)
    assert (far.active("p-0"), far.stamp("p-0")) == ("A", 3)
    reached[0].suspend()
    wait_until(lambda: (far.active("p-0"), far.stamp("p-0")) == ("B", 0), "it is reached anew, and read")
    far.close()


def test_a_vote_that_was_for_another_site_names_the_one_that_serves_now() -> None:
    """This one: the empty name stands for it inside."""
    made, _ = router()
    made.site = "east"
    asked = frames.Decide("p-0", bytes(16), False, True)
    with pytest.raises(PartitionUnavailableError, match="served by site east now, and this was for site west"):
        made.ask("p-0", asked, 1.0, lambda: False, "west")


class Answering(Dropping):
    """A channel to nodes that say what they are told to say: each its own, again and again."""

    def __init__(self, **says: frames.Reply) -> None:
        super().__init__()
        self.says = says
        self.asked = list[str]()

    def request(self, address: str, data: bytes, timeout: float) -> bytes:
        self.asked.append(address.removeprefix("host-").removesuffix(":1"))
        return frames.encode(self.says[self.asked[-1]])


def names(active: str | None, elected: int | None) -> frames.ErrorReply:
    more = {} if elected is None else {"elected": elected}
    return to_frame(NotActiveError("not active", partition="p-0", active=active, **more))


@pytest.mark.parametrize(
    ("elected", "followed"), [(6, True), (5, False), (4, False), (None, False)], ids=["later", "same", "earlier", "no"]
)
def test_whom_a_node_names_that_refuses_is_asked_only_if_it_knows_of_a_later_epoch(
    elected: int | None, followed: bool
) -> None:
    """B has just been elected in A's place, and has not been told of that: A is frozen, and would be waited for."""
    channel = Answering(A=frames.CommitReply(7), B=names("A", elected))
    made = Router("client", channel, 1.0)  # type: ignore[arg-type]
    made.nodes_seen({n: NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB"})
    made.table_seen("p-0", 2, msgspec.structs.replace(LED_BY_A, active=B, replicas=(), epoch=EpochId(5, "", 1)))
    if followed:
        assert made.ask("p-0", frames.Barrier("p-0"), 1.0, lambda: False) == frames.CommitReply(7)
        assert channel.asked == ["B", "A"]
        return
    with pytest.raises(PartitionUnavailableError, match="no node became active"):
        made.ask("p-0", frames.Barrier("p-0"), 0.1, lambda: False)
    assert {*channel.asked} == {"B"}


@pytest.mark.feature("U1", "R5")
@pytest.mark.parametrize("asked", [frames.HandOverRequest("p-0", "B"), frames.Submit("p-0", bytes(16), Work((), ()))])
def test_behind_an_attempt_without_an_answer_another_version_settles_nothing(asked: Any) -> None:
    """It may have been done: B, which does not speak with this process, leads by now."""

    class Lost(Dropping):
        def request(self, address: str, data: bytes, timeout: float) -> bytes:
            made.table_seen("p-0", 2, msgspec.structs.replace(LED_BY_A, active=B, replicas=(), epoch=EpochId(5, "", 1)))
            raise DeadlineError(f"{address} did not reply")

    made = Router("client", Lost(), 1.0)  # type: ignore[arg-type]
    a, b = (NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB")
    made.nodes_seen({"A": a, "B": msgspec.structs.replace(b, protocols=(8, 9), version="1.4")})
    made.table_seen("p-0", 1, LED_BY_A)
    with pytest.raises(OutcomeUnknownError, match=r"node B runs halog 1\.4"):
        made.ask("p-0", asked, 3.0, lambda: False)
