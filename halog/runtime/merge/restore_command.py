"""The operator's side of a restore: the steps that make two sites' branches one again (M2).

Called for at the initiating site, whose data is overruled where the two contradict each other. The source is found by
asking all other sites at once who serves the partition (the last one to say so), or named. Then, for each partition:
this site's nodes stop serving it, close its branch and give their log away; the source's node merges; this site
follows. Each step can be repeated, by anybody, whatever has become of who began: what is done stays done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import DeadlineError, HalogError, RefusedError
from halog.metadata import branch_holds, log_holds as retention, restore_requests as restores
from halog.metadata.identity import who
from halog.metadata.mirrors import followed, standing
from halog.metadata.partition_tables import change_table, its_table, serves, table_of
from halog.metadata.restore_requests import RestoreRequest
from halog.metadata.site_ownership import given_up
from halog.ports import Coordinator
from halog.runtime.merge import preconditions as going_back
from halog.runtime.merge.preconditions import StateTopic
from halog.runtime.support.adapters import Remote

LOOK_S: Final = 0.1

CHECKED_MS: Final = 3_600_000
"""How long both logs are held once a merge is asked for: nodes begin with it within minutes, or not at all."""

Classify = Callable[[list[str]], None]

Told = Callable[[str, RestoreRequest], None]
"""Called with a partition and how far it is, whenever that changes."""


class _Heard(NamedTuple):
    """One site's answer."""

    site: str
    serves: Collection[str] = ()
    """Of the partitions that it was asked about."""
    gave_back: Mapping[str, RestoreRequest] = MappingProxyType({})
    """Those that were merged there and given back, with what led there."""
    why: str = ""
    """There is none."""


