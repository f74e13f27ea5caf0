"""A restore makes two sites' branches one again: these are the operator's steps (M2).

It is called at the initiating site, whose data is overruled where the two contradict each other. The source is named,
or found: all other sites are asked at once who serves the partition, and the last one to say so is taken. Then, for
each partition, this site's nodes stop serving it, close its branch and give their log away; the source's node merges;
this site follows. Anybody can repeat each step, even if the first caller died: what is done stays done.
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
from halog.runtime.support.adapters import SiteAccess

LOOK_S: Final = 0.1

CHECKED_MS: Final = 3_600_000
"""Both logs are held so long once a merge is asked for: nodes begin with it within minutes, or not at all."""

Classify = Callable[[list[str]], None]

StepListener = Callable[[str, RestoreRequest], None]
"""Is called with a partition and how far it is, whenever that changes."""


class _SiteAnswer(NamedTuple):
    """A `_SiteAnswer` is what one site says."""

    site: str
    serves: Collection[str] = ()
    """Those of the partitions it was asked about that it serves."""
    gave_back: Mapping[str, RestoreRequest] = MappingProxyType({})
    """The partitions that were merged there and given back, each with its restore."""
    why: str = ""
    """Why there is no answer."""


class RestoreCommand:
    """Restores partitions of one initiating site, `own`, whose connections stay open. `state_topic`:
    returns the state topic of a policy, which is the same at every site."""

    def __init__(
        self,
        own: SiteAccess,
        state_topic: StateTopic,
        reach: Callable[[str], SiteAccess],
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
        self._open: dict[str, SiteAccess] = {}
        self._given_back: dict[str, RestoreRequest] = {}
        """By partition: the restore that it was given back after."""

    def __enter__(self) -> RestoreCommand:
        return self

    def __exit__(self, *exc: object) -> None:
        for remote in self._open.values():
            remote.close()

    def remote(self, site: str) -> SiteAccess:
        """Return that site, as it is reached from here. UnreachableError."""
        if site not in self._open:
            self._open[site] = self._reach(site)
        return self._open[site]

    def sources(
        self, tables: Iterable[PartitionTable], named: Mapping[str, str], back: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the site to merge at, by partition. It is the `named` one; else the one that this site has closed its
        branch for; else, of all that are asked at once, the last to answer that it serves the partition. RefusedError
        if none does. `back`: partitions that this site is to serve afterwards. If nobody else serves one of these that
        was merged and given back, its source is returned, too: its caller may have died before this site took it."""
        tables = list(tables)
        asked = [t for t in tables if not named.get(t.name)]
        heard = self._hear(asked, back) if asked else []
        found = {t.name: self._chosen(t, heard) for t in asked}
        return found | {t.name: self._confirmed(t, named[t.name], back) for t in tables if t.name not in found}

    def _hear(self, tables: Collection[PartitionTable], back: Collection[str]) -> list[_SiteAnswer]:
        """Return the other sites' answers, in the order in which they come; a silent site holds up no other."""
        heard: list[_SiteAnswer] = []

        def ask(site: str) -> None:
            try:
                heard.append(self._answer(site, tables, back))
            except HalogError as e:
                heard.append(_SiteAnswer(site, why=str(e)))

        if len(self._others) < 2:
            for site in self._others:
                ask(site)
        else:
            with ThreadPoolExecutor(len(self._others), "halog-sources") as pool:
                list(pool.map(ask, self._others))
        return heard

    def _answer(self, site: str, tables: Collection[PartitionTable], back: Collection[str]) -> _SiteAnswer:
        remote = self.remote(site)
        gave_back = {t.name: self._gave_back(remote, t) for t in tables if t.name in back}
        return _SiteAnswer(
            site,
            [t.name for t in tables if serves(remote.coordinator, t)],
            {name: last for name, last in gave_back.items() if last is not None},
        )

    def _chosen(self, table: PartitionTable, heard: Iterable[_SiteAnswer]) -> str:
        """Choose the site for a partition. A repeated command goes on at the same site: a branch is merged at one."""
        said = [one.site for one in heard if table.name in one.serves]
        back = {one.site: one.gave_back[table.name] for one in heard if table.name in one.gave_back}
        why = "; ".join(f"site {one.site}: {one.why}" for one in heard if one.why)
        if not said and not why:  # a site that does not answer may serve it
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

    def _gave_back(self, remote: SiteAccess, table: PartitionTable) -> RestoreRequest | None:
        """Return the restore of a partition that was merged there, that this site is to serve, and that was not changed
        there since."""
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
        told: StepListener,
    ) -> dict[str, RestoreRequest]:
        """Close this site's branches, have them merged at their sources, and wait until this site follows. What was not
        done in time goes on by itself: its last `RestoreRequest` says how far it is. `active`: by partition, the
        source's node that is to serve afterwards. `classified`: they are merged by a Spark job's results. `classify` is
        called once they are closed, with those that were merged before, and runs the job. RefusedError, and nothing was
        changed."""
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
        """Return the restore after which this site follows the source; somebody else may have asked for it."""
        last = restores.restore_of(self.remote(source).coordinator, table.name)
        if last is not None and last.site == self._site and last.phase == restores.DONE:
            return last
        why = f"this site mirrors site {source}"
        return RestoreRequest(site=self._site, by=who(), at_ms=0, phase=restores.NOTHING, why=why)

    def _check(
        self, tables: Collection[PartitionTable], sources: Mapping[str, str], wanted: Mapping[str, RestoreRequest]
    ) -> None:
        """Check all that can be known before anything is closed for it."""
        for table in tables:
            restores.check(self.remote(sources[table.name]).coordinator, table.name, wanted[table.name])
            self._check_branch(table, sources[table.name])
        # once a branch is closed, a job may have read what is trimmed by now: the node checks that
        self._check_logs([t for t in tables if not wanted[t.name].classified or t.owner != sources[t.name]], sources)

    def _check_branch(self, table: PartitionTable, source: str) -> None:
        """Refuse to close the branch of a third site, which this site's log mirrors: it would go on there. If that site
        cannot be asked, this log is what is left of the branch."""
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
        """Check the logs. They are held first: nothing that is found there is trimmed before it is read."""
        until = retention.now_ms() + CHECKED_MS
        for table in tables:
            there, begin = self.remote(sources[table.name]), dict[str, int]()
            for at, other in ((self._own, there), (there, self._own)):
                why = f"to merge it with the branch of site {other.name}"
                held = retention.hold_the_rest(at.coordinator, table.name, f"merge-{other.name}", 0, why, until)
                begin[at.name] = held  # all before it may be trimmed at any moment
            going_back.check(self._own, there, table, self._state_topic, begin)

    def _close(self, table: PartitionTable, source: str) -> None:
        """Have this site stop serving the partition; its log is kept as it is, to be looked at."""
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
    coordinator: Coordinator, merges: Mapping[str, str], timeout_s: float, told: StepListener
) -> dict[str, RestoreRequest]:
    """Undo merges, by partition, at the site that serves: where nobody has changed a key since, it becomes what it was
    before."""
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


def _wait(asked: Mapping[str, Coordinator], until: float, told: StepListener) -> dict[str, RestoreRequest]:
    """Wait until all have ended, and return how far each is, as far as is known. `asked`: the coordinators where it was
    asked for, by partition."""
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
