"""Which site serves a partition: taking over from another site, and handing over to it, as operators ask (M5).

The theory: a site's coordinator says which site is to serve (`PartitionTable.owner`), its log which one does (F1). With
both sites there nothing is lost and nothing parts: the one that serves is told first, ends its epoch with everything
logged, and only when this site has mirrored that does it take over. Where the other site does not answer nobody can
know whether it goes on: taking over may split the history, and is done only for somebody who says so (F6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from halog.core.table import PartitionTable
from halog.errors import ConfigError, DeadlineError, HalogError, RefusedError
from halog.ports import Coordinator
from halog.runtime import retention
from halog.runtime.arrivals import FRESH_S, awaited
from halog.runtime.drawing_level import DrawingLevel
from halog.runtime.groups import change_table
from halog.runtime.outside import Remote
from halog.runtime.sites import HOLD_MS, its_table, standing, table_of

LOOK_S = 0.1
"""Between looks at how far the mirror is."""

OLD_MS = int(3 * FRESH_S * 1000)
"""That commits wait for this site is asked every few seconds: what was so that long before the mirror's last word says
nothing of then."""

AT_ONCE = 16
"""Fences under way at the same time: each has a producer of its own, since one that fails fails all that it holds."""

HANGS_S = 2.0
"""A log that does not take a fence for so long holds up the fences of no others."""


class Switch(NamedTuple):
    """What became of one partition."""

    partition: str
    taken_over_from: str
    """"" if this site served it before."""
    may_fork: bool
    """Nobody knows what the other site has."""
    lacks: str = ""
    """What the other site acknowledged and may not be here; "": nothing, as far as this site was told."""


class _Asked(NamedTuple):
    """A partition that another site was asked for."""

    table: PartitionTable
    """As this site has it."""
    remote: Remote
    there: PartitionTable
    """As that site had it."""
    drawing: DrawingLevel


class Switching:
    """For one site, called `site`."""

    def __init__(self, coordinator: Coordinator, site: str, reach: Callable[[str], Remote], timeout_s: float) -> None:
        self._coordinator, self._site, self._reach, self._timeout_s = coordinator, site, reach, timeout_s
        self._by_votes = False

    def promote(
        self,
        partitions: Iterable[str],
        *,
        may_fork: bool = False,
        by_votes: bool = False,
        done: Callable[[Switch], None] = lambda switch: None,
    ) -> list[Switch]:
        """Make this site serve these partitions. With the other site there: once this one has everything. Without:
        at once, if `may_fork`; `by_votes`: this site has those that it needs, so nobody overrules another one's.
        RefusedError, DeadlineError: those told to `done` are taken over, the others are as they
        were."""
        self._by_votes = by_votes
        tables = [table_of(self._coordinator, name) for name in partitions]
        alone = {t.name for t in tables if t.owner and self._has_parted(t, may_fork)}
        remotes: dict[str, Remote | None] = {}
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
        remotes: dict[str, Remote | None],
        done: Callable[[Switch], None],
        may_fork: bool,
    ) -> list[Switch]:
        """All are asked for at once, so that they are away for about as long as one would be."""
        asked: dict[str, _Asked] = {}
        try:
            for table in tables:
                remote = remotes.get(table.owner) if table.name not in alone else None
                if remote is not None:
                    there = table_of(remote.coordinator, table.name)
                    drawing = DrawingLevel(self._coordinator, remote, table.name)
                    asked[table.name] = _Asked(table, remote, there, drawing)
                    self._give(remote.coordinator, table.name, self._site)
            switches = {t.name: self._switch(t, None, done) for t in tables if t.name not in asked}
            switches |= self._take_over(asked, done, may_fork)
        finally:
            for one in asked.values():
                self._give_back(one)
        return [switches[table.name] for table in tables]

    def _take_over(self, asked: dict[str, _Asked], done: Callable[[Switch], None], may_fork: bool) -> dict[str, Switch]:
        """Each as soon as this site is level with the other one, within one time for all of them. What is not by then,
        or cannot be, is as it was; or, if it `may_fork`, taken over as it is. Removes from `asked` what is dealt
        with."""
        until, switches, failed = time.monotonic() + self._timeout_s, dict[str, Switch](), dict[str, HalogError]()
        while asked:
            for name, one in list(asked.items()):
                try:
                    level = self._is_level(one, until, may_fork, may_fence=_fencing(asked.values()) < AT_ONCE)
                    if level is None:
                        continue
                    switches[name] = self._switch(one.table, one, done, level=level, may_fork=may_fork)
                    one.drawing.close()
                except HalogError as e:
                    failed[name] = e
                    self._give_back(one)
                del asked[name]
            if asked:
                time.sleep(LOOK_S)
        if failed:
            raise _all_of(failed)
        return switches

    def _is_level(self, one: _Asked, until: float, may_fork: bool, *, may_fence: bool) -> bool | None:
        """None: not yet."""
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

    def _switch(
        self,
        table: PartitionTable,
        asked: _Asked | None,
        done: Callable[[Switch], None],
        *,
        level: bool = False,
        may_fork: bool = False,
    ) -> Switch:
        """Serve it here. `level`: with the other site, which was `asked`."""
        forks = bool(table.owner) and not level
        lacks = lacking(self._coordinator, table.name, table.owner) if forks else ""
        if table.owner:
            self._hold(table)
            if asked is not None and level and not may_fork:
                self._check_still_given(table, asked.remote)
            self._take(table, None if asked is None else asked.there, alone=forks)
        done(switch := Switch(table.name, table.owner, forks, lacks))
        return switch

    def _check_still_given(self, table: PartitionTable, remote: Remote) -> None:
        """Another operator may have asked for the contrary meanwhile, and have got it."""
        owner = table_of(remote.coordinator, table.name).owner
        if owner != self._site:
            raise RefusedError(
                f"partition {table.name}: somebody else has made site {owner or remote.name} serve it meanwhile; "
                "it was not taken over",
                partition=table.name,
                site=owner or remote.name,
            )

    def _give_back(self, one: _Asked) -> None:
        """It was not to be: as it was there. Unless somebody else has made this site serve it meanwhile, or has said
        who is to serve over there."""

        def as_before(now: PartitionTable) -> PartitionTable:
            return msgspec.structs.replace(now, owner=one.there.owner) if now.owner == self._site else now

        one.drawing.close()
        with suppress(HalogError):
            if table_of(self._coordinator, one.table.name).owner:
                change_table(one.remote.coordinator, one.table.name, as_before)

    def demote(self, partitions: Iterable[str], to: str) -> list[str]:
        """Let site `to` serve them: this site's nodes stop, and mirror it once it has all of this site's history.
        Those that changed."""
        changed = []
        for name in partitions:
            if not table_of(self._coordinator, name).owner:
                self._give(self._coordinator, name, to)
                changed.append(name)
        return changed

    def let_go(self, partitions: Iterable[str], site: str) -> list[str]:
        """Let commits go on without `site` until it has caught up. Those that changed. RefusedError for what is not
        served here."""
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
            change_table(self._coordinator, name, lambda now: _without(now, site))
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

    def _is_elsewhere(self, table: PartitionTable, remote: Remote | None, may_fork: bool) -> bool:
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
        """Does that site say itself that it does not serve it, but `to` does, or this one? Somebody's command died."""
        try:
            there = self._reach(site)
        except HalogError:
            return False
        try:
            theirs = its_table(there.coordinator, table)
        finally:
            there.close()
        return theirs is not None and theirs.owner in (to, self._site)

    def _there(self, site: str, may_fork: bool, tables: list[PartitionTable]) -> Remote | None:
        try:
            return self._reach(site)
        except ConfigError:
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
        """Of a site that cannot be asked any more, in one sentence; nothing where no commit was ever to wait."""
        lacks = [lacking(self._coordinator, t.name, site) for t in tables]
        if not any(lacks):
            return "What it acknowledged is here: its commits waited for this site when last seen. "
        return f"Of {sum(map(bool, lacks))} of {len(tables)} partitions something it acknowledged may not be here. "

    def _hold(self, table: PartitionTable) -> None:
        """The other site will need this log from here on, and cannot say so yet."""
        until = retention.now_ms() + HOLD_MS
        why = f"for site {table.owner}, which served it"
        retention.hold_the_rest(self._coordinator, table.name, f"site-{table.owner}", 0, why, until)

    def _take(self, table: PartitionTable, there: PartitionTable | None, *, alone: bool) -> None:
        """Serve it here. `alone`, or by votes, since nobody heard of the other site: no commit is to wait for that one
        until it is back. `there`: as it had it; whom an operator let go of there has not caught up by this either."""
        others = () if there is None else tuple(n for n in there.let_go if n not in (self._site, table.owner))
        let_go = (table.owner, *others) if alone or self._by_votes else others

        def taken(now: PartitionTable) -> PartitionTable:
            overruled = let_go if alone and not self._by_votes else ()
            return msgspec.structs.replace(now, owner="", synced=(), let_go=let_go, overruled=overruled)

        change_table(self._coordinator, table.name, taken)

    @staticmethod
    def _give(coordinator: Coordinator, partition: str, to: str) -> None:
        change_table(coordinator, partition, lambda now: msgspec.structs.replace(now, owner=to))


