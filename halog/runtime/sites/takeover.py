"""Lets sites go on by themselves (Q1, M5): a site takes over from one that nobody hears of any more, and a site that
was taken over from by votes stops.

The node that mirrors a partition watches the votes for it (`halog.core.sites.takeover_candidate`). With enough of them
it does what `halog site promote --may-fork` does. If the votes bind, the site that served has refused commits since
long before. Once it sees which site has the votes, and that one says that it serves, it gives the partition up as
`halog site demote` does. Then its log is compared and given away, or both have gone on (F3). This module only decides
when to look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from halog.core.sites.takeover_candidate import TakeoverCandidate, Vote
from halog.core.table.tell import Tell
from halog.errors import HalogError, UnreachableError
from halog.events import SITE_GIVEN_UP, SITE_TAKEN_OVER
from halog.metadata.mirrors import standing
from halog.metadata.partition_tables import change_table, serves
from halog.metadata.site_ownership import given_up
from halog.ports import Coordinator, UnknownResult
from halog.runtime.sites.switchover import Switchover, SwitchResult
from halog.runtime.sites.voting import SiteContact, SiteContacts, SiteVote, held, is_behind, write
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.support.clock import monotonic_ms

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy
    from halog.runtime.sites.mirror_assignment import MirrorDuties

logger = logging.getLogger("halog.mirror")

LOOKS = 20
"""So many looks happen in the time after which a site takes over: it is at most a twentieth late."""

EARLY = 4
"""Other sites are asked for their votes once this one's was not renewed for such a part of that time, or never. A site
that has not answered for the rest of it counts as out of reach."""


TOGETHER = 8
"""For such a part of the time, a partition that is due waits for others that are about to be: votes that are renewed so
often end as far apart. Then all are taken over together, before another site tries."""


class TakeoverRule(NamedTuple):
    """Says how a policy's partitions are taken over."""

    after_ms: int
    binding: bool
    """Does it take more than half of the votes?"""
    may: bool = True
    """May this site take over by votes? A site that has none only follows. If commits wait for the logs of some sites
    (`sync_sites`), only one of those has all that was acknowledged."""


