"""Carries out a change of a mapping on a node (T8). Operators ask for a change through `halog.runtime.node.admin`.

Each node looks after the partitions that it is active for. It has their logs say that they serve the new version, looks
at all their objects, and moves those that belong elsewhere. It looks again until there are none, and then notes the
partition as clean. The first node by name also makes the partitions that a change adds, and opens the change. All of
this is in the logs and in one znode (`mapping_cache.py`), so the next active node goes on, whatever died. While a job
says that it moves the objects (`move_jobs.py`), nodes put off looking at theirs. All decisions are made in
`halog.core.keys.mapping`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from halog.core.keys.mapping import PolicyMapping, cleaned, opened
from halog.errors import HalogError, PartitionUnavailableError, VersionError
from halog.events import REMAPPED, REMAPPING
from halog.metadata import mapped_policies
from halog.metadata.move_jobs import MoveJobs
from halog.ports import UnknownResult
from halog.runtime.placement import bootstrap as cluster
from halog.runtime.replica.driver import Copy

if TYPE_CHECKING:
    from halog.config import Config
    from halog.runtime.host.host import Host
    from halog.runtime.keys.routing import Routing
    from halog.runtime.membership.members import Membership
    from halog.runtime.remap.mover import Mover

logger = logging.getLogger("halog.remapping")

LOOK_S = 0.2
"""A change is looked at this often: a node that becomes active for a partition goes on with it this soon."""

LOOKS = 3
"""An obstacle is logged when it was there at so many looks in a row: some are gone within ms, in every change."""

WAIT_S = 1.0
"""A look waits so long for the log to say that a partition serves the new mapping; the next look waits again."""

AT_ONCE = 20_000
"""So many objects that belong elsewhere are collected before they are moved: their keys are a few MB. Objects with the
same routing key are moved together if they are found together."""


class RemapDriver:
    """The `RemapDriver` of a hosting node carries out the changes of all policies on its partitions."""

    def __init__(
        self, host: Host, members: Membership, config: Callable[[], Config], routing: Routing, mover: Mover
    ) -> None:
        self._host = host
        self._members = members
        self._config = config
        self._routing = routing
        self._mover = mover
        self._mappings = routing.mappings
        self._jobs = MoveJobs(host.coordinator)
        self._left_to: dict[str, str] = {}
        """By policy: the job that moves the objects of its change."""
        self._said: dict[str, tuple[str, int]] = {}
        """By policy: what is in the way of its change, and for how many looks."""
        self._moved: dict[str, dict[str, int]] = {}
        """By policy and partition: how many objects this node has moved out of it, in the change under way."""

    def turn(self) -> None:
        """Look at all changes once, after a pause."""
        if self._host.pause(LOOK_S) or self._members.offline:
            return
        for policy, mapping in list(self._mappings.known.items()):
            if mapping.changing is None:
                self._said.pop(policy, None)
                self._moved.pop(policy, None)
                self._left_to.pop(policy, None)
            elif mapping.changing.open:
                self._try(policy, "objects do not move yet", partial(self._carry_on, policy, mapping))
            elif self._is_first(policy):
                self._try(policy, "the change does not begin yet", partial(self._open, policy, mapping))
            else:
                self._said.pop(policy, None)

    def view(self) -> dict[str, object]:
        """Return plain values: how many objects moved, what is in the way, and the jobs that move objects for the
        nodes, if any."""
        moved = {name: n for of in list(self._moved.values()) for name, n in list(of.items())}
        shown: dict[str, object] = {"moved": moved, "problems": [said for said, _ in list(self._said.values())]}
        return {**shown, "left_to": dict(self._left_to)} if self._left_to else shown

    def _try(self, policy: str, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (HalogError, VersionError, UnknownResult) as error:
            self._say(policy, f"policy {policy}: {what}: {error}")
        else:
            self._said.pop(policy, None)

    def _say(self, policy: str, said: str) -> None:
        """Note what is in the way, and log it once for as long as it stays the same."""
        before, looks = self._said.get(policy, ("", 0))
        looks = looks + 1 if before == said else 1
        self._said[policy] = said, looks
        if looks == LOOKS:
            logger.warning(said)

    # --- beginning ---

    def _is_first(self, policy: str) -> bool:
        """Is this the first of the zone's nodes that are up? Two that both believe so do no harm: each step is a
        compare-and-set."""
        zone, members = self._config().hosts_of(policy), self._members
        return members.me.node == min({m.node for m in members.alive}.intersection(zone), default="")

    def _open(self, policy: str, mapping: PolicyMapping) -> None:
        """Make what partitions it adds; once all are served, keys are routed by it."""
        host = self._host
        for name in cluster.add_partitions(host.log, host.coordinator, self._config(), policy, mapping):
            host.telling.created(name)
        unserved = self._unserved(mapping.partition_names(policy))
        if unserved is not None:
            raise unserved
        after = mapped_policies.step(host.coordinator, policy, lambda now: opened(now) if now == mapping else now)
        if after != opened(mapping):  # turned back, or another one by now: its partitions may not be there
            return
        more = {"policy": policy, "version": mapping.version + 1}
        host.telling.history.tell(REMAPPING, f"changes to {_shown(mapping)}", more=more)

    def _unserved(self, partitions: Iterable[str]) -> HalogError | None:
        without = [name for name in partitions if self._host.router.active(name) is None]
        if not without:
            return None
        return PartitionUnavailableError(f"no node is active for {', '.join(without)}", partition=without[0])

    # --- carrying out ---

    def _carry_on(self, policy: str, mapping: PolicyMapping) -> None:
        """Go on with the partitions that this node is active for."""
        assert mapping.changing is not None
        self._look_for_a_job(policy, mapping.version)
        clean = []
        left = [name for name in mapping.partition_names(policy) if name not in mapping.changing.clean]
        problem: Exception | None = self._unserved(left) if self._is_first(policy) else None
        for name in left:
            copy = self._host.copies.get(name)
            if copy is None or not copy.serving:
                continue
            try:
                if self._is_clean(policy, copy, mapping):
                    clean.append(name)
            except (HalogError, VersionError, UnknownResult) as error:
                problem = problem or error
        if clean:
            self._note(policy, mapping, clean)
        if problem is not None:
            raise problem

    def _look_for_a_job(self, policy: str, version: int) -> None:
        by, before = self._jobs.at_work(policy, version), self._left_to.get(policy)
        if by == before:
            return
        if by is None:
            del self._left_to[policy]
            logger.info("policy %s: %s does not move its objects any more, the nodes do", policy, before)
        else:
            self._left_to[policy] = by
            logger.info("policy %s: %s moves its objects, the nodes leave them to it", policy, by)

    def _note(self, policy: str, mapping: PolicyMapping, clean: list[str]) -> None:
        def taken(now: PolicyMapping) -> PolicyMapping:
            return cleaned(now, policy, mapping.version, clean)

        after = mapped_policies.step(self._host.coordinator, policy, taken)
        if after.version == mapping.version and after.changing is None:
            more = {"policy": policy, "version": after.version}
            self._host.telling.history.tell(REMAPPED, "every object is where it belongs", more=more)

    def _is_clean(self, policy: str, copy: Copy, mapping: PolicyMapping) -> bool:
        """Look at all objects of a partition that serves this mapping, and move those that belong elsewhere. Return
        whether the partition is clean: none belonged elsewhere, and no transaction in doubt can still bring one.
        HalogError at the end names the first object that could not move. While a job moves the objects, return
        False."""
        version = mapping.version
        if not copy.maps_by(version, WAIT_S):
            raise HalogError(f"partition {copy.name} does not serve mapping version {version} yet", partition=copy.name)
        if copy.core.state.ledger.mapping != version:
            self._routing.relearn(copy.name, copy.core.state.ledger.mapping)
            return False
        if policy in self._left_to:
            return False
        with copy.lock:
            doubtful = copy.core.state.ledger.older(version)
            there = copy.objects.scan(b"")
        problem: HalogError | None = None
        dirty, elsewhere = False, list[bytes]()
        for found in there:
            try:
                if self._mover.misplaced(found, copy, mapping) is None:
                    continue
            except HalogError as error:
                problem = problem or error
                continue
            dirty = True
            elsewhere.append(found.key)
            if len(elsewhere) >= AT_ONCE:
                problem = self._move(policy, copy, elsewhere) or problem
                elsewhere = []
        problem = self._move(policy, copy, elsewhere) or problem
        if problem is not None:
            raise problem
        if doubtful and not dirty:
            raise HalogError(f"partition {copy.name} holds transactions of an older mapping that are not decided yet")
        return not dirty

    def _move(self, policy: str, copy: Copy, keys: list[bytes]) -> HalogError | None:
        """Move these objects, and return why the first that could not move did not."""
        if not keys:
            return None
        began = time.monotonic()
        swept = self._mover.sweep(copy.name, keys, urgent=False)
        by_partition = self._moved.setdefault(policy, {})
        by_partition[copy.name] = by_partition.get(copy.name, 0) + swept.moved
        if swept.moved:
            logger.info("partition %s: %d objects moved in %.2f s", copy.name, swept.moved, time.monotonic() - began)
        return swept.problem


def _shown(mapping: PolicyMapping) -> str:
    to = mapping.layouts[-1]
    version = f" (version {to.mapper_version})" if to.mapper_version else ""
    return f"{to.mapper}{version}, {to.partitions} partitions, ring of {to.ring_size}"
