"""The driver's clock."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """ms, counting through suspends of the process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
