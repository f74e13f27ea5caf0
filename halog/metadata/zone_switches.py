"""This module switches a zone's quorum off, and on again, while the cluster runs (Q1): `zones/<name>`.

It is compare-and-set like everything in the coordinator; nobody need be up. The nodes of the zone hear of it by their
watch.
"""

from __future__ import annotations

import msgspec

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import RefusedError
from halog.metadata.cas import attempts
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, Versioned

ATTEMPTS = 20
"""Two operators at once are rare; twenty lost turns never happen."""


class ZoneSwitch(TolerantStruct, frozen=True):
    """Says how a zone's quorum stands. `since_ms` is since 1970, by the clock of who switched it; 0: it never was."""

    off: bool = False
    reason: str = ""
    since_ms: int = 0

    def to_bytes(self) -> bytes:
        """Return the znode's content."""
        return tolerant.encode(self)


_SWITCH = ZnodeFormat(TolerantDecoder(ZoneSwitch).decode, "holds no switch")


def path_of(zone: str) -> str:
    """Return the path of the zone's switch."""
    return f"zones/{zone}"


def switch_of(zone: str, found: Versioned | None) -> ZoneSwitch:
    """Return the switch that stands there. Raises CoordinatorError if that is none."""
    return ZoneSwitch() if found is None else _SWITCH.decode(path_of(zone), found.data)


def read_switch(coordinator: Coordinator, zone: str) -> ZoneSwitch:
    """Return the switch as it stands now."""
    return switch_of(zone, coordinator.get(path_of(zone)))


def set_switch(coordinator: Coordinator, zone: str, switch: ZoneSwitch) -> ZoneSwitch:
    """Set the switch, unless it stands that way already; return what stands. Raises RefusedError if others change it
    all the time."""
    for attempt in attempts(coordinator, path_of(zone), ATTEMPTS):
        known = switch_of(zone, attempt.found)
        if known.off == switch.off:
            return known
        now = msgspec.structs.replace(known, off=switch.off, reason=switch.reason, since_ms=switch.since_ms)
        if attempt.write(now.to_bytes()):  # if it landed without an answer, the next attempt finds it as it is to be
            return now
    raise RefusedError(f"the switch of zone {zone} changes too often to be changed; try again", zone=zone)
