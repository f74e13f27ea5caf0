"""This module is the entry point of processes that end with their parent: `python -m halog.testing.child PARENT_PID
MODULE ARGS`.

It asks the kernel for SIGKILL at the parent's death, then becomes `python -m MODULE ARGS`; the request survives that.
It must be the first thing a child does, and needs no thread-unsafe hook between fork and exec in the parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """End, whatever state this process is in, as soon as `parent` ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(127)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
