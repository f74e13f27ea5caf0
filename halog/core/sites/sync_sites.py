"""This module waits for other sites whose logs must have a commit before it is acknowledged (M5). It is the view of the
active node of one epoch.

The theory: such a site is one more member of the wait set. It acknowledges what its log has accepted. That stays true
whoever tells it, and however late or often: a log that was taken over meanwhile has the record before that. So an
acknowledgement needs no incarnation. It needs only the epoch, whose one writer gave the lsn to one record.

Law: `PartitionTable.synced` names sites whose logs have everything acknowledged. Commits wait for all sites that the
znode may name (S1). A site is taken out of the znode first (S2). It is put in once it has confirmed what is
acknowledged and in flight, and commits wait for it (S3). A strict policy waits for all of its sites, named or not,
except those that an operator let go; while one of them is away new commits are refused. Without a strict policy a site
that is away is taken out. In both cases it is back once it has caught up. A site that was let go is back by what it
says from then on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from halog.core import events as ev, results as res
from halog.core.commit.log_clock import AwakeClock
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId, Member
from halog.core.sites.site_quorum import SiteQuorum
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import SITE_AWAY, SITE_BACK

SITE: Final = -1
"""The incarnation of a site among members: a site's log has no incarnations."""

AWAY, BEHIND, SYNC, LET_GO = "away", "behind", "sync", "let go"


def as_member(site: str) -> Member:
    """Return the site as a member that a commit waits for."""
    return Member(site, SITE)


class SiteNews(NamedTuple):
    """A `SiteNews` says what an acknowledgement of a site brings."""

    more: bool
    """Whether its log has more than before."""
    joins: bool
    """Whether it may be put into the znode now."""


NOTHING: Final = SiteNews(more=False, joins=False)


