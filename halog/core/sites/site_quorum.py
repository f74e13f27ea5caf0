"""Which of several sites goes on where they cannot reach each other (Q1, M5): votes of their coordinators.

The theory: each site's coordinator holds, for a partition, the name of the site that its votes belong to
(`halog.runtime.sites.voting`). The active node renews that at all of them, and may count on a vote for `lease_ms` from
when it *asked*. A site that would take over may claim a vote only when nobody has renewed it for twice as long by its
own clock, and takes over with more than half of all votes. So at no moment do two sites have them.

Law: where the quorum binds, nothing is acknowledged without more than half of the votes. What is in flight when they
are lost waits; it is answered if they come back, and unknown if the epoch ends. New commits are refused by name. An
operator may overrule a site: its votes do not count until it gives them again (F6).
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
"""No time ends it."""

RENEWALS: Final = 4
"""A vote is asked for so many times before it would end: a slow answer, or a coordinator's failover, ends none."""

FIRST_MS: Final = 2_000
"""A new epoch's commits are taken, and held, until the first votes have come, for so long: a connection is made over a
line, and a round trip. So who calls at a failover waits for that, and is not refused."""

QUORUM: Final = Member("", -1)
"""Among those whom commits wait for: it has nothing, so while it is waited for nothing is answered."""


def is_quorum(votes: Mapping[str, int], sites: Collection[str], overruled: Collection[str] = ()) -> bool:
    """Have these sites more than half of the votes that count? Where none does, none is needed: whoever has votes was
    overruled, for one that has not."""
    counted = {site: n for site, n in votes.items() if site not in overruled}
    have, every = sum(n for site, n in counted.items() if site in sites), sum(counted.values())
    return not every or 2 * have > every


def needed(votes: Mapping[str, int], overruled: Collection[str] = ()) -> int:
    """How many votes are more than half of those that count; 0: none does."""
    every = sum(n for site, n in votes.items() if site not in overruled)
    return every // 2 + 1 if every else 0


class SiteQuorum:
    """Of one epoch, at its active node."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        policy = copy.settings.votes
        self._votes = dict(policy.of)
        self._binding = policy.binding
        self._lease_ms = policy.lease_ms
        self._asked: dict[str, tuple[int, int]] = {}
        """By site: the question under way, and when it was sent."""
        self._next = dict.fromkeys(self._votes, 0)
        self._until = dict.fromkeys(self._votes, 0)
        """Until when each site's votes are this one's."""
        self._other: dict[str, str] = {}
        """By site: who its votes belong to, as it said last."""
        self._held = not self._binding
        self._young_until = copy.now + FIRST_MS
        self.ends = NEVER
        """When they are to be counted again, if nobody answers before. (Now and then it is earlier than need be.)"""

    def begin(self) -> None:
        """Ask all at once: the first commit waits for it."""
        self.ends = self._copy.now if self._binding else NEVER
        self._ask()

    # --- what commits are told ---

    def waited(self) -> frozenset[Member]:
        """One more to wait for, while the votes are not there."""
        return _ALL_THERE if self._held else _WAITS

    def short(self) -> res.TooFew | None:
        """What a new commit is told while they are not."""
        if self._held or self._copy.now < self._young_until:
            return None
        overruled = self._copy.table.overruled
        counted = {n: votes for n, votes in self._votes.items() if n not in overruled}
        have = sum(votes for n, votes in counted.items() if self.gives(n))
        away = tuple(n for n in counted if not self.gives(n))
        return res.TooFew(have, needed(self._votes, overruled), "votes", away)

    def gives(self, site: str) -> bool:
        """Are that site's votes this one's now?"""
        return self._until.get(site, 0) > self._copy.now

    def is_counted(self, site: str) -> bool:
        """Has it votes that bind?"""
        return self._binding and site in self._votes

    @property
    def held(self) -> bool:
        """Are there enough votes, or are none needed?"""
        return self._held

    @property
    def is_lost(self) -> bool:
        """May another site have enough of them?"""
        return self._binding and not self._held

    @property
    def is_sure(self) -> bool:
        """Can no other site have enough of them?"""
        return self._binding and self._held

    @property
    def holders(self) -> list[str]:
        """The other sites that votes belong to, as was heard last."""
        return sorted(set(self._other.values()))

    def view(self) -> list[tuple[str, int, str]]:
        """For operators, of each site: how many votes it has, and whose they are as far as is known."""
        own = self._copy.settings.votes.site
        return [(n, votes, own if self.gives(n) else self._other.get(n, "")) for n, votes in self._votes.items()]

    # --- asking ---

    def ticked(self) -> bool:
        """Ask again where it is time; are commits refused from now on?"""
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
        """Take what a site says of its votes; return whether others are waited for than before, or what a new commit is
        told has changed."""
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
        """Count them. To be called whenever `ends` has come."""
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
