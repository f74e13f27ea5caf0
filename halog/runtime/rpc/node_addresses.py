"""This module brings a request to a node that has several addresses: one after the other, and each at most once (N2).

The next address is only tried where the one before certainly took nothing of the request. What may have been acted on
is repeated by whoever asked, if by anybody.
"""

from __future__ import annotations

import time

from halog.errors import DeadlineError, UnreachableError
from halog.ports import Channel


class NodeAddresses:
    """A `NodeAddresses` holds the addresses of one node in order of preference, and which one is in use. All threads
    share it: one that failed is asked last by the next request, and the one that answered is asked first."""

    __slots__ = ("_first", "addresses")

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self._first = 0

    @property
    def address(self) -> str:
        """Return the address that is in use."""
        return self.addresses[self._first]

    def ask(self, channel: Channel, frame: bytes, timeout_s: float) -> bytes:
        """Send a frame and return its one reply, within `timeout_s` altogether. Raises what the last address that was
        tried gave, as `Channel.request` does: with `sent` False as evidence nobody can have acted on the frame."""
        if len(self.addresses) == 1:
            return channel.request(self.addresses[0], frame, timeout_s)
        until = time.monotonic() + timeout_s
        first, count = self._first, len(self.addresses)
        *before, last = [(first + i) % count for i in range(count)]
        for tried, at in enumerate(before):
            left_s = max(0.001, until - time.monotonic())
            try:
                return self._ask_at(at, channel, frame, left_s, left_s / (count - tried))
            except (UnreachableError, DeadlineError) as error:
                if error.evidence.get("sent", True):
                    raise
        return self._ask_at(last, channel, frame, max(0.001, until - time.monotonic()), None)

    def _ask_at(self, at: int, channel: Channel, frame: bytes, left_s: float, connect_s: float | None) -> bytes:
        """Ask at one address, and note which one is to be asked first from now on."""
        try:
            reply = channel.request(self.addresses[at], frame, left_s, connect_s=connect_s)
        except (UnreachableError, DeadlineError):
            self._first = (at + 1) % len(self.addresses)
            raise
        self._first = at
        return reply
