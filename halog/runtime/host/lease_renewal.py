"""A host asks for the renewals of its copies' leases, and passes on what ends a lease or a wait for one.

This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.errors import HalogError, VersionError
from halog.ports import Coordinator, UnknownResult
from halog.runtime.replica.driver import Copy


class LeaseRenewal:
    """A host's `LeaseRenewal` renews the leases of its copies."""

    def __init__(
        self, coordinator: Coordinator, copies: Mapping[str, Copy], run: Callable[[Callable[[], None]], None]
    ) -> None:
        self._coordinator = coordinator
        self._copies = copies
        self._run = run

    def renew(self, copy: Copy, effect: fx.Renew) -> None:
        """Renew a lease; the core counted from before this call."""
        self._run(lambda: self._renew(copy, effect))

    def _renew(self, copy: Copy, effect: fx.Renew) -> None:
        try:
            self._coordinator.confirm(f"partitions/{copy.name}", effect.version)
        except VersionError:
            result = ev.Cas.CONFLICT
        except (UnknownResult, HalogError):
            result = ev.Cas.UNKNOWN
        else:
            result = ev.Cas.OK
        copy.post(ev.Renewed(effect.round, result))

    def session_lost(self) -> None:
        """The coordinator's session ended, or another began."""
        self._tell(ev.SessionLost())

    def died(self, member: Member) -> None:
        """Tell the copies that this run is no more: its host said so."""
        self._tell(ev.Died(member))

    def _tell(self, event: ev.SessionLost | ev.Died) -> None:
        for copy in list(self._copies.values()):
            copy.post(event)
