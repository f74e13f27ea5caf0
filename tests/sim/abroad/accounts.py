"""What must hold of two sites' histories once they are one, from their logs and from what clients were told (M2, M3).

Both logs are read anew by a dumb reader (`tests.sim.abroad.twin`), not by the core. Every merge in them is judged by
the table of docs/guides/sites.md, written here once more, from what the reader found at each site and where they had
parted. So by induction every write that either log has accepted stands, came under a later write of its own branch, or
is in a merge's report with what it left; and whatever was acknowledged must be among those.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from halog.core.log import records
from restore.merge import AGREED, Instance, Kind
from restore.report import ReportEntry, entry
from tests.sim.abroad.client import COUNTER
from tests.sim.abroad.pair import DEFERRED, INITIATING, Pair, number
from tests.sim.abroad.site import SiteWorld
from tests.sim.abroad.twin import Merge, Object, Objects, Read, read
from tests.sim.client import Transaction
from tests.sim.violation import demand


class Standing(NamedTuple):
    """What is under a key."""

    ref: bytes
    value: bytes

    def __str__(self) -> str:
        return f"{self.value.decode()} of {int.from_bytes(self.ref, 'big')}"


State = Standing | None
"""None: nothing is there."""


def finish(pair: Pair) -> None:
    """Everything, once all is quiet."""
    logs = {site: read(site, [e.data for e in w.log.entries]) for site, w in pair.worlds.items()}
    if pair.waiting is not None:
        pair.waiting.finish()
    if pair.wire.lost:
        _alone(pair, logs)
        return
    west, east = logs.values()
    demand(west.digests[-1:] == east.digests[-1:], "M2: the two logs end differently")
    demand(west.objects == east.objects, "M2: the two logs come to different objects")
    for site, log in logs.items():
        _copies(pair.worlds[site], log)
        _clients(pair.worlds[site], log)
    _same_merges(pair, logs)
    _merges(pair, logs)
    _one_history(pair, logs)
    _counted(pair, logs)


def _alone(pair: Pair, logs: dict[str, Read]) -> None:
    """Of a site that goes on while the other one is lost. That one's log is read for what was merged before."""
    for world in pair.left:
        _copies(world, logs[world.site])
        _clients(world, logs[world.site])
    _same_merges(pair, logs)
    _merges(pair, logs)


# --- each site by itself ---


def _copies(world: SiteWorld, log: Read) -> None:
    """P2: every copy, and every disk, has the objects that the log leads to; all know the same of transactions."""
    for p in world.processes():
        p.copy.flush()
        for what, found in (("shows", p.copy.objects), ("has stored", p.node.disk.objects)):
            mine = {key: (o.ref, o.value, o.version) for key, o in found.items()}
            demand(mine == log.objects, f"P2: {p.name} {what} {mine}, its log leads to {log.objects}")
        state = p.partition.state.chain.state
        demand(state.lineage == log.lineage, f"F4: {p.name} has another lineage than its log")
        demand(not p.partition.state.ledger.undecided, f"M2: {p.name} is in doubt of something")
        unknown = [tx.hex() for tx in log.happened if p.partition.state.outcomes.get(tx) is None]
        demand(not unknown, f"M2: {p.name} does not know that {unknown} happened")


def _clients(world: SiteWorld, log: Read) -> None:
    """P1, P4, P5: what was acknowledged here is in this site's log, and what was denied is not."""
    for tx in world.transactions():
        there = log.commits.get(tx.id)
        if tx.happened is not None:
            demand(tx.id in log.happened, f"P1: {tx.name} was acknowledged at {world.site}, and its log has not got it")
        if tx.denied:
            demand(tx.id not in log.happened, f"P5: {tx.name} was said not to have happened ({tx.denied}), and did")
        if there is not None:
            _as_it_was(world, tx, there.record, there.before)


def _as_it_was(world: SiteWorld, tx: Transaction, record: records.Commit, before: dict[bytes, Object]) -> None:
    told = [(c.op, c.key, c.value) for c in tx.changes]
    demand([(c.op, c.key, c.value) for c in record.changes] == told, f"P1: {tx.name} is in the log with other changes")
    for key, value in tx.seen.items():
        found = before.get(key)
        same = (None if found is None else found.value) == value
        demand(same, f"P4: {tx.name} at {world.site} read {value!r} as {key!r}, and it was {found}")


