"""A process of halog's own hears a signal whichever thread the kernel gave it to."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STEPS_S = 20.0
LISTENING = """
    import os, signal, sys, threading, time
    from halog.signals import STOPPING, relay

    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()  # the only one that takes the signal
    stuck, told = threading.Lock(), []
    stuck.acquire()

    def hear(number, frame):
        told.append(number)
        if len(told) == int(sys.argv[1]):
            os._exit(7)

    for each in STOPPING:
        signal.signal(each, hear)
    if sys.argv[2] == "relayed":
        relay()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    print("ready", flush=True)
"""
WAITS = LISTENING + "    stuck.acquire()\n"
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a Python program and waits until it says that it is ready."""
    begun: list[subprocess.Popen[str]] = []

    def start(program: str, *args: str, **kwargs: object) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program))
        child = subprocess.Popen([sys.executable, str(path), *args], stdout=subprocess.PIPE, text=True, **kwargs)  # type: ignore[call-overload]
        begun.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child  # type: ignore[no-any-return]

    yield start
    for child in begun:
        child.kill()
        child.communicate()


def _waits(pid: int) -> None:
    """Returns once the main thread waits for its lock: one that runs hears by itself."""
    quiet = 0
    while quiet < 5:
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        quiet = quiet + 1 if state == "S" else 0
        time.sleep(0.05)


def _ticks(pid: int) -> int:
    """User time of the process, in clock ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.feature("O1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_main_thread_that_waits_for_a_lock_hears_what_another_thread_received(
    begin: Begin, number: signal.Signals
) -> None:
    child = begin(WAITS, "1", "relayed")
    _waits(child.pid)
    child.send_signal(number)
    assert child.wait(STEPS_S) == 7


@pytest.mark.feature("O1")
def test_without_the_relay_that_signal_is_lost(begin: Begin) -> None:
    """The control: the fault that the relay mends can be made at will."""
    child = begin(WAITS, "1", "alone")
    _waits(child.pid)
    child.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(1)


@pytest.mark.feature("O1")
def test_each_signal_is_heard_once(begin: Begin) -> None:
    child = begin(WAITS, "3", "relayed")
    for _ in range(3):
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert child.wait(STEPS_S) == 7


@pytest.mark.feature("O1")
def test_a_second_one_ends_a_process_whose_main_thread_no_signal_reaches(begin: Begin) -> None:
    """It is in a library that computes: there is no orderly end to wait for."""
    child = begin(
        """
        import hashlib, os, signal
        from halog.signals import relay

        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        relay()
        print("ready", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
        """
    )
    before = _ticks(child.pid)
    while _ticks(child.pid) < before + 30:  # 0.3 s: it computes
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(1.5)
    child.send_signal(signal.SIGTERM)
    assert child.wait(STEPS_S) == 128 + signal.SIGTERM


@pytest.mark.feature("O1")
def test_what_the_starter_blocked_is_let_through(begin: Begin) -> None:
    """A shell or a supervisor that blocks signals while it starts children does not make halog deaf."""
    program = LISTENING.replace("signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)", "") + "    stuck.acquire()\n"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = begin(program, "1", "relayed")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    child.send_signal(signal.SIGTERM)
    assert child.wait(STEPS_S) == 7


@pytest.mark.feature("O1")
def test_a_forked_child_has_signals_of_its_own(begin: Begin) -> None:
    """What it receives does not wake its parent, and it still hears."""
    child = begin(
        """
        import os, signal, sys, time
        from halog.signals import relay

        relay()
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0 if signal.set_wakeup_fd(-1) == -1 else 9))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print("ready", flush=True)
        os._exit(code)
        """
    )
    assert child.wait(STEPS_S) == 0


@pytest.mark.feature("O1")
def test_an_application_keeps_its_signals() -> None:
    """Importing halog, and what an application starts of it, leaves handlers and the wake-up descriptor alone."""
    program = """
        import signal, threading
        before = [signal.getsignal(n) for n in signal.valid_signals()]
        import halog
        from halog.schema import DEFAULT
        from halog.testing.memory import MemoryCluster
        from halog.testing.nodes import MemoryNode

        with MemoryNode(MemoryCluster(2), DEFAULT):
            assert [signal.getsignal(n) for n in signal.valid_signals()] == before
            assert signal.set_wakeup_fd(-1) == -1
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
