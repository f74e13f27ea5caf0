"""A site that mirrors a partition, and may take it over by votes (Q1, M5); see `halog.core.sites.site_quorum`.

Law: a vote may be claimed when this node has seen it unchanged for the whole wait, twice as long as whoever serves may
count on it, and only by a compare-and-set against what it has seen. So a vote that reached the serving site before does
not count there any more, and one that is renewed at the last moment is not claimed. Claimed is from the site that is
mirrored, and from no other: a site that never had the history takes nothing over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from halog.core.sites.site_quorum import is_quorum

LATER: Final = 2
"""Each site waits such a part of the time longer than the one before it: all partitions go to the same one, and a
transaction over several of them finds them at one site."""


class Vote(NamedTuple):
    """As a coordinator holds it."""

    site: str
    """Whose it is."""
    beat: int
    """Another one with every renewal."""


class TakeoverCandidate:
    """Of this site, for one partition, by one node's clock in ms."""

    def __init__(self, site: str, votes: Mapping[str, int], wait_ms: int, *, binding: bool) -> None:
        """`binding`: more than half of the votes are needed; else this site's own says who is heard of."""
        self._site = site
        self._votes = votes
        self._wait_ms = wait_ms
        self._binding = binding
        self._seen: dict[str, tuple[Vote, int]] = {}
        """By the site that gives it: the vote, and since when it is that one."""
        self._there: set[str] = set()
        """Those that answered when they were asked last."""

    def saw(self, voter: str, vote: Vote | None, now: int) -> None:
        """What that site's coordinator holds. None: nobody ever served."""
        before = self._seen.get(voter)
        self._there.add(voter)
        if vote is None:
            self._seen.pop(voter, None)
        elif before is None or before[0] != vote:
            self._seen[voter] = vote, now

    def missed(self, voter: str) -> None:
        """It does not answer. What it held still counts from when it was seen, once it does."""
        self._there.discard(voter)

    def rests(self, voter: str, now: int, ms: int) -> bool:
        """Has that vote been the same for so long?"""
        seen = self._seen.get(voter)
        return seen is not None and now - seen[1] >= ms

    def is_quiet(self, voter: str, now: int, ms: int) -> bool:
        """Does nobody renew that vote, for so long or ever? Whoever serves may not have got through to that site."""
        return voter not in self._seen or self.rests(voter, now, ms)

    def claims(self, serves: str, now: int) -> dict[str, Vote]:
        """The votes to claim now, by who gives them, in the order in which every site asks: so of two that try at the
        same time one is refused by the first that both ask. Empty: `serves`, the site that is mirrored, was heard of
        lately, or there are too few."""
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
        """How many sites are to try before this one: those with more votes, and of as many those before it by name."""
        others = sorted((site for site in self._votes if site != serves), key=lambda site: (-self._votes[site], site))
        return others.index(self._site)

    def is_enough(self, claimed: Collection[str]) -> bool:
        """May this site serve with these votes?"""
        return not self._binding or is_quorum(self._votes, claimed)
