"""This module holds the adapters of one node: its ways to the outside world."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halog.errors import ConfigError
from halog.ports import Channel, Coordinator, Log, Store


def known() -> None:
    """Do nothing: the level of a site is known for as long as the way to it is open."""


class SiteAccess(msgspec.Struct):
    """A `SiteAccess` is the way to another site: its log and its coordinator."""

    name: str
    log: Log
    coordinator: Coordinator
    check_level: Callable[[], None] = known
    """Raises VersionMismatchError once the site is at a level that this halog does not know."""

    def close(self) -> None:
        """Close the coordinator and the log of that site."""
        self.coordinator.close()
        self.log.close()


def nowhere(site: str) -> SiteAccess:
    """Refuse every site with a ConfigError: this is the `reach` of a node that was given no way to other sites."""
    raise ConfigError(f"no way to site {site} was given", site=site)


class Adapters(msgspec.Struct):
    """Holds what a node is made of; `wiring`, or a test, builds it. `store` is None for a client. `reach` opens another
    site; it raises UnreachableError, or ConfigError if that site is not configured."""

    log: Log
    coordinator: Coordinator
    channel: Channel
    store: Store | None
    reach: Callable[[str], SiteAccess] = nowhere

    def close(self) -> None:
        """Close all of them."""
        for part in (self.channel, self.coordinator, self.log, self.store):
            if part is not None:
                part.close()
