"""Assigns the mirroring of other sites' partitions to one of the nodes that have a copy (F2).

Mirrors need no election. Readers take the next record of the chain, whoever brings it, so a second mirror of a
partition costs bytes and nothing else. The first of its nodes that is up does it, and for a moment two may. Each begins
by reading the own site's log to its end; whatever goes wrong, it begins again from there. A `MirrorLink` for each site
does the work.

A node that mirrors takes the snapshots of this site, too (`halog.runtime.host.snapshotter`). Of the nodes that are to
mirror, it is the one that the last standing names. So there is one as long as the coordinator answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from halog.core.roles import OUT, Role
from halog.metadata.mirrors import COMPARES, standing
from halog.ports import Coordinator, TopicPartition
from halog.runtime.sites.mirror_link import LOOK_S, MirrorLink
from halog.runtime.sites.owner_tracking import OwnerTracker
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy


class MirrorDuties:
    """Says what a node mirrors now, and over which line. It is there before the node's host is."""

    def __init__(self, coordinator: Coordinator, me: str) -> None:
        self._coordinator = coordinator
        self._me = me
        self.lines: dict[str, MirrorLink] = {}
        """By site; made by `MirrorAssignment`."""

    def is_wanted(self, copy: Copy) -> bool:
        """Say whether this node is to mirror it, and the log is the other site's by now."""
        owner = copy.core.state.table.owner
        line = self.lines.get(owner)
        return line is not None and copy.name in line.wanted and copy.core.state.chain.state.owner == owner

    def is_told(self, copy: Copy) -> bool:
        """Say whether the last standing names this node as the one that mirrors."""
        found = standing(self._coordinator, copy.name)
        if found is None or found.error or found.site != copy.core.state.table.owner:
            return False
        return found.by == self._me


class MirrorAssignment:
    """A host's `MirrorAssignment` says who mirrors what, and keeps a link to each site that is mirrored from."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorDuties,
        reach: Callable[[str], SiteAccess],
        definitions: TopicPartition,
        others: Collection[str],
        paces: SitePaces = PACES,
    ) -> None:
        self._host = host
        self._reach = reach
        self._definitions = definitions
        self._others = others
        self._paces = paces
        self._lines = assignments.lines
        self._seen: dict[str, tuple[int, float, float]] = {}
        """By partition: the last standing that another node has told, since when it is that one, and when it was
        read."""

    def turn(self) -> None:
        """Look once at all copies."""
        wanted: dict[str, set[str]] = {}
        for copy in list(self._host.copies.values()):
            if self._is_mine(copy):
                wanted.setdefault(copy.core.state.table.owner, set()).add(copy.name)
        for site in wanted:
            if site not in self._lines:
                succession = OwnerTracker(self._host, site, self._reach, self._others, self._paces)
                line = self._lines[site] = MirrorLink(self._host, succession, self._definitions, self._paces)
                self._host.keep_on(f"mirror-{site}", line.turn)
                self._host.keep_on(f"mirror-told-{site}", line.announce)
        for site, line in self._lines.items():
            line.wanted = frozenset(wanted.get(site, ()))
        self._host.pause(LOOK_S)

    def close(self) -> None:
        """Close the links, once none of their threads runs any more."""
        for line in self._lines.values():
            line.reset()

    def _is_mine(self, copy: Copy) -> bool:
        core = copy.core
        if (
            not core.state.table.owner
            or core.state.role in OUT
            or core.state.role is Role.LOADING
            or copy.error is not None
        ):
            return False
        up = {m.node for m in core.state.alive}
        first = next((n for n in core.state.table.present if n in up), None) == core.state.me.node
        return first or self._is_left(copy)

    def _is_left(self, copy: Copy) -> bool:
        """Does the node before this one mirror nothing, though it is up? Its line may be cut, or its copy broken."""
        now, (at_ms, since, looked_at) = time.monotonic(), self._seen.get(copy.name, (0, 0.0, 0.0))
        if now - looked_at < self._paces.report_s:
            return bool(at_ms) and now - since >= self._paces.stale_s
        found = standing(self._host.coordinator, copy.name)
        told = found.at_ms if found is not None and (found.parted or found.error in ("", COMPARES)) else 0
        if found is not None and found.by == copy.core.state.me.node:
            told = at_ms or 1  # this node's own word says nothing of the others
        self._seen[copy.name] = (told, since, now) if told == at_ms and since else (told, now, now)
        return now - self._seen[copy.name][1] >= self._paces.stale_s
