"""This module keeps the versions of a cluster's configuration in the coordinator (P11): which is active, and those
before it.

Compare-and-set of one node is all there is to an activation, so it happens whole or not at all, and of two operators
one is refused. The version that is to be replaced is put aside first. A process that dies in between leaves a copy of
what is still active, which the next one finds as it is to be.

config/active        Version as JSON, changed by compare-and-set only; absent: every process runs with its file
config/versions/<n>  Version as JSON, never changed: what was active before
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from halog.config import Config, later_keys, parse_config
from halog.config.changes import KeyPath, tree
from halog.core import tolerant
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import ConfigError, HalogError, OutcomeUnknownError, RefusedError, VersionError
from halog.metadata.cas import write
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, UnknownResult

logger = logging.getLogger("halog.config")

ACTIVE = "config/active"
OLD = "config/versions"

KEPT = 20
"""Older versions that are kept: months of changes, a znode of some kB each. Repositories of files keep the rest."""

MAX_BYTES = 900_000
"""ZooKeeper takes no znode of 1 MB; thousands of nodes fit."""

ATTEMPTS = 3
"""An answer that does not come is looked up; three in a row mean that ZooKeeper is away."""


class Version(TolerantStruct, frozen=True):
    """A `Version` is an activated configuration. `made_ms` is since 1970, by the clock of who activated it. `by` is
    user@host, as that machine says. `digest` is the SHA-256 of `config`; `halog config` shows its beginning."""

    number: int
    made_ms: int
    by: str
    file: str
    digest: str
    comment: str
    config: dict[str, Any]
    """The tables as `halog.config.changes.tree` gives them; relative paths as they stand in the file."""

    def to_bytes(self) -> bytes:
        """Return the znode's content."""
        return tolerant.encode(self)

    def parsed(self, *, checked: bool = True) -> Config:
        """Return it as a configuration, without the `later` keys. Raises ConfigError, which names what this halog
        cannot use of it or, if it is to be `checked`, does not run with. Unchecked, a version can be replaced that an
        older halog activated and that is refused by now."""
        known, _ = later_keys.set_aside(self.config)
        return parse_config(known, f"version {self.number}", Path(), checked=checked)

    @property
    def later(self) -> dict[KeyPath, Any]:
        """Return the keys that this halog does not know, of a later one (U1)."""
        return later_keys.set_aside(self.config)[1]


VERSIONS = ZnodeFormat(TolerantDecoder(Version).decode, "holds no version of a configuration")


class Draft(NamedTuple):
    """Holds what an operator brings along; the rest of a version follows from what is active."""

    made_ms: int
    by: str
    file: str
    comment: str
    config: Config


class ActiveVersion(NamedTuple):
    """Holds what is active, and the znode's version for the compare-and-set. `version` is None if nothing was ever
    activated."""

    version: Version | None
    znode: int

    @property
    def number(self) -> int:
        """Return its number; 0: nothing is active."""
        return 0 if self.version is None else self.version.number


def digest(config: Config) -> str:
    """Return a digest: the same for the same values, whatever their order in the file, except for partitions placed by
    hand, whose order is their index."""
    order = [[name, *policy.static] for name, policy in sorted(config.all_sites.policies.items()) if policy.static]
    said = json.dumps(tree(config), sort_keys=True) + (json.dumps(order) if order else "")
    return hashlib.sha256(said.encode()).hexdigest()


def says_the_same(version: Version, config: Config) -> bool:
    """Say whether an activation would change nothing. The digest of a version with keys of a later halog is of these,
    too: it is made anew of what is known here."""
    if not version.later:
        return version.digest == digest(config)
    return digest(version.parsed(checked=False)) == digest(config)


def read(coordinator: Coordinator) -> ActiveVersion:
    """Return what is active now."""
    return ActiveVersion(*VERSIONS.read_version(coordinator, ACTIVE))


def find(coordinator: Coordinator, number: int) -> Version:
    """Return one version. Raises ConfigError, which names those that are kept."""
    for version in history(coordinator):
        if version.number == number:
            return version
    kept = ", ".join(str(v.number) for v in history(coordinator)) or "none"
    raise ConfigError(f"there is no version {number} of the configuration; there are {kept}", version=number)


def history(coordinator: Coordinator) -> list[Version]:
    """Return the active version and the kept ones, the newest first."""
    active = read(coordinator).version
    return [] if active is None else [active, *_old(coordinator, active.number)]


def _old(coordinator: Coordinator, before: int) -> Iterator[Version]:
    for number in sorted(_numbers(coordinator), reverse=True):
        if number < before and (version := VERSIONS.read(coordinator, f"{OLD}/{number}")) is not None:
            yield version


def _numbers(coordinator: Coordinator) -> list[int]:
    return [int(name) for name in coordinator.children(OLD) if name.isdecimal()]


def activate(coordinator: Coordinator, standing: ActiveVersion, draft: Draft) -> Version:
    """Make the draft the version behind `standing`, on which the operator's comparison rests. Raises RefusedError, and
    changes nothing, if that is not the active one any more, or if the draft is too large. Keys of a later halog are
    carried, since the draft could not name them."""
    config, mark = tree(draft.config), digest(draft.config)
    if standing.version is not None:
        config = later_keys.carried(config, standing.version.later)
    new = Version(standing.number + 1, draft.made_ms, draft.by, draft.file, mark, draft.comment, config)
    data = new.to_bytes()
    if len(data) > MAX_BYTES:
        raise RefusedError(
            f"the configuration has {len(data)} bytes, more than the {MAX_BYTES} that ZooKeeper can keep"
        )
    for _ in range(ATTEMPTS):
        try:
            _replace(coordinator, standing, data)
        except UnknownResult:
            coordinator.sync(ACTIVE)
            continue
        except VersionError:
            _check_ours(coordinator, new)
        _drop_old(coordinator, new.number)
        return new
    raise OutcomeUnknownError(
        "ZooKeeper does not say whether the version was activated: see `halog config history`", version=new.number
    )


def _replace(coordinator: Coordinator, standing: ActiveVersion, data: bytes) -> None:
    if standing.version is not None:
        coordinator.create(f"{OLD}/{standing.number}", standing.version.to_bytes())
    write(coordinator, ACTIVE, data, standing.znode)


def _check_ours(coordinator: Coordinator, new: Version) -> None:
    """Raise RefusedError if somebody else was quicker; not if it was an attempt of this very call, whose answer did not
    come."""
    now = read(coordinator).version
    if now == new:
        return
    what = "somebody removed the active version" if now is None else f"{now.by} activated version {now.number}"
    raise RefusedError(f"{what} meanwhile: look at `halog config diff`, then activate again", version=new.number)


def _drop_old(coordinator: Coordinator, number: int) -> None:
    """Delete versions that are too old. The new one is active whatever becomes of this; the next activation finds what
    is left."""
    try:
        for old in _numbers(coordinator):
            if old < number - KEPT:
                coordinator.delete(f"{OLD}/{old}")
    except (HalogError, UnknownResult) as e:
        logger.info("versions that are too old are still kept: %s", e)
