"""Has a site take over partitions from another site, or hand them over to it, as operators ask (M5).

A site's coordinator says which site is to serve (`PartitionTable.owner`); its log says which one does (F1). If both
sites are there, nothing is lost and nothing parts. The one that serves is told first, and ends its epoch with
everything logged; this site takes over only when it has mirrored that. If the other site does not answer, nobody can
know whether it goes on. Then taking over may split the history, and is done only if the caller says so (F6).

What is written into the tables of the two sites, and what is counted there, is in `halog.metadata.site_ownership`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from halog.core.table.table import PartitionTable
from halog.errors import ClosedError, ConfigError, DeadlineError, HalogError, RefusedError
from halog.metadata import log_holds as retention, site_ownership as claims
from halog.metadata.mirrors import HOLD_MS, standing
from halog.metadata.partition_tables import change_table, its_table, table_of
from halog.metadata.site_lag import lacking
from halog.ports import Coordinator
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.support.adapters import SiteAccess

LOOK_S = 0.1
"""Pause between looks at how far the mirror is."""

AT_ONCE = 16
"""So many fences are under way at the same time. Each has a producer of its own, since one that fails fails all that it
holds."""

HANGS_S = 2.0
"""A log that does not take a fence for so long holds up the fences of no others."""


class SwitchResult(NamedTuple):
    """A `SwitchResult` says what became of one partition."""

    partition: str
    taken_over_from: str
    """The site that served before; "" if this site did."""
    may_fork: bool
    """Is it unknown what the other site has?"""
    lacks: str = ""
    """What the other site acknowledged and may not be here; "" if nothing, as far as this site was told."""


@dataclass
class _SwitchRequest:
    """A `_SwitchRequest` is a partition that another site was asked for."""

    table: PartitionTable
    """This site's table."""
    remote: SiteAccess
    there: PartitionTable
    """The other site's table at the time of the request."""
    claims: int
    """The claims in this site's own table, before anything was given."""
    drawing: CatchUp
    token: str
    """The token of this site's claim."""
    taking: bool = False
    """May it be served here by now?"""


