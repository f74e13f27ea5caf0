"""States of remote nodes and their notifiers, one part alone (N3): sights go in, calls come out."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from halog.core.membership.node_states import NodeSight, NodeState
from halog.errors import ClosedError
from halog.events import NODE_REFUSED, NOTIFIER_FAILED, Kind
from halog.runtime.events import node_notifiers
from halog.runtime.events.node_notifiers import NodeChange
from halog.runtime.events.node_states import NodeStates
from halog.testing.cluster import wait_until

pytestmark = [pytest.mark.feature("N3"), pytest.mark.timeout(60)]

KNOWN = NodeSight(1, registered=True)
UP = NodeSight(1, registered=True, up=True, why="it is heard")
LOST = NodeSight(1, registered=True, why="silent for 1000 ms")
REFUSED = NodeSight(1, registered=True, refused=NodeState.UNSUPPORTED_PROTOCOL, why="it speaks 9")
AGAIN = NodeSight(2, registered=True, up=True, why="it is heard")


class Telling:
    """A history that keeps what it is told: code, node, cause, and whether others tell it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, bool]] = []

    def tell(self, kind: Kind, cause: str, *, node: str, more: dict[str, Any], logged: bool = False) -> None:
        kind.text.format(**more, node=node, cause=cause)
        self.told.append((kind.code, node, cause, logged))


class Heard:
    """Two notifiers that write down their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.last: NodeChange | None = None

    def available(self, change: NodeChange) -> None:
        self._note("available", change)

    def unavailable(self, change: NodeChange) -> None:
        self._note("unavailable", change)

    def _note(self, which: str, change: NodeChange) -> None:
        self.calls.append((which, change.node, change.state))
        self.last = change

    def come_to(self, count: int) -> None:
        wait_until(lambda: len(self.calls) >= count, f"{count} calls come")


class Gate:
    """A notifier that hangs until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self, change: NodeChange) -> None:
        self.entered.set()
        assert self.go.wait(30)


@pytest.fixture
def telling() -> Telling:
    return Telling()


@pytest.fixture
def states(telling: Telling) -> NodeStates:
    history: Any = telling
    return NodeStates("M", history, lambda: ["A", "B", "M"], close_s=0.1)


def state(states: NodeStates, node: str = "B") -> str:
    return states.now()[node].state


def test_a_configured_node_is_undiscovered_until_its_address_is_known(states: NodeStates) -> None:
    assert {name: change.state for name, change in states.now().items()} == {"A": "Undiscovered", "B": "Undiscovered"}
    states.seen({"B": KNOWN, "X": KNOWN})
    assert list(states.now()) == ["A", "B", "X"]
    assert (state(states), state(states, "X")) == ("Discovered", "Discovered")


def test_without_notifiers_a_node_is_up_and_down_at_once(states: NodeStates) -> None:
    states.seen({"B": UP})
    was = states.now()["B"]
    assert (was.state, was.why) == ("Up", "it is heard")
    states.seen({"B": LOST})
    now = states.now()["B"]
    assert (now.state, now.why) == ("Down", "silent for 1000 ms")
    assert now.time_ms >= was.time_ms


def test_notifiers_are_called_in_turn_and_say_why(states: NodeStates) -> None:
    heard = Heard()
    states.notify(heard.available, heard.unavailable)
    states.seen({"B": UP})
    heard.come_to(1)
    states.seen({"B": LOST})
    heard.come_to(2)
    assert heard.calls == [("available", "B", "Up"), ("unavailable", "B", "Down")]
    assert heard.last is not None
    assert heard.last.why == "silent for 1000 ms"
    wait_until(lambda: state(states) == "Down", "they have returned")
    states.close()


def test_a_node_that_nobody_may_talk_to_is_unavailable_by_that_name(states: NodeStates) -> None:
    heard = Heard()
    states.notify(heard.available, heard.unavailable)
    states.seen({"B": UP})
    heard.come_to(1)
    states.seen({"B": REFUSED})
    heard.come_to(2)
    assert heard.calls[1] == ("unavailable", "B", "UnsupportedProtocol")
    wait_until(lambda: state(states) == "UnsupportedProtocol", "they have returned")
    states.close()


