"""This module makes a process hear a signal at once, whichever thread the kernel gave it to. It is for halog's own
processes only.

Python runs a signal's handler in the main thread. A main thread that waits for a lock does not wake up when another
thread receives the signal, so the handler may never run. `relay` starts a thread that hears of every signal by the
wake-up descriptor and wakes the main thread until it has run its handlers. A process that is not halog's own (an
application that uses `halog.node()`, an embedded site or the test kit) keeps its signals to itself.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 128 + signal.SIGINT
"""A process that Ctrl-C ended has this exit code, as shells have it."""
WAKING = signal.SIGURG
"""This signal wakes the main thread. The system ignores it by default, so a late one does no harm. Its number is higher
than those of `STOPPING`, and Python runs handlers in the order of their numbers: when this one's has run, theirs
have."""

AGAIN_S = 0.02
WAKES = 2
"""The main thread is woken so often for each signal: at the first waking it may still have been in the handlers of an
earlier one."""
PATIENCE_S = 1.0
"""If a signal to stop was not heard for so long, the next one ends the process."""


def leave_when_interrupted() -> None:
    """Have Ctrl-C end the process at once and quietly, until `interrupt_the_work` and once that is over.

    Meanwhile there is nothing to close, and a KeyboardInterrupt within an import or at the interpreter's end would come
    out as another error, or as a traceback. O1.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody ignores it, as with nohup
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def interrupt_the_work() -> Iterator[list[int]]:
    """Have Ctrl-C raise KeyboardInterrupt in the main thread, where it else makes the process leave. Each one is noted
    in the list: out of an import it may come as another error."""
    heard: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not _leave:
        yield heard
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield heard
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def relay() -> None:
    """Start the relay in the main thread, and unblock every signal that the parent process has blocked.

    Call it once, before other threads start. O1.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _Relay().start()


class _Relay:
    """Wakes the main thread at each signal until it has run its handlers."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._heard = True
        self._out, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(WAKING, self._woken)
        signal.set_wakeup_fd(into, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # the pipe is the parent's

    def start(self) -> None:
        """Start the thread, which runs as long as the process."""
        threading.Thread(target=self._run, name="halog-signals", daemon=True).start()

    def _run(self) -> None:
        waiting_since: float | None = None
        left = 0
        while True:
            numbers = self._numbers(None if waiting_since is None else AGAIN_S)
            now = time.monotonic()
            if waiting_since is not None and self._heard:
                self._heard = False
                left = left - 1
                waiting_since = now if left else None
            if any(number != WAKING for number in numbers):
                if waiting_since is not None and now - waiting_since > PATIENCE_S:
                    _end_if_told(numbers)
                self._heard = False
                left = WAKES
                waiting_since = now if waiting_since is None else waiting_since
            if waiting_since is not None:
                signal.pthread_kill(self._main, WAKING)

    def _numbers(self, timeout_s: float | None) -> bytes:
        select.select([self._out], [], [], timeout_s)
        try:
            return os.read(self._out, 512)
        except BlockingIOError:
            return b""

    def _woken(self, *_: object) -> None:
        self._heard = True


def _end_if_told(numbers: bytes) -> None:
    """End the process at once on a signal to stop, since the main thread is stuck where no signal reaches it."""
    for number in numbers:
        if number in STOPPING:
            os._exit(128 + number)
