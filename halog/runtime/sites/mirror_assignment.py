"""What other sites own is brought into this site's log, by one of the nodes that have a copy of it (F2).

The theory: mirrors need no election. Readers take the next record of the chain, whoever brings it, so a second mirror
of a partition costs bytes and nothing else; the first of its nodes that is up does it, and for a moment two may. Each
begins by reading the own site's log to its end; whatever goes wrong, it begins again from there. The work is done by a
`Line` for each site.

Whoever mirrors takes the snapshots of this site, too (`halog.runtime.host.snapshotter`): of those that are to mirror,
the one that the last standing names, so that there is one as long as the coordinator answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from halog.core.roles import OUT, Role
from halog.metadata.mirrors import COMPARES, standing
from halog.ports import Coordinator, TopicPartition
from halog.runtime.sites.mirror_link import LOOK_S, REPORT_S, Line
from halog.runtime.sites.owner_tracking import Succession
from halog.runtime.support.adapters import Remote

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

STALE_S = 10.0
"""A standing that stays the same for that long: whoever should have written another one does not mirror."""


class MirrorAssignments:
    """A node's `MirrorAssignments` say what it mirrors now, and over which line. They are there before its host is."""

    def __init__(self, coordinator: Coordinator, me: str) -> None:
        self._coordinator = coordinator
        self._me = me
        self.lines: dict[str, Line] = {}
        """By site; made by `Mirroring`."""

    def is_wanted(self, copy: Copy) -> bool:
        """Say whether this node is to mirror it, and the log is the other site's by now."""
        owner = copy.core.table.owner
        line = self.lines.get(owner)
        return line is not None and copy.name in line.wanted and copy.core.chain.state.owner == owner

    def is_told(self, copy: Copy) -> bool:
        """Say whether the last standing names this node as the one that mirrors."""
        found = standing(self._coordinator, copy.name)
        if found is None or found.error or found.site != copy.core.table.owner:
            return False
        return found.by == self._me


class Mirroring:
    """A host's `Mirroring` looks who mirrors what, and keeps a line to each site that something is mirrored from."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorAssignments,
        reach: Callable[[str], Remote],
        definitions: TopicPartition,
        others: Collection[str],
    ) -> None:
        self._host = host
        self._reach = reach
        self._definitions = definitions
        self._others = others
        self._lines = assignments.lines
        self._seen: dict[str, tuple[int, float, float]] = {}
        """By partition: the last standing that somebody else has told, since when it is that one, when it was read."""

    def turn(self) -> None:
        """One look at all copies."""
        wanted: dict[str, set[str]] = {}
        for copy in list(self._host.copies.values()):
            if self._is_mine(copy):
                wanted.setdefault(copy.core.table.owner, set()).add(copy.name)
        for site in wanted:
            if site not in self._lines:
                succession = Succession(self._host, site, self._reach, self._others)
                line = self._lines[site] = Line(self._host, succession, self._definitions)
                self._host.keep_on(f"mirror-{site}", line.turn)
                self._host.keep_on(f"mirror-told-{site}", line.announce)
        for site, line in self._lines.items():
            line.wanted = frozenset(wanted.get(site, ()))
        self._host.pause(LOOK_S)

    def close(self) -> None:
        """Once no thread of it runs any more."""
        for line in self._lines.values():
            line.reset()

    def _is_mine(self, copy: Copy) -> bool:
        core = copy.core
        if not core.table.owner or core.role in OUT or core.role is Role.LOADING or copy.error is not None:
            return False
        up = {m.node for m in core.alive}
        first = next((n for n in core.table.present if n in up), None) == core.me.node
        return first or self._is_left(copy)

    def _is_left(self, copy: Copy) -> bool:
        """Does whoever is before this node mirror nothing, though it is up? Its line may be cut, its copy broken."""
        now, (at_ms, since, looked_at) = time.monotonic(), self._seen.get(copy.name, (0, 0.0, 0.0))
        if now - looked_at < REPORT_S:
            return bool(at_ms) and now - since >= STALE_S
        found = standing(self._host.coordinator, copy.name)
        told = found.at_ms if found is not None and (found.parted or found.error in ("", COMPARES)) else 0
        if found is not None and found.by == copy.core.me.node:
            told = at_ms or 1  # its own word says nothing of them
        self._seen[copy.name] = (told, since, now) if told == at_ms and since else (told, now, now)
        return now - self._seen[copy.name][1] >= STALE_S
