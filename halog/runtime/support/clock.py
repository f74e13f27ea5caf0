"""The driver's clock, and the one on the wall."""

from __future__ import annotations

import time

from halog.adapters.rocksdb.machine_run import machine_run as machine_run


def monotonic_ms() -> int:
    """ms, counting through suspends of the process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """ms since 1970, as this machine has it: what an operator's `--for` is told in."""
    return time.time_ns() // 1_000_000


def wall_ahead_ms() -> int:
    """How far that one is ahead of the driver's, which is read first: a process that is stopped between the two takes
    what ends for over too early, never too late."""
    driver_ms = monotonic_ms()
    return wall_ms() - driver_ms
