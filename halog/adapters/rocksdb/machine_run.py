"""This run of the machine: what was handed to the operating system is there as long as it lasts."""

from __future__ import annotations

from pathlib import Path

_RUN = Path("/proc/sys/kernel/random/boot_id")


def machine_run() -> str:
    """Names it. "": where that is not to be had, no two are known to be the same."""
    try:
        return _RUN.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
