"""This module switches a zone's quorum off, and on again, while the cluster runs (Q1): `zones/<name>`.

It is compare-and-set like everything in the coordinator; nobody need be up. The nodes of the zone hear of it by their
watch.
"""

from __future__ import annotations

import msgspec

from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import CoordinatorError, RefusedError, VersionError
from halog.ports import Coordinator, UnknownResult

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

    @staticmethod
    def from_bytes(zone: str, data: bytes) -> ZoneSwitch:
        """Decode what stands for `zone`; fields of newer versions are kept. Raises CoordinatorError for anything
        else."""
        try:
            return _DECODER.decode(data)
        except msgspec.MsgspecError as e:
            raise CoordinatorError(f"znode {path_of(zone)} holds no switch: {e}") from e


_DECODER = TolerantDecoder(ZoneSwitch)


def path_of(zone: str) -> str:
    """Return the path of the zone's switch."""
    return f"zones/{zone}"


def read_switch(coordinator: Coordinator, zone: str) -> ZoneSwitch:
    """Return the switch as it stands now."""
    found = coordinator.get(path_of(zone))
    return ZoneSwitch() if found is None else ZoneSwitch.from_bytes(zone, found.data)


def set_switch(coordinator: Coordinator, zone: str, switch: ZoneSwitch) -> ZoneSwitch:
    """Set the switch, unless it stands that way already; return what stands. Raises RefusedError if others change it
    all the time."""
    path = path_of(zone)
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        known = ZoneSwitch() if found is None else ZoneSwitch.from_bytes(zone, found.data)
        if known.off == switch.off:
            return known
        now = msgspec.structs.replace(known, off=switch.off, reason=switch.reason, since_ms=switch.since_ms)
        try:
            if found is not None:
                coordinator.set(path, now.to_bytes(), found.version)
                return now
            if coordinator.create(path, now.to_bytes()):
                return now
        except (VersionError, UnknownResult):
            coordinator.sync(path)  # if it landed, the next turn finds it as it is to be
    raise RefusedError(f"the switch of zone {zone} changes too often to be changed; try again", zone=zone)