# --- both ---


def _same_merges(pair: Pair, logs: dict[str, Read]) -> None:
    """F5, M1: each merge stands once, where somebody has asked for it, and the same at both sites; unless the history
    that it is in was itself merged before the other site had it."""
    for log in logs.values():
        names = Counter(m.record.merge for m in log.merges)
        demand(not names or max(names.values()) == 1, f"F5: merged more than once: {names}")
    west, east = ({m.record.merge: m.record for m in log.merges} for log in logs.values())
    for name in west.keys() & east.keys():
        demand(west[name] == east[name], f"F5: two merges are named {name.hex()}")
    for m in {**west, **east}.values():
        one = len(m.branches) == 1
        asked = [a for a in pair.asked if a.at == m.header.epoch.site and bool(a.undo) == one]
        demand(bool(asked), f"M1: at {m.header.epoch.site} a merge was made that nobody had asked for")
        pair.cover.hit("undone" if one else "merged")
    if west.keys() != east.keys():
        pair.cover.hit("a merge was merged")


def _one_history(pair: Pair, logs: dict[str, Read]) -> None:
    """F3: where the two logs have had different records, an operator had allowed it, and a merge has closed it."""
    west, east = logs.values()
    apart = set(west.digests) ^ set(east.digests)
    allowed = pair.may_fork or pair.quarrelled
    demand(not apart or allowed, "M5: the history has parted, and nobody had said that it may")
    joins = [m for m in west.merges if len(m.record.branches) > 1]
    demand(bool(joins) or not apart, f"F4: {len(apart)} records are at one site only, and nothing was merged")
    if len(joins) > 1:
        pair.cover.hit("parted more than once")


def _merges(pair: Pair, logs: dict[str, Read]) -> None:
    """Each, where it was made: what it stands on is there. A mirrored one is there, too."""
    for site, log in logs.items():
        for m in log.merges:
            of = m.record.header.epoch.site
            if of == site:
                _judged(pair, logs, m)
            else:
                made = any(x.record == m.record for x in logs[of].merges)
                demand(made, f"F2: the log of {site} has a merge of {of} that is not in the log there")


def _judged(pair: Pair, logs: dict[str, Read], m: Merge) -> None:
    """One merge: every key that differed is in it, with its evidence; what stands is what the rule says; and it says of
    nothing that it has happened which neither branch shows."""
    told = {one.key: entry(one) for one in m.merged}
    if len(m.record.branches) == 1:
        demand(not m.happened, f"M2: undoing a merge made {len(m.happened)} transactions happen")
        _undone(pair, logs, m, told)
        return
    source = m.record.header.epoch.site
    initiating = next(s for s in logs if s != source)
    ours, theirs = _Branch(logs[source], m.place), _closed(logs[initiating], m.record.branches[1])
    base, parted = _fork(ours, theirs)
    unshown = sorted(tx.hex() for tx in m.happened if not (ours.shows(tx) or theirs.shows(tx)))
    demand(not unshown, f"M2: a merge says that {unshown} happened, and no branch of it has them")
    for key in sorted({*ours.objects, *theirs.objects, *base}):
        s, i, b = (_state(objects.get(key)) for objects in (ours.objects, theirs.objects, base))
        if key not in told:
            demand(s == i, f"M3: {key!r} is {s} at {source}, {i} at {initiating}, and not in the merge")
            continue
        found = told[key]
        _evidence(found, s, i, b, pair.keeps_before)
        _writers(found, ours, theirs, parted)
        known = found.found.base is None or found.found.base.value is not None
        stands = _stands(pair, key, b, s, i, two_way=pair.two_way[m.record.header.epoch], known=known)
        demand(
            _told(found.then) == stands, f"M3: {key!r} was {b}, is {s} and {i}: {stands} is to stand, not {found.then}"
        )
        pair.cover.hit(f"conflict: {found.found.kind.value}" if found.found.is_conflict else "no conflict")
        if found.why:
            pair.cover.hit("deferred")


