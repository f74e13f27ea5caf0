"""This module removes what a killed supervisor left in the data directory. Use it with the directory locked, before
anything starts."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from halog.embedded import datadir

WAIT_S = 3.0  # the kernel is ending the old servers, which still hold their ports
POLL_S = 0.01


def clear(root: Path, cluster_id: str) -> None:
    """End all servers of this site, and remove the file that says one runs."""
    with suppress(OSError):
        (root / datadir.STATE).unlink()
    deadline = time.monotonic() + WAIT_S
    while (left := servers_of(cluster_id)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for path in (root / "tmp").iterdir():  # native libraries the JVM unpacked and could not delete
        with suppress(OSError):
            path.unlink()


def servers_of(cluster_id: str) -> list[int]:
    """Return the processes that were started for this site (settings.command marks them)."""
    mark = f"-Dhalog.site={cluster_id}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in Path(entry.path, "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
