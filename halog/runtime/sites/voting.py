"""Asks for the votes of sites for partitions, which their coordinators hold (Q1, M5); see
`halog.core.sites.site_quorum`.

    site_votes/<partition>   JSON: `SiteVote`, in the coordinator of each site

A vote belongs to the site that it names. That site's active node renews it. It passes to another site by
compare-and-set: it is claimed by a site that takes over (`halog.runtime.sites.takeover`), or by one that serves
already, as the vote's owner says itself. A line that is cut right after a planned switch leaves votes with a site that
serves no more and cannot say so. One that is cut right after a claim leaves votes that were never counted. These pass,
too, once nobody renews them: what was answered by them is in this site's history, which goes on from the epoch in which
they were renewed last.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from halog.core import effects as fx, events as ev, tolerant
from halog.core.ids import EpochId
from halog.core.sites.takeover_candidate import Vote
from halog.core.tolerant import TolerantDecoder, TolerantStruct
from halog.errors import ClosedError, CoordinatorError, HalogError, UnreachableError, VersionError
from halog.metadata import cas
from halog.metadata.partition_tables import its_table
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, UnknownResult
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.core.log.chain import ChainState
    from halog.runtime.host.services import NodeContext
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

THREADS = 16
"""Each site has so many threads: over a line with 50 ms a node renews some hundred votes a second."""

AGAIN_S = 1.0
"""Pause between attempts to reach a site; until then a question fails at once."""

LOOK_S = 0.01
"""Pause between looks whether a site has answered by now."""

TRIES = 3
"""A renewal is tried so often: another node of this site may have been active a moment ago, and have written since."""


class SiteVote(TolerantStruct, frozen=True):
    """A `SiteVote` is a vote, as the coordinator holds it."""

    site: str
    """The site that the vote belongs to."""
    by: str
    """The node that wrote it."""
    beat: int
    """Counts the writes."""
    epoch: EpochId | None = None
    """The latest epoch of its site in which it was renewed; None: it was claimed, or given back, and not renewed
    since."""
    rule: str = ""
    """The rule by which it was written: votes and times, as the configuration of its site has them. Sites with
    different rules could each have more than half."""
    last: EpochId | None = None
    """If its site has not renewed it: the epoch in which an earlier owner renewed it last; None if none did."""

    @property
    def under(self) -> EpochId | None:
        """Return the epoch in which it was renewed last, by whichever site had it: nothing was answered by it behind
        that."""
        return self.epoch or self.last

    @property
    def vote(self) -> Vote:
        """Return the vote as a candidate sees it."""
        return Vote(self.site, self.beat)


CoordinatorAnswer = TypeVar("CoordinatorAnswer")
"""What a coordinator is asked for."""

_VOTE = ZnodeFormat(TolerantDecoder(SiteVote).decode, "is no vote")


def held(coordinator: Coordinator, partition: str) -> tuple[SiteVote | None, int]:
    """Return the vote for a partition and the znode's version; (None, -1) if there is none. CoordinatorError for what
    cannot be read: nobody may overwrite it."""
    return _VOTE.read_version(coordinator, _path(partition), partition=partition)


def write(
    coordinator: Coordinator,
    partition: str,
    site: str,
    by: str,
    before: SiteVote | None,
    version: int,
    epoch: EpochId | None = None,
    rule: str = "",
) -> tuple[SiteVote, int]:
    """Renew the vote of `site` in `epoch`, or give it to that site, which has not renewed it yet. Return it as it is
    now, and its version. VersionError: somebody else has written."""
    if before is not None and before.site == site and before.epoch is not None:
        epoch = max(before.epoch, epoch or before.epoch)  # a node that was replaced may not know it yet
    last = before.under if before is not None and epoch is None else None
    now = SiteVote(site, by, 0 if before is None else before.beat + 1, epoch, rule, last)
    if before is not None:
        now = msgspec.structs.replace(now, unknown=before.unknown)
    return now, cas.write(coordinator, _path(partition), tolerant.encode(now), version)


def rule_of(takeover: str, after_ms: int, votes: Mapping[str, int]) -> str:
    """Return the rule that all sites must say alike."""
    return f"{takeover} {after_ms} ms, " + ", ".join(f"{site}: {votes[site]}" for site in sorted(votes))


def _path(partition: str) -> str:
    return f"site_votes/{partition}"


def is_behind(history: ChainState, epoch: EpochId | None) -> bool:
    """Does this history go on from that epoch, or was that one's merged into it?"""
    merged = (branch.lineage for joined in history.joined for branch in joined.branches)
    return any(epoch == opened for lineage in (history.lineage, *merged) for opened, _ in lineage)


