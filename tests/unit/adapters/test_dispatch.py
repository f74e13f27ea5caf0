"""The thread that runs callbacks: in order, urgent ones first, alive after a bad one."""

from __future__ import annotations

import threading

from halog.adapters.zookeeper.callback_thread import Dispatcher


def test_urgent_jobs_overtake_and_keep_their_order() -> None:
    """While one job runs, urgent ones queue in front of the others, each kind in its own order."""
    dispatch, order, gate, done = Dispatcher("test"), list[str](), threading.Event(), threading.Event()
    dispatch.put(lambda: (gate.wait(5), None)[1])
    for n in range(3):
        dispatch.put(lambda n=n: order.append(f"n{n}"))  # type: ignore[misc]
        dispatch.put(lambda n=n: order.append(f"u{n}"), urgent=True)  # type: ignore[misc]
    dispatch.put(done.set)
    gate.set()
    assert done.wait(5)
    assert order[-3:] == ["n0", "n1", "n2"]
    assert [x for x in order if x[0] == "u"] == ["u0", "u1", "u2"]
    assert order.index("u2") < order.index("n1")
    dispatch.close()


def test_a_job_that_raises_is_logged_and_the_next_runs() -> None:
    """One bad callback does not silence the others."""
    dispatch, done = Dispatcher("test"), threading.Event()

    def bad() -> None:
        raise ValueError("a bug of the caller")

    dispatch.put(bad)
    dispatch.put(done.set)
    assert done.wait(5)
    dispatch.close()


def test_close_drops_what_waits_and_may_come_from_a_job() -> None:
    """After close nothing runs any more; a job may close its own dispatcher."""
    dispatch, ran, closed = Dispatcher("test"), list[int](), threading.Event()

    def end() -> None:
        dispatch.close()
        closed.set()

    dispatch.put(end)
    assert closed.wait(5)
    dispatch.put(lambda: ran.append(1))
    assert ran == []