def _fencing(asked: Iterable[_Asked]) -> int:
    """How many of them fence the other log just now; those that have begun long ago hang."""
    now = time.monotonic()
    since = (one.drawing.fencing_since for one in asked)
    return sum(at is not None and now - at < HANGS_S for at in since)


def _all_of(failed: Mapping[str, HalogError]) -> HalogError:
    """The first one, and the names of the others."""
    error, others = next(iter(failed.values())), list(failed)[1:]
    if not others:
        return error
    why = f"{error.message}. {len(others)} more were not taken over: {', '.join(others)}"
    return type(error)(why, **{**error.evidence, "partitions": list(failed)})


def _without(table: PartitionTable, site: str) -> PartitionTable:
    """In one step: nobody may read that the site has everything once commits do not wait for it."""
    synced = tuple(n for n in table.synced if n != site)
    let_go = table.let_go if site in table.let_go else (*table.let_go, site)
    overruled = table.overruled if site in table.overruled else (*table.overruled, site)
    return msgspec.structs.replace(table, synced=synced, let_go=let_go, overruled=overruled)


def lacking(coordinator: Coordinator, partition: str, site: str) -> str:
    """What may be missing here of what `site` has acknowledged, if it is not asked; "": nothing, unless an operator
    there let go of this site since it was seen last, seconds before the mirror's last word, or after it."""
    known, now = awaited(coordinator, partition, site), standing(coordinator, partition)
    now = now if now is not None and now.site == site else None
    known = known if known is not None and known.waits else None
    if now is not None and now.parted:  # whatever its commits waited for before
        return "what it has done since both went on"
    if known is not None and not known.may_drop and (now is None or now.at_ms - known.at_ms <= OLD_MS):
        return ""
    if now is None:
        return "nothing was ever mirrored"
    after = f"{_time(now.at_ms)}{f', and {now.behind} entries before that' if now.behind else ''}"
    if known is None:
        return f"what was acknowledged after {after}"
    if known.may_drop:
        return f"what was acknowledged once commits went on without this site, after {after}"
    return (
        f"what was acknowledged after {after}, if commits did not wait for this site any more: they did at "
        f"{_time(known.at_ms)}, and whether they did later was not seen"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
