"""A node becomes part of its cluster step by step, and says in which one it is (N6)."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryStore, MemoryTree
from halog.cli.shared.survey import LEAVING, STARTING, _node_view
from halog.config import Config
from halog.core.ids import Member
from halog.metadata.nodes import NodeInfo
from halog.runtime.node.open import open_node
from halog.runtime.node.paces import PACES
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import greeting, judge_answer
from halog.runtime.support.adapters import Adapters
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("N6")


def phase_at(cluster: str, address: str) -> str:
    """What the node at this address says of itself to a stranger."""
    channel = MemoryChannel()
    channel.introduce(frames.encode(greeting(cluster, Member("asks", 1), "tool")), judge_answer)
    try:
        reply: Any = frames.decode_reply(channel.request(address, frames.encode(frames.StatusRequest()), 5.0))
        return str(reply.status["phase"])
    finally:
        channel.close()


class Asking(MemoryCoordinator):
    """Asks the node for its phase whenever that has registered, made something or taken its registration back."""

    def __init__(self, tree: MemoryTree, cluster: str) -> None:
        super().__init__(tree)
        self._cluster = cluster
        self._address = ""
        self.phases: list[tuple[str, str]] = []
        self.first_looks: list[str] = []
        """What was listed before the node had an address."""

    def _ask(self, what: str) -> None:
        if self._address and threading.current_thread() is threading.main_thread():
            self.phases.append((what, phase_at(self._cluster, self._address)))

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        made = super().create(path, data, ephemeral=ephemeral)
        if path == "nodes/A":
            self._address = msgspec.json.decode(data, type=NodeInfo).address
        self._ask(path.partition("/")[0])
        return made

    def children(self, path: str) -> list[str]:
        if not self._address:
            self.first_looks.append(path)
        return super().children(path)

    def delete(self, path: str, version: int = -1) -> bool:
        if path == "nodes/A":
            self._ask("nodes")
        return super().delete(path, version)


def test_a_node_is_registered_once_it_can_answer_and_up_once_it_has_its_copies() -> None:
    tree, broker, made = MemoryTree(), MemoryBroker(), list[Asking]()
    config = Cluster(nodes=1, partitions=2, registry=Registry()).config

    def adapters(config: Config, name: str) -> Adapters:
        made.append(Asking(tree, config.cluster.name))
        return Adapters(MemoryLog(broker), made[0], MemoryChannel(), MemoryStore(), lambda site: None)  # type: ignore[arg-type,return-value]

    node = open_node(config, "A", PACES, registry=Registry(), adapters=adapters)
    (coordinator,) = made
    assert "nodes" in coordinator.first_looks, "it learns who else there is before anybody hears of it"
    assert coordinator.phases[0] == ("nodes", "keep-alive"), "it answers as soon as it can be found"
    assert ("partitions", "keep-alive") in coordinator.phases
    assert {phase for _, phase in coordinator.phases} == {"keep-alive"}
    assert phase_at(config.cluster.name, node.runtime.info.address) == "up"
    coordinator.phases.clear()
    node.close()
    assert ("nodes", "leaving") in coordinator.phases


@pytest.mark.parametrize(
    ("said", "state", "why"),
    [
        ({"phase": "keep-alive"}, STARTING, "phase keep-alive"),
        ({"phase": "leaving"}, LEAVING, None),
        ({"phase": "up"}, "up", None),
        ({}, "up", None),
        ({"phase": "keep-alive", "offline": "no quorum"}, "offline", "no quorum"),
    ],
)
def test_a_node_that_starts_is_shown_with_its_phase(said: dict[str, Any], state: str, why: str | None) -> None:
    """One of an older halog says none."""
    view = _node_view("A", NodeInfo("A", 1, "a:1", 1, True, 7, "0.3.0"), said)
    assert (view.state, view.why) == (state, why)