def _state(found: Object | None) -> State:
    return None if found is None else Standing(found.ref, found.value)


def _told(found: Instance | None) -> tuple[bytes, bytes | None] | None:
    return None if found is None else (found.ref, found.value)


class _Branch(NamedTuple):
    """A log, so many records of it."""

    log: Read
    end: int

    @property
    def objects(self) -> Objects:
        return self.log.states[self.end]

    def shows(self, tx: bytes) -> bool:
        """Has it happened by its records: its own commit, or a merge before, which is judged by itself?"""
        return self.log.happened.get(tx, self.end) < self.end

    def last_writer(self, key: bytes, behind: int) -> bytes | None:
        """The transaction that wrote a key last, of those behind so many records; None: none, or a merge has."""
        written = [w for w in self.log.written.get(key, ()) if behind <= w.place < self.end]
        return written[-1].tx if written else None


def _closed(log: Read, branch: records.Branch) -> _Branch:
    demand(branch.hash in log.digests, f"F5: a branch was merged whose end is not in the log of {log.site}")
    return _Branch(log, log.digests.index(branch.hash) + 1)


def _fork(ours: _Branch, theirs: _Branch) -> tuple[Objects, tuple[int, int]]:
    """What stood where the two had parted before they were merged, which is in one of the logs at least; and how many
    records each log has up to there, or before it joined a history that goes up to there."""
    parents = {**_parents(ours.log), **_parents(theirs.log)}
    before = [_before(parents, branch.log.digests[branch.end - 1]) for branch in (ours, theirs)]
    common = before[0] & before[1]
    ends = common - {p for d in common for p in parents[d]}
    if not ends:
        return {}, (0, 0)
    demand(len(ends) == 1, f"F4: two branches have parted in {len(ends)} places")
    (fork,) = ends
    base: Objects | None = None
    behind = []
    for log in (ours.log, theirs.log):
        if fork in log.digests:
            behind.append(log.digests.index(fork) + 1)
            stood = log.states[behind[-1]]
            demand(base is None or base == stood, "F4: where they parted both had different objects")
            base = stood
        else:
            behind.append(next(n for n, hash_ in enumerate(log.digests) if fork in _before(parents, hash_)))
    assert base is not None
    return base, (behind[0], behind[1])


def _parents(log: Read) -> dict[bytes, tuple[bytes, ...]]:
    """Of each record, those it stands on."""
    stand = ((d, r.branches) if isinstance(r, records.EpochMerged) else (d, r.header.prev) for d, r in log.pairs)
    return {d: (on,) if isinstance(on, bytes) else tuple(b.hash for b in on) for d, on in stand}


def _before(parents: dict[bytes, tuple[bytes, ...]], hash_: bytes) -> set[bytes]:
    """It, and all that it stands on."""
    found, left = set[bytes](), [hash_]
    while left:
        now = left.pop()
        if now in parents and now not in found:
            found.add(now)
            left += parents[now]
    return found


def _evidence(found: ReportEntry, s: State, i: State, b: State, keeps_before: bool) -> None:
    """What the report says stood there."""
    for what, told, is_ in (("source", found.found.source, s), ("initiating", found.found.initiating, i)):
        same = _told(told) == is_ or (what == "initiating" and _is_unknown(told, is_, keeps_before=keeps_before))
        demand(same, f"M3: the report says {told} of the {what} site, where {is_} stood")
    same = _told(found.found.base) == b or _is_unknown(found.found.base, b, keeps_before=keeps_before)
    demand(same, f"M3: the report says {found.found.base} of where they parted, where {b} stood")


def _is_unknown(told: Instance | None, is_: State, *, keeps_before: bool) -> bool:
    """Without images of what stood before, only which instance it was may be known of what nobody has written since."""
    return not keeps_before and told is not None and is_ is not None and told == (is_.ref, None)


def _writers(found: ReportEntry, ours: _Branch, theirs: _Branch, parted: tuple[int, int]) -> None:
    """Whose writes: the last one of each branch is named."""
    key, told = found.found.key, (found.found.source_by, found.found.initiating_by)
    for branch, behind, by in zip((ours, theirs), parted, told, strict=True):
        last = branch.last_writer(key, behind)
        demand(last is None or (bool(by) and by[-1].tx == last), f"M3: {key!r}: the report lacks who wrote it last")


