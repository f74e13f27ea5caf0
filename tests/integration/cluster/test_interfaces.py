"""Two nodes with two networks between them, in network namespaces: real sockets, and packets that do not arrive (N4).

A is asked what it knows of B. Only what each knows of the other runs here, in two threads of this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from halog.adapters.tcp.channel import TcpChannel
from halog.core.ids import Member
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.members import Membership
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import SPOKEN
from halog.runtime.support.clock import monotonic_ms
from tests.integration.cluster.processes import wait
from tests.integration.sites.packets import Namespace, ip, why_not

pytestmark = pytest.mark.timeout(300)

TIMEOUT_MS, KEEP_ALIVE_MS = 4_000, 500
LATE_MS = 3_500
"""The machine is shared: a thread may have its turn late. It is less than the timeout: which of them it was is told."""
DROPS = "100"
"""Priority of the rules that drop what arrives; what is for this machine itself comes behind them."""


class Side:
    """One of the two, in a namespace of its own."""

    def __init__(self, name: str, other: str, number: int) -> None:
        self.name, self.other = name, other
        self.space = Namespace()
        self.addresses = tuple(f"192.0.2.{8 * net + number}" for net in range(2))
        self.lost: list[int] = []
        self.ups: list[bool] = []
        """Whether the other one is up, at each change: it may be down for some ms only."""
        self.channel = TcpChannel()
        self.freezes = threading.Event()
        self._closing = threading.Event()

    def listen(self) -> NodeInfo:
        """Begin to take connections, and return what is registered."""
        with self.space.inside():
            at = [self.channel.listen(f"{address}:7400", self._hear, lambda peer: None) for address in self.addresses]
        return NodeInfo(self.name, 1, at[0], ord(self.name), True, 0, "", protocols=SPOKEN, addresses=tuple(at))

    def begin(self, infos: dict[str, NodeInfo]) -> None:
        with self.space.inside():  # threads stay where they are made
            self.members = Membership(
                Member(self.name, 1),
                frames.Hello("c", self.name, 1),
                self.channel,
                KEEP_ALIVE_MS,
                TIMEOUT_MS,
                lambda members, why: self.ups.append(Member(self.other, 1) in members),
                lambda work: threading.Thread(target=work, daemon=True).start(),
            )
            threading.Thread(target=partial(self._run, infos), daemon=True).start()

    def _run(self, infos: dict[str, NodeInfo]) -> None:
        self.members.registrations(infos)
        while not self._closing.wait(0.02):
            if not self.freezes.is_set():
                self.members.tick()
            failed_ms = self.members.links[self.other].turns.all_failed_ms
            if failed_ms and failed_ms not in self.lost:
                self.lost.append(failed_ms)

    def _hear(self, peer: Peer, frame: bytes) -> None:
        if not self.freezes.is_set():
            self.members.heard(self.other, 1)

    @property
    def up(self) -> bool:
        return Member(self.other, 1) in self.members.alive

    def drop(self, *sources: str) -> None:
        """Drop whatever comes from these: no SYN is answered."""
        with self.space.inside():
            for source in sources:
                ip("rule", "add", "priority", DROPS, "from", source, "blackhole")

    def close(self) -> None:
        self._closing.set()
        self.members.closed = True
        self.channel.close()
        self.space.close()


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    if reason := why_not():
        pytest.skip(reason)
    a, b = Side("A", "B", 1), Side("B", "A", 2)
    with a.space.inside():
        for net in range(2):
            ip("link", "add", "name", f"net{net}", "type", "veth", "peer", "name", f"net{net}", "netns", b.space.path)
    for side in (a, b):
        with side.space.inside():
            for net, address in enumerate(side.addresses):
                ip("addr", "add", f"{address}/29", "dev", f"net{net}")
                ip("link", "set", f"net{net}", "up")
            ip("rule", "add", "priority", "1000", "lookup", "local")
            ip("rule", "del", "priority", "0")
    yield a, b
    for side in (a, b):
        side.close()


def begin(a: Side, b: Side) -> None:
    infos = {side.name: side.listen() for side in (a, b)}
    for side in (a, b):
        side.begin(infos)


@pytest.mark.long
@pytest.mark.feature("N4")
def test_a_silent_node_with_two_interfaces_is_out_of_reach_after_twice_the_timeout(sides: tuple[Side, Side]) -> None:
    """It takes connections at both, as a frozen process does, and says nothing."""
    a, b = sides
    begin(a, b)
    wait(lambda: a.up and b.up, "they hear each other")
    b.freezes.set()
    began = monotonic_ms()
    wait(lambda: not a.up, "it is suspected")
    assert monotonic_ms() - began < TIMEOUT_MS + LATE_MS, "after the first timeout"
    wait(lambda: a.lost, "both have failed")
    assert 2 * TIMEOUT_MS - KEEP_ALIVE_MS <= a.lost[0] - began <= 2 * TIMEOUT_MS + LATE_MS


@pytest.mark.long
@pytest.mark.feature("N4")
def test_a_node_whose_connects_hang_at_two_interfaces_is_out_of_reach_after_four_timeouts(
    sides: tuple[Side, Side],
) -> None:
    a, b = sides
    b.drop(*a.addresses)
    began = monotonic_ms()
    begin(a, b)
    wait(lambda: a.lost, "each was tried twice")
    assert 4 * TIMEOUT_MS <= a.lost[0] - began <= 4 * TIMEOUT_MS + LATE_MS


@pytest.mark.feature("N2", "N4")
def test_nodes_go_on_over_the_second_network_when_the_first_one_is_cut(sides: tuple[Side, Side]) -> None:
    a, b = sides
    begin(a, b)
    wait(lambda: a.up and b.up, "they hear each other")
    before = len(a.ups)
    a.drop(b.addresses[0])
    b.drop(a.addresses[0])
    wait(lambda: False in a.ups[before:], "a cut network is silent")
    wait(lambda: a.up and b.up, "they hear each other over the other one")
    assert a.members.links["B"].via == f"{b.addresses[1]}:7400"
    time.sleep(2 * KEEP_ALIVE_MS / 1000)
    assert a.up
    assert (a.lost, b.lost) == ([], [])
