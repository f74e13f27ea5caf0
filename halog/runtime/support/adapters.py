"""The outside world of one node."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halog.errors import ConfigError
from halog.ports import Channel, Coordinator, Log, Store


class Remote(msgspec.Struct):
    """Another site, as this node reaches it."""

    name: str
    log: Log
    coordinator: Coordinator

    def close(self) -> None:
        """Let go of it."""
        self.coordinator.close()
        self.log.close()


def nowhere(site: str) -> Remote:
    """Of a node that was given no way to other sites."""
    raise ConfigError(f"no way to site {site} was given", site=site)


class Adapters(msgspec.Struct):
    """What a node is made of; built by `wiring`, or by tests. `store` is None for a client. `reach` opens another site
    (UnreachableError; ConfigError if it is not configured)."""

    log: Log
    coordinator: Coordinator
    channel: Channel
    store: Store | None
    reach: Callable[[str], Remote] = nowhere

    def close(self) -> None:
        """Let go of all of them."""
        for part in (self.channel, self.coordinator, self.log, self.store):
            if part is not None:
                part.close()
