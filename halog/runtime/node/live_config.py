"""The configuration a process runs with, while there is an active version in the coordinator (P11).

Read when it starts; a version that comes later is taken up at once as far as `halog.config.changes.RULES` says, and the
rest waits for a restart, which is told. Nothing is ever taken up from the own file. The theory: a running process
always runs with whole values of keys it knows, so a version it cannot use changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from halog.config import Config, PolicyConfig
from halog.config.active_merge import disagreements, live, merged, waiting
from halog.config.changes import key_text
from halog.config.later_keys import listed
from halog.errors import ConfigError, CoordinatorError
from halog.events import TAKEN_UP
from halog.metadata.cluster_level import check_level
from halog.metadata.config_versions import ACTIVE, VERSIONS, Version, read
from halog.ports import Coordinator, Versioned
from halog.release import RELEASE
from halog.runtime.events.history import History
from halog.runtime.rpc.router import Router

logger = logging.getLogger("halog.config")

NAMED_KEYS = 20
"""Keys that a warning names; `halog config diff` shows all."""


class ActiveConfig(NamedTuple):
    """A process runs with `config`; beside it are its own file, and the version that was active when it read it (0:
    none)."""

    config: Config
    own: Config
    number: int = 0

    def ignored(self, node: str) -> str:
        """Return the keys of the file of `node` in which the version says something else; "": none."""
        keys = [c.text for c in disagreements(self.own, self.config, node)] if self.number else []
        more = f" and {len(keys) - NAMED_KEYS} more" if len(keys) > NAMED_KEYS else ""
        return ", ".join(keys[:NAMED_KEYS]) + more


def of_file(own: Config, node: str) -> ActiveConfig:
    """Return what a process runs with where nobody can be asked for versions."""
    return ActiveConfig(own, own)


def in_force(own: Config, coordinator: Coordinator) -> ActiveConfig:
    """Return what a process with this file is to run with now. ConfigError if file and active version do not fit each
    other; VersionMismatchError, before the version is looked at, if this halog does not know the cluster's level."""
    check_level(coordinator, own.cluster.name)
    version = read(coordinator).version
    if version is None:
        return ActiveConfig(own, own)
    try:
        found = version.parsed()
    except ConfigError as error:
        raise ConfigError(f"{error.message}; a corrected file replaces it: `halog config activate`") from error
    _tell_later(version)
    return ActiveConfig(merged(own, found), own, version.number)


def _tell_later(version: Version) -> None:
    if later := version.later:
        logger.warning(
            "version %d of the configuration has keys that halog %s does not know: %s; this process goes on without "
            "them",
            version.number,
            RELEASE,
            listed(later),
        )


def for_node(own: Config, coordinator: Coordinator, node: str) -> ActiveConfig:
    """Return the same as `in_force`, and warn if the file says something else."""
    found = in_force(own, coordinator)
    if ignored := found.ignored(node):
        logger.warning(
            "%s differs from active version %d of the configuration in %s; the version counts: see `halog config diff`",
            own.source,
            found.number,
            ignored,
        )
    return found


class LiveConfig:
    """`LiveConfig` holds the configuration in force in one run of a process."""

    def __init__(self, activated: ActiveConfig, history: History, apply: Callable[[Config], None]) -> None:
        """Begin with what the process runs with. `apply` is given what takes effect at once; only nodes that host tell
        of it."""
        self._running = activated.config
        self._own = activated.own
        self._number = self._active = activated.number
        self._waiting: tuple[str, ...] = ()
        self._history = history
        self._apply = apply
        self._hosts = False

    def watch(self, coordinator: Coordinator, *, hosts: bool) -> None:
        """Take up what is activated from now on."""
        self._hosts = hosts
        coordinator.watch(ACTIVE, self._changed)

    def _changed(self, path: str, found: Versioned | None) -> None:
        if found is None:
            return
        try:
            version = VERSIONS.decode(path, found.data)
            new = merged(self._own, version.parsed())
        except (CoordinatorError, ConfigError) as e:
            logger.error("this process goes on as it is, and will not start again: %s", e)
            return
        if version.number != self._active:
            _tell_later(version)
            self._take_up(version, new)

    def _take_up(self, version: Version, new: Config) -> None:
        self._waiting = tuple(key_text(key) for key in waiting(self._running, new))
        self._running = live(self._running, new)
        if not self._waiting:
            self._number = version.number
        self._apply(self._running)
        self._active = version.number
        self._tell(version)

    def _tell(self, version: Version) -> None:
        cause = "all of it is in effect"
        if self._waiting:
            cause = f"a restart is needed for {', '.join(self._waiting)}"
        if self._hosts:
            more = {"version": version.number, "restart_for": list(self._waiting)}
            self._history.tell(TAKEN_UP, cause, more=more)
        else:
            logger.info("version %d of the configuration is active: %s", version.number, cause)

    @property
    def config(self) -> Config:
        """Return the configuration in force now."""
        return self._running

    @property
    def active(self) -> int:
        """Return the latest version of which it has taken up what takes effect at once; 0: none."""
        return self._active

    @property
    def activated(self) -> bool:
        """Does it run with an activated version?"""
        return self._active > 0

    def view(self) -> dict[str, object]:
        """Return plain values: the version it runs with, the active one it knows, and the keys that wait for a
        restart."""
        return {"version": self._number, "active": self._active, "restart_for": list(self._waiting)}


class PartitionRules:
    """`PartitionRules` say what the configuration in force asks of a partition."""

    def __init__(self, configured: LiveConfig, router: Router) -> None:
        self._configured = configured
        self._router = router

    def _policy(self, partition: str) -> PolicyConfig | None:
        known = self._router.tables.get(partition)
        return None if known is None else self._configured.config.policies.get(known[1].policy)

    def waits_for_quorum(self, partition: str) -> bool:
        """Say whether a commit there waits while there is no quorum."""
        policy = self._policy(partition)
        return policy is not None and policy.below_quorum == "wait"

    def lease_ms(self, partition: str) -> int:
        """Return how long its active node may read without asking anybody; 0: it has no leases (R5)."""
        policy = self._policy(partition)
        return 0 if policy is None else policy.lease_ttl_ms
