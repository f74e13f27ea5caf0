"""This module decides whether a site that mirrors a partition may take it over by votes (Q1, M5); see
`halog.core.sites.site_quorum`.

Law: a vote may be claimed when this node has seen it unchanged for the whole wait. That is twice as long as the serving
site may count on it. A claim is a compare-and-set against what was seen. So a vote that was claimed no longer counts
for the serving site, and a vote that is renewed at the last moment is not claimed. Votes are claimed only from the site
that is mirrored. A site that never had an epoch of the history takes nothing over: its vote may have been renewed over
a line that has brought nothing of the log yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from halog.core.sites.site_quorum import is_quorum

LATER: Final = 2
"""Each site waits longer than the one before it, by this part of the time. So all partitions go to the same site, and a
transaction over several of them finds them at one site."""


class Vote(NamedTuple):
    """A `Vote` is a vote as a coordinator holds it."""

    site: str
    """The site that has the vote."""
    beat: int
    """Changes with every renewal."""


class TakeoverCandidate:
    """A `TakeoverCandidate` is this site as a candidate for one partition. Times are ms of one node's clock."""

    def __init__(self, site: str, votes: Mapping[str, int], wait_ms: int, *, binding: bool) -> None:
        """Set the rules. If `binding`, more than half of the votes are needed; else this site's own vote says which
        site was heard of."""
        self._site = site
        self._votes = votes
        self._wait_ms = wait_ms
        self._binding = binding
        self._seen: dict[str, tuple[Vote, int]] = {}
        """The vote of each site that gives one, and since when it is unchanged."""
        self._there: set[str] = set()
        """The sites that answered when they were asked last."""

    def saw(self, voter: str, vote: Vote | None, now: int) -> None:
        """Note what that site's coordinator holds. None: nobody ever served."""
        before = self._seen.get(voter)
        self._there.add(voter)
        if vote is None:
            self._seen.pop(voter, None)
        elif before is None or before[0] != vote:
            self._seen[voter] = vote, now

    def missed(self, voter: str) -> None:
        """Note that the site does not answer. Once it does, the vote it held still counts from when it was seen."""
        self._there.discard(voter)

    def rests(self, voter: str, now: int, ms: int) -> bool:
        """Say whether that vote has been the same for so long."""
        seen = self._seen.get(voter)
        return seen is not None and now - seen[1] >= ms

    def is_quiet(self, voter: str, now: int, ms: int) -> bool:
        """Say whether nobody has renewed that vote for so long, or ever. The serving site may not have got through to
        that site."""
        return voter not in self._seen or self.rests(voter, now, ms)

    def claims(self, serves: str, now: int, *, followed: bool) -> dict[str, Vote]:
        """Return the votes to claim now, by the site that gives them. Every site asks in the same order, so of two that
        try at the same time one is refused by the first site that both ask. Empty: `serves`, the site that is mirrored,
        was heard of lately, or there are too few votes, or no epoch of the history was `followed` here: this site would
        begin another one."""
        if not followed:
            return {}
        wait_ms = self._wait_ms * (LATER + self._rank(serves)) // LATER
        free = {
            voter: self._seen[voter][0]
            for voter in sorted(self._seen.keys() & self._there)
            if self.rests(voter, now, wait_ms) and self._seen[voter][0].site in (serves, self._site)
        }
        if not self._binding:
            return {self._site: free[self._site]} if self._site in free else {}
        return free if self.is_enough(free) else {}

    def _rank(self, serves: str) -> int:
        """Return how many sites try before this one: those with more votes, and of those with as many votes the ones
        before it by name."""
        others = sorted((site for site in self._votes if site != serves), key=lambda site: (-self._votes[site], site))
        return others.index(self._site)

    def is_enough(self, claimed: Collection[str]) -> bool:
        """Say whether this site may serve with these votes."""
        return not self._binding or is_quorum(self._votes, claimed)
