"""This module adds faults to the real channel, for tests: requests that are lost, late, or answered by the test."""

from __future__ import annotations

from halog.adapters.memory.faults import Faults
from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.framing import MAX_FRAME


class MemoryChannel(TcpChannel):
    """A `MemoryChannel` is the real channel, on loopback, whose requests may meet faults. What a request is about is
    its frame."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        super().__init__(max_frame)
        self.faults = Faults()

    def request(self, address: str, frame: bytes, timeout_s: float) -> bytes:
        ask = super().request
        return self.faults.perform("request", frame, lambda: ask(address, frame, timeout_s))
