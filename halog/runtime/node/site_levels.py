"""Looks whether a running process still knows the level of each other site that it reaches (U1).

Each site has a level of its own. It is looked at when the site is reached, and watched for as long as that way is
open. From when it is not known any more nothing is read or written there: the coordinator of that way refuses every
request with what is wrong, as one that cannot be reached does, and who reads and writes the log there asks before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from halog.errors import CoordinatorError, VersionMismatchError
from halog.metadata.cluster_level import LEVEL_PATH, check_found
from halog.ports import Coordinator, SessionState, Versioned
from halog.runtime.support.adapters import Adapters, SiteAccess

logger = logging.getLogger("halog.node")


class SiteLevel:
    """A `SiteLevel` hears of the level of one other site, over one way to it."""

    def __init__(self, site: str, cluster: str) -> None:
        self._site = site
        self._cluster = cluster
        self._why: VersionMismatchError | None = None

    def check(self) -> None:
        """Raise VersionMismatchError once the level there is one that this halog does not know."""
        if self._why is not None:
            raise VersionMismatchError(self._why.message, **self._why.evidence)

    def begin(self, coordinator: Coordinator) -> None:
        """Hear of every change from now on. Raise VersionMismatchError if the level is not known now."""
        self._seen(LEVEL_PATH, coordinator.get(LEVEL_PATH))
        self.check()
        coordinator.watch(LEVEL_PATH, self._seen)

    def _seen(self, path: str, found: Versioned | None) -> None:
        try:
            check_found(found, self._cluster)
        except CoordinatorError as e:
            logger.error("site %s is dealt with as before: %s", self._site, e)
        except VersionMismatchError as e:
            self._why = VersionMismatchError(f"site {self._site}: {e.message}", **e.evidence, site=self._site)


class KnownSiteCoordinator:
    """A `KnownSiteCoordinator` is the coordinator of another site, as long as the level there is known: each request
    raises VersionMismatchError from then on."""

    def __init__(self, there: Coordinator, level: SiteLevel) -> None:
        self._there = there
        self._level = level

    def connect(self, on_state: Callable[[SessionState], None], wait_s: float | None = None) -> None:
        """See Coordinator."""
        self._there.connect(on_state, wait_s)

    def joined(self) -> None:
        """See Coordinator."""
        self._there.joined()

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        """See Coordinator."""
        self._level.check()
        return self._there.create(path, data, ephemeral=ephemeral)

    def get(self, path: str) -> Versioned | None:
        """See Coordinator."""
        self._level.check()
        return self._there.get(path)

    def get_many(self, paths: Sequence[str]) -> Sequence[Versioned | None]:
        """See Coordinator."""
        self._level.check()
        return self._there.get_many(paths)

    def set(self, path: str, data: bytes, version: int) -> int:
        """See Coordinator."""
        self._level.check()
        return self._there.set(path, data, version)

    def confirm(self, path: str, version: int) -> None:
        """See Coordinator."""
        self._level.check()
        self._there.confirm(path, version)

    def delete(self, path: str, version: int = -1) -> bool:
        """See Coordinator."""
        self._level.check()
        return self._there.delete(path, version)

    def children(self, path: str) -> list[str]:
        """See Coordinator."""
        self._level.check()
        return self._there.children(path)

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """See Coordinator."""
        self._level.check()
        self._there.watch(path, changed)

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        """See Coordinator."""
        self._level.check()
        self._there.watch_children(path, changed)

    def watch_members(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        """See Coordinator."""
        self._level.check()
        self._there.watch_members(path, changed)

    def sync(self, path: str) -> None:
        """See Coordinator."""
        self._level.check()
        self._there.sync(path)

    def close(self) -> None:
        """See Coordinator."""
        self._there.close()


def to_known_sites(adapters: Adapters, cluster: str) -> Adapters:
    """Return the adapters of a node with a way to other sites that is `known_sites`."""
    return msgspec.structs.replace(adapters, reach=known_sites(adapters.reach, cluster))


def known_sites(reach: Callable[[str], SiteAccess], cluster: str) -> Callable[[str], SiteAccess]:
    """Return what reaches another site as `reach` does, and watches the level there. It raises VersionMismatchError for
    a site whose level is not known."""

    def reached(site: str) -> SiteAccess:
        way, level = reach(site), SiteLevel(site, cluster)
        try:
            level.begin(way.coordinator)
        except BaseException:
            way.close()
            raise
        return SiteAccess(way.name, way.log, KnownSiteCoordinator(way.coordinator, level), level.check)

    return reached
