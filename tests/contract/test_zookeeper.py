"""What only a real ZooKeeper can show: restarts, pauses longer than the session, an address where nobody is."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.errors import CoordinatorError, UnreachableError
from halog.ports import SessionState, UnknownResult, Versioned
from tests.contract.rigs_coordinator import ANSWER_S, SESSION_MS, States, ZkRig, wait_for

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST
LONG_S = 60.0


@pytest.mark.feature("N4")
def test_a_restart_keeps_the_session(zookeeper: ZkRig) -> None:
    """A server that is back in time finds the same session: SUSPENDED, CONNECTED, ephemeral node there."""
    states, told = States(), []
    c = ZkCoordinator(
        zookeeper.site.info.zookeeper, zookeeper.cluster, session_timeout_ms=SESSION_MS, answer_s=ANSWER_S
    )
    c.connect(states)
    c.create("/live/c", b"", ephemeral=True)
    c.watch("/n", lambda path, value: told.append(value))
    wait_for(lambda: told == [None])  # else it might be told first after the restart
    before = c.session_id
    zookeeper.site.restart("zookeeper")
    wait_for(lambda: states[-1] is CONNECTED and len(states) > 1)
    assert c.session_id == before
    assert c.get("/live/c") == Versioned(b"", 0)
    c.create("/n", b"1")
    wait_for(lambda: told[-1] == Versioned(b"1", 0))
    c.close()


@pytest.mark.feature("N4")
def test_lost_is_told_by_our_own_clock(zookeeper: ZkRig) -> None:
    """LOST comes while ZooKeeper is stopped, not only after it is back."""
    states = States()
    c = ZkCoordinator(zookeeper.site.info.zookeeper, zookeeper.cluster)
    c.connect(states)
    zookeeper.site.pause("zookeeper")
    try:
        wait_for(lambda: states[-1] is LOST)
        assert states[0] is CONNECTED
        assert states[-2:] == [SUSPENDED, LOST]
    finally:
        zookeeper.site.resume("zookeeper")
    wait_for(lambda: states[-1] is CONNECTED)

    def made() -> bool:
        with suppress(UnreachableError, UnknownResult):  # a session of a second breaks where a machine stands still
            return c.create("/live/c", b"", ephemeral=True)
        return False

    wait_for(made)
    c.close()


@pytest.mark.feature("N4")
@pytest.mark.parametrize("what", ["get", *(pytest.param(one, marks=pytest.mark.long) for one in ("children", "sync"))])
def test_a_read_whose_connection_breaks_is_asked_again(zookeeper: ZkRig, what: str) -> None:
    """It changes nothing, and kazoo is back within moments: a node that starts must not end for that."""
    c = zookeeper.open()
    c.create("/n/x", b"1")
    proxy = zookeeper.proxy(c)
    proxy.hold_replies()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(getattr(c, what), "/n")
        assert proxy.lost.wait(LONG_S)
        assert not asked.done()
        proxy.pass_replies()
        proxy.cut()
        assert asked.result(LONG_S) in (Versioned(b"", 0), ["x"], None)
    c = zookeeper.open(answer_s=2.0)
    proxy = zookeeper.proxy(c)
    proxy.hold_replies()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(getattr(c, what), "/n")
        assert proxy.lost.wait(LONG_S)
        proxy.cut(reopen=False)
        with pytest.raises(UnreachableError):
            asked.result(LONG_S)
    proxy.pass_replies()
    proxy.open()


@pytest.mark.feature("N4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_answer_out_of_order_costs_the_session_and_no_more(zookeeper: ZkRig) -> None:
    """kazoo's connection thread ends for good at one (seen with three servers): LOST is told, another session begins,
    and watches hold on it."""
    states, told = States(), []
    c = zookeeper.open(states)
    c.watch("/n", lambda path, value: told.append(value))
    before = c.session_id
    c._client._pending.append((None, None, 4_711))  # as if it had asked something else first
    with suppress(UnreachableError, CoordinatorError):  # it may also be asked again, and answered
        c.get("/n")
    wait_for(lambda: states[-1] is CONNECTED and len(states) > 1)
    assert LOST in states
    assert c.session_id != before
    assert c.create("/n", b"1")
    wait_for(lambda: bool(told) and told[-1] == Versioned(b"1", 0))
    c.close()


def test_nobody_there_is_unreachable() -> None:
    """Connecting to a closed port ends in time with the address, and leaves no thread behind."""
    threads = set(threading.enumerate())
    c = ZkCoordinator("127.0.0.1:1", "x", answer_s=1.0)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        c.connect(States())
    wait_for(lambda: not set(threading.enumerate()) - threads)


def test_clusters_do_not_see_each_other(zookeeper: ZkRig) -> None:
    """Two clusters on one ZooKeeper have trees of their own."""
    a = zookeeper.open()
    b = ZkCoordinator(zookeeper.site.info.zookeeper, zookeeper.cluster + "-other", session_timeout_ms=SESSION_MS)
    b.connect(States())
    a.create("/n", b"a")
    assert b.get("/n") is None
    b.close()


def test_kazoo_warns_nobody(zookeeper: ZkRig, caplog: pytest.LogCaptureFixture) -> None:
    """Reconnecting is business as usual: nothing above DEBUG in any log, root untouched."""
    handlers = list(logging.getLogger().handlers)
    with caplog.at_level(logging.INFO):
        c = zookeeper.open()
        zookeeper.disconnect(c)
        zookeeper.reconnect(c)
        wait_for(lambda: c._client.connected)
        c.close()
    assert [r.getMessage() for r in caplog.records] == []
    assert logging.getLogger().handlers == handlers
