"""A model of two sites that fork, merge, begin merges that come to nothing, and fork again, with the real chain,
mirror, ledger and merge: what `halog.runtime.merge.restore_driver`, `giving`, `line` and `switching` do, one step at a
time. Whatever was appended lands late, if chance says so, and whoever was deposed goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.records import HandedOver, Horizon, Merged
from halog.core.log.transactions import UndecidedTransaction
from halog.runtime.merge.closed_branch import closed_side
from halog.runtime.support.adapters import SiteAccess
from restore.branch import BranchReader, Side, aborted, branch
from restore.branches import completed, merged_at
from restore.compensation import Defer, Delete, Fields, KeepInitiating, KeepSource, Replace, Verdict
from restore.creating import CreatedObject, KeyDecision, TargetMerge, with_created
from restore.divergence import Behind, Fork, compare, history_of, lineage_of
from restore.merge import Difference, Kind
from restore.plan import Choice, chosen
from restore.replay import Opening, is_merged, merge_records, name_of
from restore.report import merged
from restore.undoing import Undoing, undone
from tests.unit.core.sites.begun_merge import Begun, Done
from tests.unit.core.sites.copy_model import TP, Copy, Held, change, check_readers
from tests.unit.core.sites.merge_verdict import KEYS, accounted, is_right
from tests.unit.core.sites.site_model import Site, Writer


@dataclass
class World:
    keeps_before: bool = True
    verdicts: int = 0
    """Another number makes triggers say something else; -1: as by default."""
    sites: dict[str, Site] = field(
        default_factory=lambda: {n: Site(n, o) for n, o in (("west", "east"), ("east", "west"))}
    )
    begun: dict[str, Begun] = field(default_factory=dict)
    merges: list[Done] = field(default_factory=list)
    txs: int = 0

    def __post_init__(self) -> None:
        self.sites["west"].elect()

    def other(self, at: str) -> Site:
        return self.sites[self.sites[at].other]

    # --- transactions ---

    def _next(self) -> tuple[bytes, bytes]:
        self.txs += 1
        return self.txs.to_bytes(8, "big") + bytes(8), b"%024d" % self.txs

    def commit(self, at: str, key: int, other: int = 9, gone: int = 1, value: int = 0) -> None:
        """A deletion (not `gone`), a change or a creation of a key, or of two; some make what others make, too."""
        tx, ref = self._next()
        keys = [k for k in dict.fromkeys((key, other)) if k < len(KEYS)]
        if (found := self._changes(at, keys, ref, gone=not gone, value=value)) is not None:
            found[0].commit(tx, found[1])

    def prepare(self, at: str, key: int, gone: int = 1) -> None:
        tx, ref = self._next()
        if (found := self._changes(at, [key], ref, gone=not gone)) is not None:
            found[0].prepare(tx, found[1])

    def _changes(self, at: str, keys: list[int], ref: bytes, *, gone: bool, value: int = 0) -> Any:
        writer = self.sites[at].writer
        if writer is None or writer.done or any(writer.is_locked(KEYS[k]) for k in keys):
            return None
        new = b"%d" % value if value in (1, 2) else b"v%d" % self.txs
        return writer, tuple(writer.change(KEYS[k], ref, new, gone=gone, before=self.keeps_before) for k in keys)

    def decide(self, at: str) -> None:
        """The oldest in doubt."""
        writer = self.sites[at].writer
        if writer is not None and not writer.done and writer.undecided:
            tx = next(iter(writer.undecided))
            writer.decide(tx, commit=self.is_committed(at, tx))

    @staticmethod
    def is_committed(at: str, tx: bytes) -> bool:
        """As its first partition says at that site; some were decided in two ways."""
        number = tx[7]
        return number % 3 > 0 if number % 7 else at == "east"

    # --- who serves ---

    def elect(self, at: str, landing: int) -> None:
        self.sites[at].elect(landing)

    def land(self, at: str, which: int, count: int) -> None:
        sessions = [s for s in self.sites[at].sessions if s.todo]
        if sessions:
            self.sites[at].land(sessions[which % len(sessions)], count)

    def alone(self, at: str) -> None:
        """Told to serve though the other site may, too: a fork, unless it has everything."""
        self.sites[at].owner = ""
        self.sites[at].elect()

    def close(self, at: str, hand_over: int = 1) -> None:
        self.sites[at].close(hand_over=bool(hand_over))

    def give(self, at: str, landing: int) -> None:
        self.sites[at].give(self.other(at), landing)

    def mirror(self, at: str) -> None:
        self.sites[at].mirror(self.other(at))

    def look(self, at: str, which: int, count: int) -> None:
        self.sites[at].look(self.other(at), which, count)

    def stand(self, at: str, which: int) -> None:
        self.sites[at].stand(which)

    def stop_mirror(self, at: str, which: int) -> None:
        self.sites[at].stop_mirror(which)

    # --- merges ---

    def merge(self, at: str, three_way: int = 1) -> None:
        """Begin: the other branch is read, if it is closed."""
        site, other = self.sites[at], self.other(at)
        if not site.serves or at in self.begun:
            return
        remote = SiteAccess(other.name, cast(Any, other.log), cast(Any, _Coordinator(other)))
        theirs = closed_side(remote, at, "p", TP)
        if not isinstance(theirs, Side) or is_merged(site.state, theirs.state):
            return
        relation = compare(history_of(site.state), history_of(theirs.state))
        if not isinstance(relation, Fork):
            return
        floor = max(e.number for e, _ in (*theirs.state.lineage, (theirs.state.epoch, 0)))
        read = branch(theirs, relation, lambda side, u: self._elsewhere(side, u))
        own = BranchReader(relation)
        own.read(self.side_of(site))
        assert site.writer is not None
        self.begun[at] = Begun(site.writer, floor, name_of(theirs.state), theirs, relation, read, own, not three_way)

    @staticmethod
    def side_of(site: Site) -> Side:
        return Side(site.name, cast(Any, site.log), TP, site.state, len(site.log.entries))

    def _elsewhere(self, side: Side, u: UndecidedTransaction) -> bool:
        return self.is_committed(side.site, u.tx)

    def undo(self, at: str) -> None:
        """Begin to undo the last merge of all, if it is in the history here."""
        site = self.sites[at]
        if site.serves and at not in self.begun and self.merges and self._knows(site, self.merges[-1].name):
            found = Undoing(self.merges[-1].name)
            found.read(self.side_of(site))
            self.begun[at] = Begun(cast(Writer, site.writer), 0, found.name, undoing=found)

    def go_on(self, at: str, landing: int) -> None:
        """The next step of a merge; or it is found that somebody else was quicker."""
        site, one = self.sites[at], self.begun.get(at)
        if one is None:
            return
        if one.session is not None:
            self._land_merge(site, one, landing)
        elif one.epoch is not None:
            self._append_merge(site, one)
        else:
            self._settle(site, one)

    def heal(self, at: str) -> None:
        """The sites see each other again for as long as it takes."""
        self._joined()

    def horizon(self, at: str) -> None:
        """Everything older than what is in doubt here is settled."""
        writer = self.sites[at].writer
        if writer is not None and not writer.done:
            oldest = min((int.from_bytes(tx[:8], "big") for tx in writer.undecided), default=self.txs)
            writer.write(Horizon(writer.header(), max(0, oldest - 3)))

    # --- several steps ---

    def split(self, at: str, gone: int = 1) -> None:
        """The other site has everything, and goes on alone; both write."""
        to = self.sites[at].other
        self.mirror(to)
        self.look(to, -1, 50)
        self.sites[to].land(self.sites[to].sessions[-1], 50)
        self.alone(to)
        for name in (at, to):
            self.commit(name, self.txs % len(KEYS), gone=gone)
            self.land(name, -1, 9)

    def restore(self, at: str, steps: int, landing: int, brought: int) -> None:
        """The other branch is closed and merged here; unless the active node dies first, or it is not brought back."""
        other = self.sites[at].other
        self.close(other, steps % 2)
        self.land(at, -1, 9)
        self.merge(at)
        for _ in range(steps):
            self.go_on(at, landing)
        if brought:
            self.give(other, 1)
            self.mirror(other)
            self.look(other, -1, brought * 8)
            self.land(other, -1, brought)
            self.stand(other, -1)

    def give_up(self, at: str) -> None:
        """The active node dies in the middle of it; what it has sent lands, or not."""
        self.begun.pop(at, None)

    def _settle(self, site: Site, one: Begun) -> None:
        writer = one.writer
        if not site.serves or site.writer is not writer:
            del self.begun[site.name]
            return
        while writer.undecided:
            self.decide(site.name)
        writer.write(HandedOver(writer.header(), site.name))
        writer.done = True
        site.land(writer.session, 10_000)
        if site.state.hash == writer.prev and not site.state.owner:
            one.epoch = site.start(one.floor)
        else:
            del self.begun[site.name]

    def _append_merge(self, site: Site, one: Begun) -> None:
        if site.state.epoch != one.epoch or site.state.owner:
            del self.begun[site.name]
            return
        ours = self.side_of(site)
        ledger = site.copy.ledger
        decided = {tx: d.commit for tx, d in ledger.decided.items()}
        opening = Opening(one.epoch, site.state, int.from_bytes(ledger.horizon, "big"), ledger.mapping, decided)
        if one.theirs is None:
            assert one.undoing is not None
            one.undoing.read(ours)
            found = one.undoing
            back = undone(found.report, found.left, site.copy.objects.get).merged if found.put_back is None else []
            made = merge_records(opening, [], None, back, one.undoing.undoes) if back else []
        else:
            assert one.fork is not None
            assert one.read is not None
            assert one.own is not None
            one.own.read(ours)
            own = one.own.branch(ours, aborted)
            both = merged_at(one.fork, ours, one.theirs, own, one.read, three_way=not one.two_way)
            both = completed(both, site.copy.objects.get)
            made = merge_records(opening, [one.theirs.state], both, self._verdicts(site, one, both.keys), one.name)
        one.session, one.before = site.session(), dict(site.copy.objects)
        for data in made:
            one.session.put(data)
        if not made:
            del self.begun[site.name]

    @staticmethod
    def _knows(site: Site, name: bytes) -> bool:
        return any(m.merge == name for m in site.copy.merges)

    def _verdicts(self, site: Site, one: Begun, keys: tuple[Difference, ...]) -> list[Merged]:
        decided = [KeyDecision(c, "model", self._beside(c)) for c in chosen(keys, self._verdict, _encode)]
        into = TargetMerge("p", one.name, site.copy.objects.get)
        return [merged(d.choice, d.by) for d in with_created(decided, into)]

    def _beside(self, choice: Choice) -> tuple[CreatedObject, ...]:
        """What is created beside some; where that cannot be, the conflict is deferred."""
        at = KEYS.index(choice.found.key)
        if self.verdicts < 0 or choice.verdict is None or choice.deferred or (at + self.verdicts) % 2:
            return ()
        key = KEYS[(at + 1 + self.verdicts % 4) % len(KEYS)]
        return (CreatedObject(key, b"beside %s" % choice.found.key, "p", key.decode()),)

    def _verdict(self, found: Difference) -> Verdict:
        if self.verdicts < 0:
            return KeepInitiating() if found.kind is Kind.INSTANCE_ADDED else KeepSource()
        said: list[Verdict] = [KeepSource(), KeepInitiating(), Delete(), Defer("why"), Replace({})]
        return said[(found.key[0] * 3 + self.verdicts + len(found.source_by)) % 5]

    def _land_merge(self, site: Site, one: Begun, landing: int) -> None:
        assert one.session is not None
        site.land(one.session, landing)
        s = site.state
        if s.epoch == one.epoch and s.opened and not s.owner:
            assert one.epoch is not None
            site.writer = Writer(one.epoch, site.copy, one.session)
            self.merges.append(Done(site.name, one.name, s.lsn))
            if one.theirs is not None:
                is_right(site.copy, one.before, self._end_of(one.theirs))
            del self.begun[site.name]
        elif s.epoch != one.epoch or s.owner:
            del self.begun[site.name]

    def _end_of(self, side: Side) -> dict[bytes, Held]:
        """What the closed branch had, and what was in doubt there."""
        site = self.sites[side.site]
        copy = Copy(site.beginning(site.name))
        for entry_ in site.log.read(TP, 0, side.end):
            copy.read(entry_.offset, entry_.value)
        for tx, u in copy.ledger.undecided.items():
            if self.is_committed(side.site, tx):
                change(copy.objects, u.prepare.changes, 0)
        return copy.objects

    # --- what must hold ---

    def check(self) -> None:
        a, b = (s.state for s in self.sites.values())
        if a.lsn and (a.lsn, a.hash) == (b.lsn, b.hash):
            self.level()

    def level(self) -> None:
        west, east = self.sites["west"].copy.knows(), self.sites["east"].copy.knows()
        for name, known in west.items():
            assert known == east[name], f"{name} differ: {known} is not {east[name]}"

    def readers(self) -> None:
        for site in self.sites.values():
            check_readers(site.beginning(site.name), site.log, site.copy)
            assert len({m.merge for m in site.copy.merges}) == len(site.copy.merges), "merged, or undone, twice"
            undoings = site.state.undoings
            assert sorted(undoings) == sorted(self._undone(site.state)), "it knows of what was not undone, or not all"

    def _undone(self, state: ChainState) -> set[bytes]:
        """What was undone in any branch of this history, by the logs of both sites."""
        read = (records.decode(data) for site in self.sites.values() for data in site.log.entries)
        made = [r for r in read if isinstance(r, records.EpochMerged) and len(r.branches) == 1]
        epochs = {opened.epoch for opened in lineage_of(state)}
        return {r.merge for r in made if r.header.epoch in epochs}

    def finish(self) -> None:
        """The sites see each other again, and an operator makes one history of what they have."""
        for _ in range(6):
            if self._joined():
                break
        else:
            raise AssertionError("they do not come together")
        for site in self.sites.values():
            for session in site.sessions:
                site.land(session, 10_000)
        assert self._joined()
        self.level()
        self.readers()

    def _serving(self) -> Site:
        return next((s for s in self.sites.values() if not s.owner), self.sites["west"])

    def _joined(self) -> bool:
        source = self._serving()
        other = self.other(source.name)
        if not other.state.owner:
            if not source.serves:
                self.alone(source.name)
            source.land(source.writer.session, 10_000) if source.writer else None
            other.close(hand_over=False)
            relation = compare(history_of(source.state), history_of(other.state))
            if isinstance(relation, Behind) and relation.first:
                source.close(hand_over=False)
                self.alone(other.name)
                return False
            self.begun.clear()
            self.merge(source.name)
            while source.name in self.begun:
                self.go_on(source.name, 1)
            other.give(source, 1)
        elif source.state.owner:
            self.alone(source.name)
            return False
        other.bring_all(source)
        return bool(other.state.owner) and other.state.hash == source.state.hash

    def accounted(self) -> None:
        acknowledged = frozenset[bytes]().union(*(s.acknowledged for s in self.sites.values()))
        accounted(self.sites["west"].copy, acknowledged)


class _Coordinator:
    def __init__(self, site: Site) -> None:
        self._site = site

    def get(self, path: str) -> Any:
        closed = self._site.closed
        return None if closed is None else _Node(msgspec.json.encode(closed))


class _Node(msgspec.Struct):
    data: bytes


def _encode(found: Difference, fields: Fields) -> bytes:
    return b"made of %s" % found.key
