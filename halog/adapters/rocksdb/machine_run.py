"""This module names this run of the machine: what was handed to the operating system is there as long as it lasts."""

from __future__ import annotations

from pathlib import Path

_RUN = Path("/proc/sys/kernel/random/boot_id")


def machine_run() -> str:
    """Return the name of this run; "" where it cannot be read: then no two runs are known to be the same."""
    try:
        return _RUN.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
