"""This module decides which of several sites goes on where they cannot reach each other (Q1, M5): by votes of their
coordinators.

The theory: for each partition, each site's coordinator holds the name of the site that its votes belong to
(`halog.runtime.sites.voting`). The active node renews its votes at all coordinators. It may count on a vote for
`lease_ms` from when it *asked*. A site that would take over may claim a vote only when, by its own clock, nobody has
renewed it for twice as long. It takes over with more than half of all votes. So two sites never have a majority at the
same moment.

Law: where the quorum binds, nothing is acknowledged without more than half of the votes. If they are lost, what is in
flight waits. It is answered if they come back, and unknown if the epoch ends. New commits are refused by name. An
operator may overrule a site: its votes do not count until the site gives them again (F6).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState
from halog.core.table.tell import Tell
from halog.events import SITE_QUORUM, SITE_QUORUM_LOST

NEVER: Final = 1 << 62
"""A time that never comes."""

RENEWALS: Final = 4
"""A vote is asked for so many times before it would end. So neither a slow answer nor a coordinator's failover ends
one."""

FIRST_MS: Final = 2_000
"""For so long a new epoch takes and holds commits until the first votes have come: a connection over a line, and a
round trip. So a caller at a failover waits that long, and is not refused."""

QUORUM: Final = Member("", -1)
"""A member that commits wait for while votes are missing. It never acknowledges, so nothing is answered meanwhile."""


def is_quorum(votes: Mapping[str, int], sites: Collection[str], overruled: Collection[str] = ()) -> bool:
    """Say whether these sites have more than half of the votes that count. Where no vote counts none is needed: all
    sites with votes were overruled, for a site without."""
    counted = {site: n for site, n in votes.items() if site not in overruled}
    have, every = sum(n for site, n in counted.items() if site in sites), sum(counted.values())
    return not every or 2 * have > every


def needed(votes: Mapping[str, int], overruled: Collection[str] = ()) -> int:
    """Return how many votes are more than half of those that count; 0: none counts."""
    every = sum(n for site, n in votes.items() if site not in overruled)
    return every // 2 + 1 if every else 0


class SiteQuorum:
    """Counts the votes of sites at the active node of one epoch."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        policy = copy.settings.votes
        self._votes = dict(policy.of)
        self._binding = policy.binding
        self._lease_ms = policy.lease_ms
        self._asked: dict[str, tuple[int, int]] = {}
        """The question under way, by site, and when it was sent."""
        self._next = dict.fromkeys(self._votes, 0)
        self._until = dict.fromkeys(self._votes, 0)
        """Until when each site's votes belong to this site."""
        self._other: dict[str, str] = {}
        """The site that each site's votes belong to, as it said last."""
        self._held = not self._binding
        self._young_until = copy.now + FIRST_MS
        self.ends = NEVER
        """When the votes must be counted again if nobody answers before. Now and then it is earlier than necessary."""

    def begin(self) -> None:
        """Ask all sites at once: the first commit waits for the votes."""
        self.ends = self._copy.now if self._binding else NEVER
        self._ask()

    # --- what commits are told ---

    def waited(self) -> frozenset[Member]:
        """Return the one additional member that commits wait for while the votes are missing."""
        return _ALL_THERE if self._held else _WAITS

    def short(self) -> res.Shortage | None:
        """Return what a new commit is told while votes are missing."""
        if self._held or self._copy.now < self._young_until:
            return None
        overruled = self._copy.table.overruled
        counted = {n: votes for n, votes in self._votes.items() if n not in overruled}
        have = sum(votes for n, votes in counted.items() if self.gives(n))
        away = tuple(n for n in counted if not self.gives(n))
        return res.Shortage(have, needed(self._votes, overruled), "votes", away)

    def gives(self, site: str) -> bool:
        """Say whether that site's votes belong to this site now."""
        return self._until.get(site, 0) > self._copy.now

    def is_counted(self, site: str) -> bool:
        """Say whether the site has votes that bind."""
        return self._binding and site in self._votes

    @property
    def held(self) -> bool:
        """Say whether there are enough votes, or none is needed."""
        return self._held

    @property
    def is_lost(self) -> bool:
        """Say whether another site may have enough votes."""
        return self._binding and not self._held

    @property
    def is_sure(self) -> bool:
        """Say whether no other site can have enough votes."""
        return self._binding and self._held

    @property
    def holders(self) -> list[str]:
        """Return the other sites that votes belong to, as they said last."""
        return sorted(set(self._other.values()))

    def view(self) -> list[tuple[str, int, str]]:
        """Return, for operators, each site with its number of votes and the site they belong to, as far as that is
        known."""
        own = self._copy.settings.votes.site
        return [(n, votes, own if self.gives(n) else self._other.get(n, "")) for n, votes in self._votes.items()]

    # --- asking ---

    def ticked(self) -> bool:
        """Ask again where it is time. Return whether commits are refused from now on."""
        self._ask()
        if self._held or not 0 < self._young_until <= self._copy.now:
            return False
        self._young_until = 0
        self._tell()
        return True

    def _ask(self) -> None:
        copy = self._copy
        for site, due in self._next.items():
            under_way = self._asked.get(site)
            if copy.now >= due and (under_way is None or copy.now - under_way[1] >= self._lease_ms):
                self._asked[site] = copy.next_round(), copy.now
                copy.out.append(fx.AskVote(self._asked[site][0], site))

    def answered(self, e: ev.VoteAnswered) -> bool:
        """Take what a site says of its votes. Return whether commits wait for others than before, or what a new commit
        is told has changed."""
        round_, sent = self._asked.get(e.site, (0, 0))
        if e.round != round_:
            return False
        del self._asked[e.site]
        before = self._held, self.short()
        if e.owner == self._copy.settings.votes.site:
            self._other.pop(e.site, None)
            self._until[e.site] = max(self._until[e.site], sent + self._lease_ms * 99 // 100 - 2)  # the clocks' drift
            self._next[e.site] = sent + self._lease_ms // RENEWALS
        else:
            self._next[e.site] = self._copy.now + self._lease_ms // RENEWALS // 2
            if e.owner:
                self._other[e.site] = e.owner
        self.count()
        return (self._held, self.short()) != before

    def count(self) -> None:
        """Count the votes. To be called whenever `ends` has come."""
        now, before = self._copy.now, self._held
        if not self._binding:
            return
        self._held = is_quorum(self._votes, [n for n, t in self._until.items() if t > now], self._copy.table.overruled)
        self.ends = min((t for t in self._until.values() if t > now), default=NEVER)
        if self._held is before:
            return
        if self._held and self._young_until:
            self._young_until = 0  # the first time is nothing to tell
        else:
            self._tell()

    def _tell(self) -> None:
        short = self.short()
        if short is None:
            self._copy.out.append(Tell(SITE_QUORUM, "", "new commits are taken", {}))
        else:
            more = {"have": short.have, "needed": short.needed, "missing": ", ".join(short.away)}
            self._copy.out.append(Tell(SITE_QUORUM_LOST, "", "new commits are refused", more))


_WAITS: Final = frozenset((QUORUM,))
_ALL_THERE: Final[frozenset[Member]] = frozenset()
