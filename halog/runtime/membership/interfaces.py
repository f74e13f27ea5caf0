"""This module takes the addresses of another node in turn, and finds when all of them have failed (N4).

An address is tried twice if connections to it fail or break, and is given the non-response timeout if one stands and
nothing is heard. Then the next one has its turn. Once every address has failed so, without the node having been heard
in between, the node is out of reach. That is for the state that a node is shown in. Elections do not wait for it: who
is suspected is decided by `halog.runtime.membership.members`, from the first silence or refusal on.
"""

from __future__ import annotations

import threading
from typing import Final

TRIES: Final = 2
"""A connection that fails is tried once more before the next address: most such failures are gone by then."""


class InterfaceTurns:
    """The `InterfaceTurns` of one node say which of its addresses is in use. Any thread may tell them what happened."""

    def __init__(self, addresses: tuple[str, ...], patience_ms: int) -> None:
        self._addresses = addresses
        self._patience_ms = patience_ms
        self._lock = threading.Lock()
        self._at = 0
        self._left = len(addresses)
        """How many addresses have not failed yet since the node was heard last."""
        self._failures = 0
        """How many connections to the address in use have failed or broken since the node was heard over one."""
        self._stands = False
        """Does a connection to the address in use stand?"""
        self._quiet_ms: int | None = None
        """Since when such a connection stands, or stood, and nothing is heard; None: none has stood yet."""
        self._failed_ms = 0
        """When the last of all addresses had failed; 0: not all have."""
        self._told = False

    @property
    def address(self) -> str:
        """Return the address that is in use, or to be tried next."""
        return self._addresses[self._at]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return all addresses, the preferred one first."""
        return self._addresses

    @property
    def several(self) -> bool:
        """Say whether there is another address to go over to."""
        return len(self._addresses) > 1

    def heard(self, now_ms: int) -> None:
        """The node was heard, or was not to be: this process slept. It may be heard although no connection to it can be
        made: that says nothing of the address in use."""
        with self._lock:
            self._left = len(self._addresses)
            self._failed_ms, self._told = 0, False
            if self._stands:
                self._failures = 0
            if self._quiet_ms is not None:
                self._quiet_ms = now_ms

    def connected(self, now_ms: int) -> None:
        """A connection to the address in use stands. One that was made again after less than the timeout wins no
        time."""
        with self._lock:
            self._stands = True
            if self._quiet_ms is None:
                self._quiet_ms = now_ms

    def failed(self, now_ms: int) -> bool:
        """A connection to the address in use could not be made, or broke. Returns whether another address has its turn
        for the first time, which is to be tried at once; else there is a pause."""
        with self._lock:
            self._stands = False
            self._failures += 1
            if self._failures < TRIES:
                return False
            self._go_over(now_ms)
            return not self._failed_ms

    def silent(self, now_ms: int) -> None:
        """Go over to the next address if a connection has been silent for the timeout."""
        with self._lock:
            if self._quiet_ms is not None and now_ms - self._quiet_ms >= self._patience_ms:
                self._go_over(now_ms)

    def unheard(self) -> None:
        """Go over to the next address, since the other node does not hear this one. It is heard itself, so nothing has
        failed."""
        with self._lock:
            self._begin_next()

    def _begin_next(self) -> None:
        self._at = (self._at + 1) % len(self._addresses)
        self._failures, self._stands, self._quiet_ms = 0, False, None

    def _go_over(self, now_ms: int) -> None:
        self._begin_next()
        self._left -= 1
        if self._left <= 0:
            self._left = len(self._addresses)
            self._failed_ms = self._failed_ms or now_ms

    @property
    def all_failed_ms(self) -> int:
        """Return when all addresses had failed; 0: not all have since the node was heard last."""
        return self._failed_ms

    def newly_failed(self) -> bool:
        """Say, once, that all addresses have failed."""
        with self._lock:
            newly, self._told = bool(self._failed_ms) and not self._told, bool(self._failed_ms)
            return newly
