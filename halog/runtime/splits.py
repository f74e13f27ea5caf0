"""Do two sites serve the same partition? Looked at by whoever is active here, told, and left as it is (M1).

parted/<partition>   JSON: `Parted`, in the coordinator of each of the sites that see it, as long as it is so
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.errors import HalogError
from halog.events import PARTED
from halog.ports import Coordinator, UnknownResult
from halog.runtime.outside import Remote
from halog.runtime.sites import serves

if TYPE_CHECKING:
    from halog.runtime.copy import Copy
    from halog.runtime.host import Host

logger = logging.getLogger("halog.mirror")

WATCH_S = 5.0
"""How often the other site's tables are read: a split lasts until somebody decides, so seconds do not matter."""


class Parted(msgspec.Struct, frozen=True):
    """What is told of a partition that another site serves, too."""

    site: str
    by: str
    since_ms: int


def parted(coordinator: Coordinator) -> dict[str, Parted]:
    """All that is told of, by partition."""
    found = {}
    for name in coordinator.children("parted"):
        value = coordinator.get(f"parted/{name}")
        if value is not None:
            found[name] = _DECODER.decode(value.data)
    return found


_DECODER = msgspec.json.Decoder(Parted)


class Watching:
    """Of one host. One thread."""

    def __init__(
        self, host: Host, reach: Callable[[str], Remote], sites: Collection[str], homes: Collection[str]
    ) -> None:
        """`homes`: the policies that have one."""
        self._host, self._reach, self._sites, self._homes = host, reach, sites, homes
        self._told: dict[str, str] = {}
        """Partition → the site that serves it, too."""

    def turn(self) -> None:
        """One look at the other sites."""
        mine = [c for c in self._host.copies.values() if c.serving and c.core.table.policy in self._homes]
        for name in self._told.keys() - {c.name for c in mine}:
            del self._told[name]  # whoever serves it now tells it
        for site in self._sites if mine else ():
            try:
                self._look(site, mine)
            except (HalogError, UnknownResult) as e:
                logger.debug("what site %s serves is not known: %s", site, e)
        self._host.pause(WATCH_S)

    def _look(self, site: str, mine: list[Copy]) -> None:
        remote = self._reach(site)
        try:
            both = {c.name for c in mine if serves(remote, c.core.table)}
        finally:
            remote.close()
        for copy in mine:
            if copy.name in both and self._told.get(copy.name) != site:
                self._told[copy.name] = site
                self._tell(copy, site)
            elif copy.name not in both:
                self._end(copy, site)

    def _tell(self, copy: Copy, site: str) -> None:
        path, now = f"parted/{copy.name}", Parted(site, self._host.me.node, time.time_ns() // 1_000_000)
        if self._host.coordinator.create(path, msgspec.json.encode(now)):
            more = {"site": site, "at": copy.core.chain.state.lsn}
            self._host.telling.told(copy, ev.Tell(PARTED, "", "both sites serve it", more))

    def _end(self, copy: Copy, site: str) -> None:
        self._told.pop(copy.name, None)
        found = self._host.coordinator.get(f"parted/{copy.name}")
        if found is not None and _DECODER.decode(found.data).site == site:
            self._host.coordinator.delete(f"parted/{copy.name}", found.version)