class Takeovers:
    """A `Takeovers` is one host's. It has one thread; other sites are asked on the threads of their contacts."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorDuties,
        desks: SiteContacts,
        reach: Callable[[str], SiteAccess],
        votes: Mapping[str, int],
        policies: Mapping[str, TakeoverRule],
        rules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take `rules`: by policy, what all sites must say alike (`SiteVote.rule`)."""
        self._rules = rules
        self._differs = dict[str, str]()
        self._host = host
        self._assignments = assignments
        self._desks = desks
        self._reach = reach
        self._votes = votes
        self._policies = policies
        self._candidates: dict[str, TakeoverCandidate] = {}
        self._asked: set[tuple[str, str]] = set()
        """By site and partition: the votes that are being looked at there. A site that is slow is not asked twice."""
        self._due_since = 0
        """Since when there is something to take over; 0: there is nothing."""
        self._pause_s = min(p.after_ms for p in policies.values()) / 1000 / LOOKS

    def turn(self) -> None:
        """Look once at all copies."""
        copies = [c for c in list(self._host.copies.values()) if c.core.state.table.policy in self._policies]
        mine = [c for c in copies if self._policies[c.core.state.table.policy].may and self._assignments.is_wanted(c)]
        for name in self._candidates.keys() - {c.name for c in mine}:
            del self._candidates[name]
        for desk in self._desks.all.values():
            desk.keep()
        for copy in mine:
            self._watch(copy)
        due = [c for c in mine if self._claims(c)]
        if due and self._are_all(due, mine):
            self._take_over(due)
            due = []
        self._due_since = (self._due_since or monotonic_ms()) if due else 0
        for copy in copies:
            self._give_up(copy)
        self._host.pause(self._pause_s)

    # --- one that mirrors ---

    def _watch(self, copy: Copy) -> None:
        """Look at the votes of a copy: at this site's each time; at those of others once it rests, each on its
        contact's threads."""
        policy = self._policies[copy.core.state.table.policy]
        candidate = self._candidates.get(copy.name)
        if candidate is None:
            candidate = TakeoverCandidate(self._host.site, self._votes, policy.after_ms, binding=policy.binding)
            self._candidates[copy.name] = candidate
        self._look(self._desks.own, copy, candidate)
        if not candidate.is_quiet(self._host.site, monotonic_ms(), policy.after_ms // EARLY):
            return
        for desk in self._desks.all.values():
            if desk is self._desks.own or not (policy.binding or desk.site == copy.core.state.table.owner):
                continue  # the owner is asked, too, whether it answers at all
            if (desk.site, copy.name) not in self._asked:
                self._asked.add((desk.site, copy.name))
                desk.submit(partial(self._look_there, desk, copy, candidate))
            elif desk.silent_s * 1000 >= policy.after_ms // EARLY:
                candidate.missed(desk.site)

    def _look_there(self, desk: SiteContact, copy: Copy, candidate: TakeoverCandidate) -> None:
        try:
            self._look(desk, copy, candidate)
        finally:
            self._asked.discard((desk.site, copy.name))

    def _look(self, desk: SiteContact, copy: Copy, candidate: TakeoverCandidate) -> None:
        try:
            now, _ = desk.ask(lambda coordinator: held(coordinator, copy.name))
        except (HalogError, UnknownResult) as e:
            logger.debug("partition %s: the vote of site %s is not known: %s", copy.name, desk.site, e)
            candidate.missed(desk.site)
            return
        if now is not None and self._is_other(copy, now):
            candidate.missed(desk.site)
        else:
            candidate.saw(desk.site, None if now is None else now.vote, monotonic_ms())

    def _is_other(self, copy: Copy, now: SiteVote) -> bool:
        """Was the vote written by another rule than this site's? Then it cannot be taken: both sites could have more
        than half of what each takes for all."""
        own = self._rules.get(copy.core.state.table.policy, "")
        if now.rule in ("", own):
            return False
        if self._differs.get(copy.name) != now.rule:
            self._differs[copy.name] = now.rule
            logger.error(
                "partition %s: this site takes nothing over: its rule is (%s), that of site %s is (%s); all sites must "
                "have the same takeover, takeover_after_ms and votes",
                copy.name,
                own,
                now.site,
                now.rule,
            )
        return True

    def _claims(self, copy: Copy) -> dict[str, Vote]:
        """Return the votes to claim; empty if the partition is not to be taken over."""
        state = copy.core.state
        followed = bool(state.chain.state.lineage)
        return self._candidates[copy.name].claims(state.table.owner, monotonic_ms(), followed=followed)

    def _are_all(self, due: list[Copy], mine: list[Copy]) -> bool:
        """Is no other partition about to be due, or has this one waited long enough for the others?"""
        now, named = monotonic_ms(), {c.name for c in due}
        for copy in mine:
            after_ms, candidate = self._policies[copy.core.state.table.policy].after_ms, self._candidates[copy.name]
            if copy.name not in named and candidate.rests(self._host.site, now, after_ms // EARLY):
                return bool(self._due_since) and now - self._due_since >= after_ms // TOGETHER
        return True

    def _take_over(self, due: list[Copy]) -> None:
        """Take all over at once: a site that served one of them mostly served them all."""
        claimed = [copy for copy in due if not self._has_parted(copy) and self._claim(copy)]
        by_name = {copy.name: copy for copy in claimed}
        before = {copy.name: copy.core.state.table.owner for copy in claimed}

        def done(switch: SwitchResult) -> None:
            more = {"site": switch.taken_over_from, "lacks": switch.lacks}
            what = "nobody hears of it"
            self._host.telling.told(by_name[switch.partition], Tell(SITE_TAKEN_OVER, "", what, more))

        timeout_s = max((self._policies[c.core.state.table.policy].after_ms for c in claimed), default=0) / 1000
        reached = partial(self._reached, timeout_s * (EARLY - 1) / EARLY)
        switching = Switchover(self._host.coordinator, self._host.site, reached, timeout_s)
        if claimed:
            logger.warning("partitions %s are taken over from site %s", list(by_name), sorted(set(before.values())))
            try:
                switching.promote(list(by_name), may_fork=True, by_votes=True, done=done)
            except (HalogError, UnknownResult) as e:
                logger.warning("partitions %s are not taken over yet: %s", list(by_name), e)

    def _has_served(self, desk: SiteContact, there: Coordinator, copy: Copy) -> bool:
        leading, (now, _) = copy.core.leading, held(there, copy.name)
        if leading is None or now is None or now.under is None or not now.site == now.under.site == desk.site:
            return False
        return not is_behind(copy.core.state.chain.state, now.under)

    def _has_parted(self, copy: Copy) -> bool:
        """Do both sites have what the other one lacks? Then an operator decides who goes on."""
        now = standing(self._host.coordinator, copy.name)
        return now is not None and now.parted

    def _reached(self, patience_s: float, site: str) -> SiteAccess:
        """Reach a site. It is not waited for if it was not reached a moment ago, or has been silent for so long since
        it was asked."""
        desk = self._desks.all.get(site)
        if desk is not None and (desk.is_out_of_reach or not desk.answers(patience_s)):
            raise UnreachableError(f"site {site} cannot be reached", site=site)
        return self._reach(site)

    def _claim(self, copy: Copy) -> bool:
        """Take the votes, each if it is still as it was seen. If they are too few, give them back."""
        candidate, owner = self._candidates[copy.name], copy.core.state.table.owner
        claimed = []
        for site, seen in self._claims(copy).items():
            try:
                if self._desks.all[site].ask(lambda there, seen=seen: self._take(there, copy, seen)):  # type: ignore[misc]
                    claimed.append(site)
            except (HalogError, UnknownResult) as e:  # what may have been written does not count
                logger.info("partition %s: the vote of site %s could not be taken: %s", copy.name, site, e)
            if site not in claimed:
                break  # of several sites that try, the first one to ask has it
        if candidate.is_enough(claimed):
            return True
        for site in claimed:
            with suppress(HalogError, UnknownResult):
                self._desks.all[site].ask(lambda there: self._give_back(there, copy, owner))
        return False

    def _take(self, there: Coordinator, copy: Copy, seen: Vote) -> bool:
        """Take one vote, if it is still as it was seen."""
        now, version = held(there, copy.name)
        if now is None or now.vote != seen:
            return False
        rule = self._rules.get(copy.core.state.table.policy, "")
        write(there, copy.name, self._host.site, self._host.me.node, now, version, rule=rule)
        return True

    def _give_back(self, there: Coordinator, copy: Copy, owner: str) -> None:
        now, version = held(there, copy.name)
        if now is not None and now.site == self._host.site:
            write(there, copy.name, owner, self._host.me.node, now, version, rule=now.rule)

    # --- one that was taken over from ---

    def _give_up(self, copy: Copy) -> None:
        leading = copy.core.leading
        quorum = None if leading is None else leading.sites.quorum
        holders = () if quorum is None or quorum.held else quorum.holders
        desk = next((d for d in map(self._desks.all.get, holders) if d is not None and self._serves(d, copy)), None)
        if desk is not None:
            self._host.telling.told(copy, Tell(SITE_GIVEN_UP, "", "it has taken over by votes", {"site": desk.site}))
            change_table(self._host.coordinator, copy.name, lambda now: now if now.owner else given_up(now, desk.site))

    def _serves(self, desk: SiteContact, copy: Copy) -> bool:
        """Does that site serve the partition? Or has it served in a history that this one does not go on from, and
        named this site again since? Then what it answered must be brought here first."""
        try:
            return desk.ask(lambda there: serves(there, copy.core.state.table) or self._has_served(desk, there, copy))
        except (HalogError, UnknownResult):
            return False