def test_a_new_notifier_is_called_for_all_nodes_that_are_up(states: NodeStates) -> None:
    states.seen({"A": UP, "B": KNOWN, "C": UP})
    first, second = Heard(), Heard()
    states.notify(first.available, None)
    first.come_to(2)
    since = states.now()["A"].time_ms
    states.notify(second.available, second.unavailable)
    second.come_to(2)
    assert sorted(second.calls) == [("available", "A", "Up"), ("available", "C", "Up")]
    wait_until(lambda: state(states, "A") == "Up", "they have returned")
    assert states.now()["A"].time_ms == since, "it is up since it came"
    assert len(first.calls) == 2
    states.close()


def test_while_notifiers_run_the_state_says_so(states: NodeStates) -> None:
    up, down = Gate(), Gate()
    states.notify(up, down)
    states.seen({"B": UP})
    assert up.entered.wait(60)
    assert state(states) == "InUpNotifier"
    up.go.set()
    wait_until(lambda: state(states) == "Up", "it has returned")
    states.seen({"B": LOST})
    assert down.entered.wait(60)
    assert state(states) == "InDownNotifier"
    down.go.set()
    wait_until(lambda: state(states) == "Down", "it has returned")
    states.close()


def test_an_unavailable_notifier_waits_until_the_available_one_has_returned(states: NodeStates) -> None:
    gate, heard = Gate(), Heard()
    states.notify(gate, heard.unavailable)
    states.seen({"B": UP})
    assert gate.entered.wait(60)
    states.seen({"B": LOST})
    now = states.now()["B"]
    assert (now.state, heard.calls) == ("InUpNotifier", [])
    assert now.why == "it is heard; notifiers have not returned, and meanwhile: silent for 1000 ms"
    gate.go.set()
    heard.come_to(1)
    assert heard.calls == [("unavailable", "B", "Down")]
    states.close()


def test_a_notifier_that_hangs_for_one_node_holds_up_no_other(states: NodeStates) -> None:
    gate, heard = Gate(), Heard()

    def hangs_for_b(change: NodeChange) -> None:
        if change.node == "B":
            gate(change)
        heard.available(change)

    states.notify(hangs_for_b, heard.unavailable)
    states.seen({"B": UP})
    assert gate.entered.wait(60)
    states.seen({"B": UP, "C": UP})
    heard.come_to(1)
    states.seen({"B": UP, "C": LOST})
    heard.come_to(2)
    assert heard.calls == [("available", "C", "Up"), ("unavailable", "C", "Down")]
    assert state(states) == "InUpNotifier"
    gate.go.set()
    states.close()


def test_what_happened_a_hundred_times_meanwhile_is_told_once(states: NodeStates) -> None:
    gate, heard = Gate(), Heard()

    def first_hangs(change: NodeChange) -> None:
        heard.available(change)
        if len(heard.calls) == 1:
            gate(change)

    states.notify(first_hangs, heard.unavailable)
    states.seen({"B": UP})
    assert gate.entered.wait(60)
    for _ in range(100):
        states.seen({"B": LOST})
        states.seen({"B": UP})
    gate.go.set()
    heard.come_to(3)
    assert [which for which, _, _ in heard.calls] == ["available", "unavailable", "available"]
    wait_until(lambda: state(states) == "Up", "they have returned")
    assert len(heard.calls) == 3
    states.close()


@pytest.mark.parametrize("first", [AGAIN, NodeSight(2, registered=True, why="it was not heard yet")])
def test_another_run_of_a_node_is_told_as_a_break(states: NodeStates, first: NodeSight) -> None:
    heard, whys = Heard(), list[str]()
    states.notify(heard.available, lambda change: whys.append(change.why))
    states.seen({"B": UP})
    heard.come_to(1)
    states.seen({"B": first})
    states.seen({"B": AGAIN})
    heard.come_to(2)
    assert whys == ["it started again"]
    states.close()