class Switchover:
    """A `Switchover` has one site, called `site`, serve partitions, or give them up."""

    def __init__(
        self,
        coordinator: Coordinator,
        site: str,
        reach: Callable[[str], SiteAccess],
        timeout_s: float,
        pause: Callable[[float], object] = lambda seconds: time.sleep(seconds),
        *,
        level_by: Callable[[Coordinator, SiteAccess, str], CatchUp] = CatchUp,
        at_once: int = AT_ONCE,
        hangs_s: float = HANGS_S,
    ) -> None:
        """Take `reach`, which raises ClosedError if the node closes, and nothing is to be taken over. `pause` waits for
        so long; if it returns something true, all waiting ends. `level_by` makes what brings a partition level;
        `at_once` of them fence at the same time, but for those that have hung for `hangs_s`."""
        self._coordinator = coordinator
        self._site = site
        self._reach = reach
        self._timeout_s = timeout_s
        self._pause = pause
        self._level_by = level_by
        self._at_once = at_once
        self._hangs_s = hangs_s
        self._by_votes = False
        self._asks = True

    def promote(
        self,
        partitions: Iterable[str],
        *,
        may_fork: bool = False,
        by_votes: bool = False,
        asks: bool = True,
        done: Callable[[SwitchResult], None] = lambda switch: None,
    ) -> list[SwitchResult]:
        """Make this site serve these partitions. If the other site is there, it does so once this one has everything;
        if not, at once, given `may_fork`. `by_votes`: this site has the votes it needs, so nobody overrules another
        one's. Without `asks`: only what the other site has given to this one, and still gives. RefusedError,
        DeadlineError: partitions that `done` was called with are taken over; the others are as they were, or given, and
        not taken yet."""
        self._by_votes = by_votes
        self._asks = asks
        tables = [table_of(self._coordinator, name) for name in partitions]
        alone = {t.name for t in tables if t.owner and self._has_parted(t, may_fork)}
        remotes: dict[str, SiteAccess | None] = {}
        try:
            for site in dict.fromkeys(t.owner for t in tables if t.owner and t.name not in alone):
                remotes[site] = self._there(site, may_fork, [t for t in tables if t.owner == site])
            alone |= {t.name for t in tables if self._is_elsewhere(t, remotes.get(t.owner), may_fork)}
            return self._promote(tables, alone, remotes, done, may_fork)
        finally:
            for remote in remotes.values():
                if remote is not None:
                    remote.close()

    def _promote(
        self,
        tables: list[PartitionTable],
        alone: set[str],
        remotes: dict[str, SiteAccess | None],
        done: Callable[[SwitchResult], None],
        may_fork: bool,
    ) -> list[SwitchResult]:
        """Ask for all partitions at once, so that they are away for about as long as one would be."""
        asked: dict[str, _SwitchRequest] = {}
        try:
            for table in tables:
                remote = remotes.get(table.owner) if table.name not in alone else None
                if remote is not None:
                    there = table_of(remote.coordinator, table.name)
                    drawing = self._level_by(self._coordinator, remote, table.name)
                    if not self._asks:
                        claims.check_given(there, self._site, remote.name)
                    counted = table_of(self._coordinator, table.name).claims
                    asked[table.name] = _SwitchRequest(table, remote, there, counted, drawing, claims.token())
                    if self._asks:
                        self._give(remote.coordinator, there, self._site)
            switches = {t.name: self._switch(t, None, done) for t in tables if t.name not in asked}
            switches |= self._take_over(asked, done, may_fork)
        finally:
            for one in asked.values():
                self._give_back(one)
        return [switches[table.name] for table in tables]

    def _take_over(
        self, asked: dict[str, _SwitchRequest], done: Callable[[SwitchResult], None], may_fork: bool
    ) -> dict[str, SwitchResult]:
        """Take each partition over as soon as this site is level with the other one, within one time limit for all. A
        partition that is not level by then, or cannot be, stays as it was; with `may_fork` it is taken over as it is.
        Partitions that are done are removed from `asked`."""
        until, switches, failed = time.monotonic() + self._timeout_s, dict[str, SwitchResult](), dict[str, HalogError]()
        while asked:
            for name, one in list(asked.items()):
                try:
                    level = self._is_level(one, until, may_fork, may_fence=self._may_fence(asked.values()))
                    if level is None:
                        continue
                    switches[name] = self._switch(one.table, one, done, level=level, may_fork=may_fork)
                    one.drawing.close()
                except HalogError as e:
                    failed[name] = e
                    self._give_back(one)
                del asked[name]
            if asked and self._pause(LOOK_S):
                until = 0.0
        if failed:
            raise _all_of(failed)
        return switches

    def _is_level(self, one: _SwitchRequest, until: float, may_fork: bool, *, may_fence: bool) -> bool | None:
        """Return whether this site is level; None: not yet."""
        try:
            if time.monotonic() >= until:
                raise DeadlineError(
                    f"partition {one.table.name} was not level with the other site within {self._timeout_s:g} s "
                    f"({one.drawing.why}); it was not taken over",
                    partition=one.table.name,
                )
            return one.drawing.step(may_fence=may_fence) or None
        except HalogError:
            if not may_fork:
                raise
            return False

    def _may_fence(self, asked: Iterable[_SwitchRequest]) -> bool:
        """May one more fence the other log just now? Those that began long ago hang, and do not count."""
        now = time.monotonic()
        since = (one.drawing.fencing_since for one in asked)
        return sum(at is not None and now - at < self._hangs_s for at in since) < self._at_once

    def _switch(
        self,
        table: PartitionTable,
        asked: _SwitchRequest | None,
        done: Callable[[SwitchResult], None],
        *,
        level: bool = False,
        may_fork: bool = False,
    ) -> SwitchResult:
        """Make this site serve the partition. `level`: it is level with the other site, which was `asked`."""
        if asked is not None and level:
            try:
                self._claim(asked)
            except HalogError:
                if not may_fork:
                    raise
                level = False
        forks = bool(table.owner) and not level
        lacks = lacking(self._coordinator, table.name, table.owner) if forks else ""
        if table.owner:
            self._hold(table)
            self._take(table, asked, alone=forks)
        done(switch := SwitchResult(table.name, table.owner, forks, lacks))
        return switch

    def _claim(self, one: _SwitchRequest) -> None:
        """Write a claim at the other site: from here on nobody else gives the partition back."""
        to, by, own = self._site, one.remote.name, one.token
        change_table(one.remote.coordinator, one.table.name, lambda now: claims.claimed(now, one.there, to, by, own))

    def _give_back(self, one: _SwitchRequest) -> None:
        """Give back a partition that was not taken: it is there as it was."""
        one.drawing.close()
        own = "" if one.taking else one.token
        with suppress(HalogError):
            if table_of(self._coordinator, one.table.name).owner:
                back = partial(claims.given_back, seen=one.there, to=self._site, own=own)
                change_table(one.remote.coordinator, one.table.name, back)

    def demote(self, partitions: Iterable[str], to: str, done: Callable[[str], None] = lambda name: None) -> list[str]:
        """Let site `to` serve these partitions: this site's nodes stop, and mirror it once it has all of this site's
        history. Return those that changed. HalogError: partitions that `done` was called with are given up, the others
        are as they were."""
        changed = [n for n in partitions if not table_of(self._coordinator, n).owner]
        for name in changed:
            change_table(self._coordinator, name, lambda now: claims.demoted(now, to))
            done(name)
        return changed

    def let_go(
        self, partitions: Iterable[str], site: str, done: Callable[[str], None] = lambda name: None
    ) -> list[str]:
        """Let commits go on without `site` until it has caught up. Return those partitions that changed. RefusedError
        for what is not served here. HalogError: partitions that `done` was called with go on, the others are as they
        were."""
        tables = [table_of(self._coordinator, name) for name in partitions]
        if away := next((t for t in tables if t.owner), None):
            raise RefusedError(
                f"partition {away.name} is served by site {away.owner}: its nodes wait, so say it there; nothing was "
                "changed",
                partition=away.name,
                site=away.owner,
            )
        changed = [t.name for t in tables if site not in t.let_go]
        for name in changed:
            change_table(self._coordinator, name, lambda now: claims.without(now, site))
            done(name)
        return changed

    # --- one partition ---

    def _has_parted(self, table: PartitionTable, may_fork: bool) -> bool:
        """Do both sites have what the other one lacks? Then this one goes on alone, or not at all."""
        now = standing(self._coordinator, table.name)
        if now is None or not now.parted or now.site != table.owner:
            return False
        if not may_fork:
            raise RefusedError(
                f"partition {table.name}: {now.error}; nothing was changed. To go on here with this site's own "
                "history, and leave the other one's as it is, say --may-fork",
                partition=table.name,
                site=now.site,
            )
        return True

    def _is_elsewhere(self, table: PartitionTable, remote: SiteAccess | None, may_fork: bool) -> bool:
        """Does a third site serve it by now, or may it? Then the one that this site mirrors cannot hand it over."""
        owner = "" if remote is None else table_of(remote.coordinator, table.name).owner
        if remote is None or owner in ("", self._site) or self._has_given_up(owner, table, remote.name):
            return False
        if not may_fork:
            raise RefusedError(
                f"partition {table.name}: site {remote.name} says that site {owner} serves it, and this site does not "
                "follow that one yet, as it does within seconds once it reaches it; nothing was changed. To go on here "
                "with what was mirrored, say --may-fork",
                partition=table.name,
                site=owner,
            )
        return True

    def _has_given_up(self, site: str, table: PartitionTable, to: str) -> bool:
        """Does that site itself say that it does not serve it, but `to` or this one does? Then somebody's command
        died."""
        try:
            there = self._reach(site)
        except ClosedError:
            raise
        except HalogError:
            return False
        try:
            theirs = its_table(there.coordinator, table)
        finally:
            there.close()
        return theirs is not None and theirs.owner in (to, self._site)

    def _there(self, site: str, may_fork: bool, tables: list[PartitionTable]) -> SiteAccess | None:
        try:
            return self._reach(site)
        except (ConfigError, ClosedError):
            raise
        except HalogError as e:
            if may_fork:
                return None
            raise RefusedError(
                f"site {site} cannot be reached ({e}): whether its nodes go on is not known, and if they do, the "
                f"history splits. {self._what_lacks(site, tables)}Nothing was changed; if they are gone, or may be "
                "overruled later, say --may-fork",
                site=site,
            ) from None

    def _what_lacks(self, site: str, tables: list[PartitionTable]) -> str:
        """Say in one sentence what may be missing of a site that cannot be asked any more, or that its commits waited
        for this one."""
        lacks = [lacking(self._coordinator, t.name, site) for t in tables]
        if not any(lacks):
            return "What it acknowledged is here: its commits waited for this site when last seen. "
        return f"Of {sum(map(bool, lacks))} of {len(tables)} partitions something it acknowledged may not be here. "

    def _hold(self, table: PartitionTable) -> None:
        """Hold this site's log: the other site will need it from here on, and cannot say so yet."""
        until = retention.now_ms() + HOLD_MS
        why = f"for site {table.owner}, which served it"
        retention.hold_the_rest(self._coordinator, table.name, f"site-{table.owner}", 0, why, until)

    def _take(self, table: PartitionTable, asked: _SwitchRequest | None, *, alone: bool) -> None:
        """Write that this site serves. If `alone`, or by votes, since the other site was not heard of, no commit waits
        for that one until it is back. Sites that an operator let go of there have not caught up by this either."""
        there = () if asked is None else asked.there.let_go
        others = tuple(n for n in there if n not in (self._site, table.owner))
        let_go = (table.owner, *others) if alone or self._by_votes else others
        overruled = let_go if alone and not self._by_votes else ()
        counted = claims.ANYHOW if alone or asked is None else asked.claims
        if asked is not None:
            asked.taking = True
        change_table(
            self._coordinator, table.name, lambda now: claims.taken(now, table.owner, counted, let_go, overruled)
        )

    @staticmethod
    def _give(coordinator: Coordinator, seen: PartitionTable, to: str) -> None:
        """Give the partition to site `to`, unless somebody else has decided meanwhile who is to serve it."""
        change_table(coordinator, seen.name, lambda now: claims.given(now, seen, to))


def _all_of(failed: Mapping[str, HalogError]) -> HalogError:
    """Return the first error, with the names of the other partitions."""
    error, others = next(iter(failed.values())), list(failed)[1:]
    if not others:
        return error
    why = f"{error.message}. {len(others)} more were not taken over: {', '.join(others)}"
    return type(error)(why, **{**error.evidence, "partitions": list(failed)})
