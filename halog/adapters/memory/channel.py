"""This module adds faults to the real channel, for tests: requests that are lost, late, or answered by the test."""

from __future__ import annotations

from typing import NamedTuple

from halog.adapters.memory.faults import Faults
from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.framing import MAX_FRAME


class SentFrame(NamedTuple):
    """Holds what a request sends, and where."""

    address: str
    frame: bytes


class MemoryChannel(TcpChannel):
    """A `MemoryChannel` is the real channel, on loopback, whose requests may meet faults. A request is about a
    `SentFrame`. `faults`: those that several channels share."""

    def __init__(self, max_frame: int = MAX_FRAME, faults: Faults | None = None) -> None:
        super().__init__(max_frame)
        self.faults = Faults() if faults is None else faults

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        sent = SentFrame(address, frame)
        return self.faults.perform("request", sent, lambda: self.deliver(sent, timeout_s, connect_s))

    def deliver(self, sent: SentFrame, timeout_s: float, connect_s: float | None = None) -> bytes:
        """Have a request arrive that met a fault, past all faults; return its answer."""
        return super().request(sent.address, sent.frame, timeout_s, connect_s=connect_s)