def test_a_notifier_that_fails_is_told_and_the_others_are_called(states: NodeStates, telling: Telling) -> None:
    heard = Heard()

    def broken(change: NodeChange) -> None:
        raise SystemExit("no")

    states.notify(broken, broken)
    states.notify(heard.available, heard.unavailable)
    states.seen({"B": UP})
    heard.come_to(1)
    states.seen({"B": LOST})
    heard.come_to(2)
    assert telling.told == [(NOTIFIER_FAILED.code, "B", "SystemExit: no", False)] * 2
    states.close()


def test_a_notifier_that_is_taken_away_is_called_no_more(states: NodeStates) -> None:
    gate, heard = Gate(), Heard()
    remove = states.notify(None, heard.unavailable)
    states.notify(gate, None)
    states.seen({"B": UP})
    assert gate.entered.wait(60)
    states.seen({"B": LOST})
    remove()
    remove()
    gate.go.set()
    wait_until(lambda: state(states) == "Down", "they have returned")
    assert heard.calls == []
    states.close()


def test_unavailable_is_called_for_nodes_that_were_up_only(states: NodeStates) -> None:
    states.seen({"B": UP, "C": UP})
    states.seen({"B": LOST, "C": UP})
    heard = Heard()
    states.notify(None, heard.unavailable)
    states.seen({"B": REFUSED, "C": LOST})
    heard.come_to(1)
    assert heard.calls == [("unavailable", "C", "Down")]
    states.close()


def test_a_closed_node_calls_nobody_and_waits_for_a_while_only(states: NodeStates) -> None:
    gate, heard = Gate(), Heard()
    states.notify(gate, heard.unavailable)
    states.seen({"B": UP})
    assert gate.entered.wait(60)
    states.seen({"B": LOST})
    states.close()  # the notifier hangs
    gate.go.set()
    wait_until(lambda: state(states) == "Down", "it has returned")
    states.seen({"B": UP})
    assert (state(states), heard.calls) == ("Up", [])
    with pytest.raises(ClosedError, match="node M is closed: it calls no notifier any more"):
        states.notify(heard.available, None)


def test_a_notifier_may_close_its_node(states: NodeStates) -> None:
    done = threading.Event()

    def close(change: NodeChange) -> None:
        states.close()
        done.set()

    states.notify(close, None)
    states.seen({"B": UP})
    assert done.wait(60)


def test_a_transaction_of_a_closed_node_is_no_fault_of_the_notifier(states: NodeStates, telling: Telling) -> None:
    called = threading.Event()

    def closed(change: NodeChange) -> None:
        called.set()
        raise ClosedError("the node is closed")

    states.notify(closed, None)
    states.seen({"B": UP})
    assert called.wait(60)
    wait_until(lambda: state(states) == "Up", "it has returned")
    assert telling.told == []
    states.close()


def test_whoever_tells_of_a_node_waits_for_no_thread(
    states: NodeStates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operating system may give no thread for a while."""
    monkeypatch.setattr(node_notifiers, "AGAIN_S", 0.01)
    heard, start, failed = Heard(), threading.Thread.start, list[str]()

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "halog-notify-B" and len(failed) < 2:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    states.notify(heard.available, None)
    states.seen({"B": UP})
    heard.come_to(1)
    assert "notifiers for node B wait for a thread: can't start new thread" in caplog.text
    states.close()


@pytest.mark.parametrize(("others", "by_another"), [({}, False), ({"X": UP}, False), ({"A": UP}, True)])
def test_a_node_of_another_protocol_is_told_by_the_first_that_is_up(
    states: NodeStates, telling: Telling, others: dict[str, NodeSight], by_another: bool
) -> None:
    for _ in range(2):
        states.seen({"B": REFUSED, **others})
    assert telling.told == [(NODE_REFUSED.code, "B", "it speaks 9", by_another)]


def test_both_nodes_with_one_identity_tell_it(states: NodeStates, telling: Telling) -> None:
    twin = NodeSight(1, registered=True, refused=NodeState.DUPLICATE_TIMESTAMP, why="a copy")
    states.seen({"A": UP, "B": twin})
    assert telling.told == [(NODE_REFUSED.code, "B", "a copy", False)]