class Reuniting:
    """For one initiating site, `own`, of which what is open stays so. `state_topic`: of a policy, at every site."""

    def __init__(
        self,
        own: Remote,
        state_topic: StateTopic,
        reach: Callable[[str], Remote],
        others: Iterable[str],
        timeout_s: float,
    ) -> None:
        self._own = own
        self._coordinator = own.coordinator
        self._site = own.name
        self._state_topic = state_topic
        self._reach = reach
        self._others = tuple(others)
        self._timeout_s = timeout_s
        self._open: dict[str, Remote] = {}
        self._given_back: dict[str, RestoreRequest] = {}
        """What led there."""

    def __enter__(self) -> Reuniting:
        return self

    def __exit__(self, *exc: object) -> None:
        for remote in self._open.values():
            remote.close()

    def remote(self, site: str) -> Remote:
        """That site, as it is reached from here. UnreachableError."""
        if site not in self._open:
            self._open[site] = self._reach(site)
        return self._open[site]

    def sources(
        self, tables: Iterable[PartitionTable], named: Mapping[str, str], back: Collection[str] = ()
    ) -> dict[str, str]:
        """By partition, the site to merge at: as `named`, else the one that this site has closed its branch for, else,
        of all that are asked at once, the last one to answer that it serves it. RefusedError where none does. `back`:
        partitions that this site is to serve afterwards: where nobody else serves one that was merged and given back,
        its source is there, too, since whoever asked for it may have died before this site took it."""
        tables = list(tables)
        asked = [t for t in tables if not named.get(t.name)]
        heard = self._hear(asked, back) if asked else []
        found = {t.name: self._chosen(t, heard) for t in asked}
        return found | {t.name: self._confirmed(t, named[t.name], back) for t in tables if t.name not in found}

    def _hear(self, tables: Collection[PartitionTable], back: Collection[str]) -> list[_Heard]:
        """What the other sites say, in the order in which they answer; a silent one holds up the answer of no other."""
        heard: list[_Heard] = []

        def ask(site: str) -> None:
            try:
                heard.append(self._answer(site, tables, back))
            except HalogError as e:
                heard.append(_Heard(site, why=str(e)))

        if len(self._others) < 2:
            for site in self._others:
                ask(site)
        else:
            with ThreadPoolExecutor(len(self._others), "halog-sources") as pool:
                list(pool.map(ask, self._others))
        return heard

    def _answer(self, site: str, tables: Collection[PartitionTable], back: Collection[str]) -> _Heard:
        remote = self.remote(site)
        gave_back = {t.name: self._gave_back(remote, t) for t in tables if t.name in back}
        return _Heard(
            site,
            [t.name for t in tables if serves(remote.coordinator, t)],
            {name: last for name, last in gave_back.items() if last is not None},
        )

    def _chosen(self, table: PartitionTable, heard: Iterable[_Heard]) -> str:
        """Asked again, the command goes on at the same site: a branch is merged at one."""
        said = [one.site for one in heard if table.name in one.serves]
        back = {one.site: one.gave_back[table.name] for one in heard if table.name in one.gave_back}
        why = "; ".join(f"site {one.site}: {one.why}" for one in heard if one.why)
        if not said and not why:  # of those that do not answer one may serve it
            said = list(back)
        if not said:
            more = why or f"asked: {', '.join(self._others)}"
            raise RefusedError(f"no other site serves partition {table.name} ({more})", partition=table.name)
        site = table.owner if table.owner in said else said[-1]
        if site in back:
            self._given_back[table.name] = back[site]
        return site

    def _confirmed(self, table: PartitionTable, site: str, back: Collection[str]) -> str:
        heard = self._answer(site, [table], back)
        if heard.serves:
            return site
        if not heard.gave_back:
            raise RefusedError(
                f"partition {table.name} is not served by site {site}: nothing can be merged there",
                partition=table.name,
                site=site,
            )
        self._given_back |= heard.gave_back
        return site

    def _gave_back(self, remote: Remote, table: PartitionTable) -> RestoreRequest | None:
        """What led there: it was merged there, this site is to serve it, and nothing has been done there since."""
        theirs, last = its_table(remote.coordinator, table), restores.restore_of(remote.coordinator, table.name)
        if theirs is None or theirs.owner != self._site or last is None or last.site != self._site:
            return None
        stands = standing(remote.coordinator, table.name)
        is_parted = stands is not None and stands.parted and stands.site == self._site
        return last if last.phase in (restores.DONE, restores.NOTHING) and not is_parted else None

    def restore(
        self,
        tables: Iterable[PartitionTable],
        sources: Mapping[str, str],
        *,
        two_way: bool = False,
        active: Mapping[str, str] = MappingProxyType({}),
        classified: bool = False,
        classify: Classify | None = None,
        told: Told,
    ) -> dict[str, RestoreRequest]:
        """Close this site's branches, have them merged at their sources, and wait until this site follows. What was not
        done in time goes on by itself: its last `RestoreRequest` says how far it is. `active`: by partition, the
        source's node that is to serve afterwards. `classified`: they are merged by what a Spark job has found;
        `classify`: once they are closed it is called with those that were merged before, and finds it. RefusedError,
        and nothing was changed."""
        ended = dict[str, RestoreRequest]()
        for table in (tables := list(tables)):
            if table.name in self._given_back:
                ended[table.name] = self._given_back[table.name]
            elif followed(self._coordinator, table_of(self._coordinator, table.name), sources[table.name]):
                ended[table.name] = self._last(table, sources[table.name])
        tables = [t for t in tables if t.name not in ended]
        sources = {t.name: sources[t.name] for t in tables}
        one = RestoreRequest(site=self._site, by=who(), at_ms=0, two_way=two_way, classified=classified)
        wanted = {name: msgspec.structs.replace(one, active=active.get(name, "")) for name in sources}
        self._check(tables, sources, wanted)
        for table in tables:
            self._close(table, sources[table.name])
        if classify is not None and tables:
            classify(list(ended))
        until = time.monotonic() + self._timeout_s
        at_ms = time.time_ns() // 1_000_000
        for name, source in sources.items():
            now = msgspec.structs.replace(wanted[name], at_ms=at_ms)
            restores.ask(self.remote(source).coordinator, name, now)
        ended |= _wait({n: self.remote(s).coordinator for n, s in sources.items()}, until, told)
        for name, restore in ended.items():
            if name in sources and restore.phase in (restores.DONE, restores.NOTHING):
                self._follows(name, sources[name], until)
        return ended

    def _last(self, table: PartitionTable, source: str) -> RestoreRequest:
        """What led there: a merge that somebody else has asked for, perhaps."""
        last = restores.restore_of(self.remote(source).coordinator, table.name)
        if last is not None and last.site == self._site and last.phase == restores.DONE:
            return last
        why = f"this site mirrors site {source}"
        return RestoreRequest(site=self._site, by=who(), at_ms=0, phase=restores.NOTHING, why=why)

    def _check(
        self, tables: Collection[PartitionTable], sources: Mapping[str, str], wanted: Mapping[str, RestoreRequest]
    ) -> None:
        """Whatever can be known before anything is closed for it."""
        for table in tables:
            restores.check(self.remote(sources[table.name]).coordinator, table.name, wanted[table.name])
            self._check_branch(table, sources[table.name])
        # a job may have read what is not there any more: once a branch is closed, that is for the node to say
        self._check_logs([t for t in tables if not wanted[t.name].classified or t.owner != sources[t.name]], sources)

    def _check_branch(self, table: PartitionTable, source: str) -> None:
        """This site's log may hold the branch of a third one, which it mirrors: closed here, it goes on there. Unless
        that site cannot be asked: then this is what is left of it."""
        its = table.owner
        if its in ("", source) or followed(self._coordinator, table, its) is None:
            return
        try:
            goes_on = serves(self.remote(its).coordinator, table)
        except HalogError:
            return
        if goes_on:
            raise RefusedError(
                f"partition {table.name}: site {self._site} mirrors site {its}, which serves the branch that is to be "
                f"merged at {source}: ask for it with the configuration of {its}. Nothing was changed",
                partition=table.name,
                site=its,
            )

    def _check_logs(self, tables: Iterable[PartitionTable], sources: Mapping[str, str]) -> None:
        """They are held first: nothing that is found there is trimmed before it is read."""
        until = retention.now_ms() + CHECKED_MS
        for table in tables:
            there, begin = self.remote(sources[table.name]), dict[str, int]()
            for at, other in ((self._own, there), (there, self._own)):
                why = f"to merge it with the branch of site {other.name}"
                held = retention.hold_the_rest(at.coordinator, table.name, f"merge-{other.name}", 0, why, until)
                begin[at.name] = held  # all before it may be trimmed at any moment
            going_back.check(self._own, there, table, self._state_topic, begin)

    def _close(self, table: PartitionTable, source: str) -> None:
        """This site stops serving it; its log is kept as it is, for who wants to look at it."""
        branch_holds.hold_branch(self._coordinator, table.name, source)
        if table.owner != source:
            change_table(self._coordinator, table.name, lambda now: given_up(now, source))

    def _follows(self, partition: str, source: str, until: float) -> None:
        while True:
            if followed(self._coordinator, table_of(self._coordinator, partition), source):
                return
            if time.monotonic() >= until:
                now = standing(self._coordinator, partition)
                why = "" if now is None else f": {now.error}"
                raise DeadlineError(
                    f"partition {partition} is merged at site {source}, and this site does not follow yet{why}; see "
                    "`halog site lag`",
                    partition=partition,
                )
            time.sleep(LOOK_S)


