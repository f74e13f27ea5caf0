"""A change of a mapping, as the nodes carry it out (T8); who wishes it is `halog.runtime.operators`.

Each node looks after the partitions it is active for: has their logs say that they serve the new version, looks at all
their objects, moves those that belong elsewhere, and looks again until there are none; then it notes the partition as
clean. The first node by name also makes the partitions that a change adds, and opens it. All of it is in the log and
in one znode (`mappings.py`), so whoever becomes active goes on, whatever died. Nothing is decided here that is not
decided in `halog.core.mapping`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from halog.core.mapping import PolicyMapping, cleaned, opened
from halog.errors import HalogError, VersionError
from halog.events import REMAPPED, REMAPPING
from halog.ports import UnknownResult
from halog.runtime import cluster, mappings
from halog.runtime.copy import Copy

if TYPE_CHECKING:
    from halog.runtime.host import Host
    from halog.runtime.node import Runtime

logger = logging.getLogger("halog.remapping")

LOOK_S = 0.2
"""How often a change is looked at: a node that becomes active for a partition goes on with it this soon."""

WAIT_S = 1.0
"""How long the log may take to say that a partition serves the new mapping; then it is looked at again."""

AT_ONCE = 20_000
"""Objects found to be elsewhere before they are moved: a few MB of keys. What shares a routing key is moved together if
it is found together."""


class Remapping:
    """Of one hosting node."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime, self._host = runtime, host
        self._mappings = runtime.routing.mappings
        self._said: dict[str, str] = {}
        """What is in the way of what, as it was last said."""
        self._moved: dict[str, int] = {}
        """Partition → objects this node has moved out of it, in the change under way."""

    def turn(self) -> None:
        """One look, after a pause."""
        if self._host.pause(LOOK_S) or self._runtime.members.offline:
            return
        for policy, mapping in list(self._mappings.known.items()):
            if mapping.changing is None:
                continue
            if mapping.changing.open:
                self._try(f"policy {policy}: objects do not move yet", partial(self._carry_on, policy, mapping))
            elif self._is_first(policy):
                self._try(f"policy {policy}: the change does not begin yet", partial(self._open, policy, mapping))

    def view(self) -> dict[str, object]:
        """Plain values: what moved, and what is in the way."""
        return {"moved": dict(self._moved), "problems": list(self._said.values())}

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (HalogError, VersionError, UnknownResult) as error:
            self._say(what, str(error))
        else:
            self._said.pop(what, None)

    def _say(self, what: str, why: str) -> None:
        """Once, as long as it is so."""
        said = f"{what}: {why}"
        if self._said.get(what) != said:
            self._said[what] = said
            logger.warning(said)

    # --- beginning ---

    def _is_first(self, policy: str) -> bool:
        """Two that take themselves for the first do no harm: each step is a compare-and-set."""
        config, members = self._runtime.config, self._runtime.members
        zone = config.hosts_of(policy)
        return members.me.name == min({m.node for m in members.alive}.intersection(zone), default="")

    def _open(self, policy: str, mapping: PolicyMapping) -> None:
        """Make what partitions it adds; once all are served, keys are routed by it."""
        runtime = self._runtime
        a, config = runtime.adapters, runtime.config
        for name in cluster.add_partitions(a.log, a.coordinator, config, policy, mapping):
            runtime.telling.created(name)
        for name in mapping.partition_names(policy):
            if runtime.router.active(name) is None:
                return
        mappings.step(a.coordinator, policy, _open_if_begun)
        more = {"policy": policy, "version": mapping.version + 1}
        runtime.telling.history.tell(REMAPPING, f"changes to {_shown(mapping)}", more=more)

    # --- carrying out ---

    def _carry_on(self, policy: str, mapping: PolicyMapping) -> None:
        """With the partitions this node is active for."""
        assert mapping.changing is not None
        clean = []
        problem: Exception | None = None
        for name in mapping.partition_names(policy):
            copy = self._host.copies.get(name)
            if name in mapping.changing.clean or copy is None or not copy.serving:
                continue
            try:
                if self._is_clean(copy, mapping):
                    clean.append(name)
            except (HalogError, VersionError, UnknownResult) as error:
                problem = problem or error
        if clean:
            self._note(policy, mapping, clean)
        if problem is not None:
            raise problem

    def _note(self, policy: str, mapping: PolicyMapping, clean: list[str]) -> None:
        def taken(now: PolicyMapping) -> PolicyMapping:
            return cleaned(now, policy, mapping.version, clean)

        after = mappings.step(self._runtime.adapters.coordinator, policy, taken)
        if after.version == mapping.version and after.changing is None:
            more = {"policy": policy, "version": after.version}
            self._runtime.telling.history.tell(REMAPPED, "every object is where it belongs", more=more)
            self._moved.clear()

    def _is_clean(self, copy: Copy, mapping: PolicyMapping) -> bool:
        """Look at all objects of a partition that serves this mapping, and move what belongs elsewhere: nothing did,
        and nobody is in doubt who may still bring some?"""
        version = mapping.version
        if not copy.maps_by(version, WAIT_S) or copy.core.ledger.mapping != version:
            return False
        with copy.lock:
            doubtful = copy.core.ledger.older(version)
            there = copy.objects.scan(b"")
        mover, moved = self._runtime.mover, 0
        elsewhere: list[bytes] = []
        for found in there:
            if mover.misplaced(found, copy, mapping) is not None:
                elsewhere.append(found.key)
                if len(elsewhere) >= AT_ONCE:
                    moved += self._move(copy, elsewhere)
                    elsewhere = []
        dirty = moved or elsewhere
        self._move(copy, elsewhere)
        return not dirty and not doubtful

    def _move(self, copy: Copy, keys: list[bytes]) -> int:
        began = time.monotonic()
        moved = self._runtime.mover.move(copy.name, keys).moved if keys else 0
        self._moved[copy.name] = self._moved.get(copy.name, 0) + moved
        if moved:
            logger.info("partition %s: %d objects moved in %.2f s", copy.name, moved, time.monotonic() - began)
        return moved


def _open_if_begun(mapping: PolicyMapping) -> PolicyMapping:
    changing = mapping.changing
    return mapping if changing is None or changing.open else opened(mapping)


def _shown(mapping: PolicyMapping) -> str:
    to = mapping.layouts[-1]
    version = f" (version {to.mapper_version})" if to.mapper_version else ""
    return f"{to.mapper}{version}, {to.partitions} partitions, ring of {to.ring_size}"
