"""This module reads the driver's clock and the clock on the wall."""

from __future__ import annotations

import time

from halog.adapters.rocksdb.machine_run import machine_run as machine_run


def monotonic_ms() -> int:
    """Return the driver's time in ms; it counts on while the process is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """Return ms since 1970, as this machine has it; an operator's `--for` is counted in it."""
    return time.time_ns() // 1_000_000


def wall_ahead_ms() -> int:
    """Return how far the wall clock is ahead of the driver's, in ms. The driver's is read first: a process that is
    stopped between the two takes a period for over too early, never too late."""
    driver_ms = monotonic_ms()
    return wall_ms() - driver_ms