def undo(
    coordinator: Coordinator, merges: Mapping[str, str], timeout_s: float, told: Told
) -> dict[str, RestoreRequest]:
    """Undo merges, by partition, at the site that serves: where nobody has changed it since, what was there before
    stands again."""
    until = time.monotonic() + timeout_s
    for name in merges:
        if owner := table_of(coordinator, name).owner:
            raise RefusedError(
                f"partition {name} is served by site {owner}: a merge is undone there", partition=name, site=owner
            )
    at_ms = time.time_ns() // 1_000_000
    wanted = {name: RestoreRequest(site="", by=who(), at_ms=at_ms, undo=merge) for name, merge in merges.items()}
    for name, one in wanted.items():
        restores.check(coordinator, name, one)
    for name, one in wanted.items():
        restores.ask(coordinator, name, one)
    return _wait(dict.fromkeys(merges, coordinator), until, told)


def _wait(asked: Mapping[str, Coordinator], until: float, told: Told) -> dict[str, RestoreRequest]:
    """Until all have ended; how far each is that anything is known of. By partition, where it was asked for."""
    last: dict[str, RestoreRequest] = {}
    while True:
        for name, coordinator in asked.items():
            now = restores.restore_of(coordinator, name)
            if now is not None and last.get(name) != now:
                last[name] = now
                told(name, now)
        if all(name in last and last[name].ended for name in asked) or time.monotonic() >= until:
            return last
        time.sleep(LOOK_S)