class SyncSites:
    """Keeps the sync sites of one epoch."""

    def __init__(self, copy: CopyState, epoch: EpochId, writer: Writer, awake: AwakeClock) -> None:
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._awake = awake
        self._policy = copy.settings.sites
        self._held: tuple[frozenset[str], ...] = (frozenset(copy.table.synced),)
        """The sites that the znode may name."""
        self._joining: dict[str, int] = {}
        """Sites that commits wait for and that the znode does not name yet, with the lsn each must confirm first."""
        self._heard = dict.fromkeys((*self._policy.names, *copy.table.synced), 0)
        """When each site last confirmed something new, or all there is."""
        self._let_go: dict[str, int] = {}
        """Since when this node knows that an operator let the site go."""
        self._away: frozenset[str] = frozenset()
        self._told = copy.table.synced
        self.quorum = SiteQuorum(copy)
        """Counts the votes of the sites."""

    def waited(self) -> frozenset[Member]:
        """Return all sites that a commit must wait for now."""
        if not self._heard:
            return self.quorum.waited()
        names = set(self._joining).union(*self._held)
        if self._policy.strict:
            names.update(n for n in self._policy.names if n not in self._copy.table.let_go)
        return self.quorum.waited().union(map(as_member, names))

    def short(self) -> res.Shortage | None:
        """Return what a new commit is told while a site that it needs is away, or votes are missing."""
        needed = self._needed()
        gone = tuple(n for n in needed if n in self._away)
        return res.Shortage(len(needed) - len(gone), len(needed), "sites", gone) if gone else self.quorum.short()

    @property
    def _away_before(self) -> int:
        """Return the time before which a site must have been last heard to be away."""
        return self._awake.ms - self._policy.away_ms

    def _needed(self) -> tuple[str, ...]:
        """Return the sites without which nothing may be committed."""
        return tuple(n for n in self._policy.names if n not in self._copy.table.let_go) if self._policy.strict else ()

    # --- what is heard ---

    def acked(self, e: ev.SiteAck) -> SiteNews:
        """Take the acknowledgement of a site. It counts for this epoch only: an lsn alone may be of a history that has
        parted from this one."""
        writer, m = self._writer, as_member(e.site)
        if e.site not in self._heard or e.epoch != self._epoch or e.lsn > writer.last_lsn:
            return NOTHING
        known = writer.acks.get(m, -1)
        if e.lsn > known or e.lsn >= self._copy.chain.state.lsn:
            self._heard[e.site] = self._awake.ms
        more = e.lsn > known
        if more:
            writer.acks[m] = e.lsn
            writer.settle(self._copy.out)
        return SiteNews(more, e.site not in self._copy.table.synced and (more or e.site in self._let_go))

    def ticked(self) -> bool:
        """See which sites are away, and whose votes are missing. Return whether that has changed."""
        counted = self.quorum.ticked()
        away = frozenset(n for n, at in self._heard.items() if at < self._away_before)
        before = self._away
        self._away = away
        for n in self._needed():
            if (n in away) is not (n in before):
                self._tell(n, "new commits are refused" if n in away else "", back=n in before)
        return counted or away != before

    # --- what the znode says ---

    def plan(self) -> None:
        """Wait for sites that are close behind, from now on (S3)."""
        writer, table = self._writer, self._copy.table
        near = writer.last_lsn - self._copy.settings.ready_lag
        self._let_go = {n: self._let_go.get(n, self._awake.ms) for n in table.let_go}
        for n in self._policy.names:
            at = writer.acks.get(as_member(n))
            if n in table.synced or n in self._away or at is None or at < near or self._is_silent(n):
                self._joining.pop(n, None)
            else:
                self._joining.setdefault(n, writer.last_lsn)

    def _is_silent(self, site: str) -> bool:
        """Say whether the site was silent since it was let go. It may have had everything when it was lost."""
        return self._heard[site] <= self._let_go.get(site, -1)

    def due(self) -> PartitionTable | None:
        """Return the table as it should be; None: it is so already."""
        table = self._copy.table
        synced = tuple(n for n in self._policy.names if self._is_in(n))
        let_go = tuple(n for n in table.let_go if n in self._policy.names and n not in synced)
        quorum = self.quorum
        overruled = tuple(n for n in table.overruled if quorum.is_counted(n) and not quorum.gives(n))
        if (synced, let_go, overruled) == (table.synced, table.let_go, table.overruled):
            return None
        return msgspec.structs.replace(table, synced=synced, let_go=let_go, overruled=overruled)

    def _is_in(self, site: str) -> bool:
        if site in self._copy.table.synced:
            return self._policy.strict or site not in self._away or self._heard[site] >= self._away_before
        at = self._joining.get(site)
        return at is not None and self._writer.acks.get(as_member(site), -1) >= at

    def proposed(self, table: PartitionTable) -> None:
        """Note that a set is about to be sent."""
        if self._heard or table.synced:
            self._held = (*self._held, frozenset(table.synced))

    def settled(self) -> None:
        """Note that the znode holds the table the partition knows, and that no earlier set can land any more."""
        now = self._copy.table.synced
        self._held = (frozenset(now),)
        for n in now:
            self._joining.pop(n, None)
        for n in (n for n in self._told if n not in now):
            let_go = n in self._copy.table.let_go
            self._tell(n, f"commits go on without it{', as an operator says' if let_go else ''}")
        for n in (n for n in now if n not in self._told):
            self._tell(n, back=True)
        self._told = now

    def _tell(self, site: str, why: str = "", *, back: bool = False) -> None:
        kind = SITE_BACK if back else SITE_AWAY
        self._copy.out.append(Tell(kind, "", why or "its log has what was committed", {"site": site}))

    # --- for operators ---

    def view(self) -> dict[str, tuple[str, int]]:
        """Return, by site, its state and how many records it has not confirmed yet."""
        writer, table = self._writer, self._copy.table
        found = {}
        for n in self._policy.names:
            at = writer.acks.get(as_member(n), 0)
            known = SYNC if n in table.synced else LET_GO if n in table.let_go else BEHIND
            found[n] = (AWAY if n in self._away and known != LET_GO else known), self._copy.chain.state.lsn - at
        return found