def _stands(pair: Pair, key: bytes, b: State, s: State, i: State, *, two_way: bool, known: bool) -> State:
    """The table of the guide, and what this world's triggers say."""
    kind = _kind(b, s, i, two_way=two_way)
    if key == COUNTER and known and s is not None and i is not None and (kind not in AGREED or kind is Kind.ALIKE):
        return Standing(s.ref, b"%d" % (number(s.value) + number(i.value) - (0 if b is None else number(b.value))))
    if kind in AGREED:
        return i if kind is Kind.TAKEN else s
    if pair.triggers and key == INITIATING:
        return i
    if pair.triggers and key == DEFERRED:
        return s
    return i if kind is Kind.INSTANCE_ADDED else s


def _kind(b: State, s: State, i: State, *, two_way: bool) -> Kind:
    if s == i:
        return Kind.ALIKE if s != b else Kind.SAME
    if two_way:
        if s is None or i is None:
            return Kind.KEPT if i is None else Kind.INSTANCE_ADDED
        return Kind.STATE_CONFLICT if s.ref == i.ref else Kind.KEY_CONFLICT
    new = i is not None and (b is None or b.ref != i.ref)
    if s is None and new:
        return Kind.INSTANCE_ADDED
    if i == b:
        return Kind.KEPT
    if s == b:
        return Kind.TAKEN
    if s is None:
        return Kind.DELETE_UPDATE
    if i is None:
        return Kind.UPDATE_DELETE if b is not None and b.ref == s.ref else Kind.KEPT
    return Kind.STATE_CONFLICT if s.ref == i.ref else Kind.KEY_CONFLICT


def _undone(pair: Pair, logs: dict[str, Read], m: Merge, told: dict[bytes, ReportEntry]) -> None:
    """Where nobody has changed it since, what the source had stands again; nothing else is changed. Whoever commits
    gives another version, or leaves nothing once more; another merge does, too, whose report tells whether somebody
    had: it is judged by itself."""
    log = logs[m.record.header.epoch.site]
    merges = [x for x in log.merges if b"undo" + x.record.merge == m.record.merge]
    demand(len(merges) == 1, "M2: a merge was undone that is not in the history")
    was = {one.key: entry(one) for one in merges[0].merged}
    for key, found in was.items():
        now = _state(m.before.get(key))
        then, source = _told(found.then), _told(found.found.source)
        stood = m.before.get(key)
        committed, merged = (_written(log, key, merges[0], m, by_merge=by) for by in (False, True))
        as_left = not (committed or merged) if stood is None else stood.version == merges[0].record.header.lsn
        if now == then and then != source and (as_left or not committed):
            demand(key in told or not as_left, f"M2: {key!r} was not undone")
            demand(key not in told or _told(told[key].then) == source, f"M2: {key!r} was undone wrongly")
        else:
            demand(key not in told, f"M2: {key!r} was undone, and was changed since, or was as it is")


def _written(log: Read, key: bytes, behind: Merge, before: Merge, *, by_merge: bool) -> bool:
    """Has somebody written it between two merges, or another merge?"""
    between = (w for w in log.written.get(key, ()) if behind.place < w.place < before.place)
    return any((w.tx is None) == by_merge for w in between)


def _counted(pair: Pair, logs: dict[str, Read]) -> None:
    """Each step that was counted at either site counts once; unless one of two counters was overruled, or undone."""
    west = logs["west"]
    undone = any(len(m.record.branches) == 1 for log in logs.values() for m in log.merges)
    if undone or not pair.keeps_before or any(pair.two_way.values()):
        return
    commits = {tx: c.record for log in logs.values() for tx, c in log.commits.items()}
    steps = sum(1 for r in commits.values() for c in r.changes if c.key == COUNTER)
    there = west.objects.get(COUNTER)
    found = 0 if there is None else number(there.value)
    demand(found == steps, f"M3: {steps} steps were counted, the counter says {found}")