class SiteContact:
    """A `SiteContact` asks one site's coordinator, on a few threads. This site's own coordinator has one, too."""

    def __init__(
        self, host: NodeContext, site: str, reach: Callable[[str], SiteAccess] | None, *, again_s: float = AGAIN_S
    ) -> None:
        self.site = site
        self._again_s = again_s
        self._host = host
        self._reach = reach
        self._remote: SiteAccess | None = None
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._asking = threading.Lock()
        self._owes_since = 0.0
        """Since when a question has had no answer, and no later one either; 0: none waits."""
        self._answers = 0
        """Counts the answers that have come, and the questions that failed."""
        self._refusals = set[str]()
        """What the site said instead of an answer, logged once each: a vote that cannot be read is nobody's."""
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"halog-votes-{site}")

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` on a thread that may wait for that site; not at all once the node closes."""
        with suppress(RuntimeError):
            self._pool.submit(work)

    def ask(self, what: Callable[[Coordinator], CoordinatorAnswer]) -> CoordinatorAnswer:
        """Return what that site's coordinator says. UnreachableError at once if it was not reached a moment ago. If it
        does not answer, it is connected anew. A refusal, or an entry that cannot be read, is an answer."""
        remote: SiteAccess | None = None
        with self._asking:
            self._owes_since = self._owes_since or time.monotonic()
        try:
            remote = None if self._reach is None else self._reached()
            return what(self._host.coordinator if remote is None else remote.coordinator)
        except CoordinatorError as e:
            if type(e) is CoordinatorError and e.message not in self._refusals:
                self._refusals.add(e.message)
                logger.warning("site %s: %s", self.site, e)
            raise
        except (HalogError, UnknownResult):
            self._lost(remote)
            raise
        finally:
            with self._asking:
                self._owes_since = 0.0
                self._answers += 1

    @property
    def silent_s(self) -> float:
        """Return how long a question has had no answer."""
        since = self._owes_since
        return time.monotonic() - since if since else 0.0

    def answers(self, patience_s: float) -> bool:
        """Return whether that site answers a question before one has been open for so long. Where a line swallows what
        is sent, a connection made anew takes longer to find that out. ClosedError once the node closes."""
        before = self._answers
        self.submit(self._probe)
        since = self._owes_since or time.monotonic()
        while self._answers == before:
            if time.monotonic() - since >= patience_s:
                return False
            if self._host.pause(LOOK_S):
                raise ClosedError("the node closes")
        return not self.is_out_of_reach

    def _probe(self) -> None:
        """Ask a question whose answer is of no interest."""
        with suppress(HalogError, UnknownResult):
            self.ask(lambda coordinator: coordinator.get("site_votes"))

    def keep(self) -> None:
        """Connect before it is needed: a node that becomes active asks at once, and commits wait for that."""
        if self.is_out_of_reach and not self._lock.locked() and time.monotonic() >= self._not_before:
            self.submit(self._try)

    def _try(self) -> None:
        with suppress(HalogError):
            self._reached()

    def _reached(self) -> SiteAccess:
        """Return the connection to the other site, which is kept."""
        assert self._reach is not None, self.site
        with self._lock:
            if self._remote is None:
                if time.monotonic() < self._not_before:
                    raise UnreachableError(f"site {self.site} cannot be reached", site=self.site)
                try:
                    self._remote = self._reach(self.site)
                except HalogError:
                    self._not_before = time.monotonic() + self._again_s
                    raise
            return self._remote

    @property
    def is_out_of_reach(self) -> bool:
        """Was there no answer the last time?"""
        return self._reach is not None and self._remote is None

    def _lost(self, remote: SiteAccess | None) -> None:
        """Close the connection, unless another one was made since: of several that ask, each meets the failure."""
        with self._lock:
            if remote is None or remote is not self._remote:
                return
            self._remote = None
            self._not_before = time.monotonic() + self._again_s
        remote.close()

    def close(self) -> None:
        """Ask no more. A thread that outlived the node's patience and still asks reaches nothing."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._lost(self._remote)
        self._not_before = math.inf


class SiteContacts:
    """Holds the contacts of all sites, this one included."""

    def __init__(self, host: NodeContext, reach: Callable[[str], SiteAccess], others: Collection[str]) -> None:
        self.own = SiteContact(host, host.site, None)
        self.all = {host.site: self.own, **{site: SiteContact(host, site, reach) for site in others}}

    def close(self) -> None:
        """Close the contacts, once no thread asks any more."""
        for desk in self.all.values():
            desk.close()


class SiteVoting:
    """Asks for the votes of what this node serves. The answers go to the core, which counts them."""

    def __init__(
        self,
        host: NodeContext,
        desks: SiteContacts,
        after_ms: Mapping[str, int],
        rules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take `after_ms`: by policy, how long a vote that nobody renews stays its owner's; `rules`: see
        `SiteVote.rule`."""
        self._host = host
        self._desks = desks
        self._after_ms = after_ms
        self._rules = rules
        self._others: dict[tuple[str, str], tuple[SiteVote, float]] = {}
        """By voter and partition: votes that belong to other sites, and since when they are as they are."""
        self._mine: dict[tuple[str, str], tuple[SiteVote, int, float]] = {}
        """By voter and partition: votes that this node has renewed, with their versions. It need not read what it
        wrote."""
        self._last: dict[tuple[str, str], int] = {}
        """By voter and partition: the last question."""

    def ask(self, copy: Copy, effect: fx.AskVote) -> None:
        """Ask for a vote; the core counts from before this call."""
        desk = self._desks.all[effect.site]
        self._last[effect.site, copy.name] = effect.round
        desk.submit(lambda: self._ask(desk, copy, effect))

    def _ask(self, desk: SiteContact, copy: Copy, effect: fx.AskVote) -> None:
        """Ask, unless it was asked for again meanwhile: the answer would be too late, and make others late."""
        if self._last[desk.site, copy.name] != effect.round:
            return
        owner = ""
        try:
            owner = desk.ask(lambda coordinator: self._renewed(desk.site, coordinator, copy))
        except (HalogError, UnknownResult) as e:
            logger.debug("partition %s: no vote of site %s: %s", copy.name, desk.site, e)
        copy.post(ev.VoteAnswered(effect.round, effect.site, owner))

    def _renewed(self, voter: str, coordinator: Coordinator, copy: Copy) -> str:
        """Renew the vote, and return whose it is now; "" if that could not be found out."""
        key, me = (voter, copy.name), self._host.me.node
        for _ in range(TRIES):
            now, version = self._known(key, copy) or held(coordinator, copy.name)
            if now is not None and now.site != self._host.site and not self._may_take(key, copy, now):
                return now.site
            leading = copy.core.leading
            epoch = None if leading is None else leading.epoch
            try:
                rule = self._rules.get(copy.core.state.table.policy, "")
                written = write(coordinator, copy.name, self._host.site, me, now, version, epoch, rule)
                self._mine[key] = (*written, time.monotonic())
            except VersionError:
                continue
            if self._others.pop(key, None) is not None and now is not None:
                logger.info("partition %s: the vote of site %s was site %s's", copy.name, voter, now.site)
            return self._host.site
        return ""

    def _known(self, key: tuple[str, str], copy: Copy) -> tuple[SiteVote, int] | None:
        """Return what this node wrote a moment ago, once: if it does not hold any more, it is read."""
        now, version, at = self._mine.pop(key, (None, 0, 0.0))
        fresh = (time.monotonic() - at) * 1000 < self._after_ms[copy.core.state.table.policy]
        return (now, version) if now is not None and fresh else None

    def _may_take(self, key: tuple[str, str], copy: Copy, now: SiteVote) -> bool:
        """May this site, which serves, take another site's vote? It may in these cases. An operator has overruled that
        site. Nobody renews the vote, and this site has the quorum anyway, or goes on from where the vote was renewed
        last, by whoever had it then. Or its owner says itself that this site serves, and nobody has counted the vote in
        a history that this one does not go on from: what was answered there would be lost."""
        seen = self._others.get(key)
        if seen is None or seen[0] != now:
            self._others[key] = seen = now, time.monotonic()
        leading, state = copy.core.leading, copy.core.state
        if leading is None:
            return False
        rests = (time.monotonic() - seen[1]) * 1000 >= self._after_ms[state.table.policy]
        if now.site in state.table.overruled:
            return True
        if rests and (leading.sites.quorum.is_sure or is_behind(state.chain.state, now.under)):
            return True
        counted = now.under is not None and not is_behind(state.chain.state, now.under)
        return not counted and self._is_given(copy, now.site)

    def _is_given(self, copy: Copy, owner: str) -> bool:
        desk = self._desks.all.get(owner)
        if desk is None or owner == self._host.site:
            return False
        try:
            theirs = desk.ask(lambda coordinator: its_table(coordinator, copy.core.state.table))
        except (HalogError, UnknownResult):
            return False
        return theirs is not None and theirs.owner == self._host.site
