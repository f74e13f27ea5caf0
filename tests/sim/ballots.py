"""What must hold of transactions over several partitions, from the logs alone, as a dumb reader of all of them sees it.

Written from the rules T1-T7 and not from halog/core/log/transactions.py: a decision is looked up in the first
partition's log, then each participant's log is asked whether it says the same; the money is counted; and whoever read
what, in whichever partition, must fit into one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from halog.core.ids import ABSENT
from halog.core.log.records import Change, Commit, Horizon, Outcome, Prepare, Record
from tests.sim.bank_world import ACCOUNTS, BALANCE, Bank
from tests.sim.twin import history
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.teller import Deal


class Happened(NamedTuple):
    """What a transaction did in one partition."""

    lsn: int
    reads: tuple[tuple[bytes, int], ...]
    changes: tuple[Change, ...]


Done = dict[bytes, dict[str, Happened]]
"""By transaction and partition."""


class Told:
    """One partition's history."""

    def __init__(self, name: str, records: list[Record]) -> None:
        self.name = name
        self.records = records
        self.prepares: dict[bytes, Prepare] = {}
        self.outcomes: dict[bytes, Outcome] = {}
        """The first valid one of each id."""
        horizon = -1
        for r in records:
            tx = r.header.tx
            below = int.from_bytes(tx[:8], "big") <= horizon
            if isinstance(r, Horizon):
                left = self.prepares.keys() - self.outcomes.keys()
                demand(
                    all(int.from_bytes(t[:8], "big") > r.stamp for t in left), f"T6: {name}'s horizon passed a doubt"
                )
                horizon = max(horizon, r.stamp)
            elif isinstance(r, Prepare) and not below and tx not in self.outcomes:
                demand(tx not in self.prepares, f"T1: {name} prepared {tx.hex()} twice")
                self.prepares[tx] = r
            elif (
                isinstance(r, Outcome)
                and not below
                and tx not in self.outcomes
                and (not r.commit or tx in self.prepares)
            ):
                self.outcomes[tx] = r
        self.horizon = horizon

    def happened(self) -> Iterator[tuple[bytes, Happened]]:
        for r in self.records:
            tx = r.header.tx
            if isinstance(r, Commit) and r.changes:
                yield tx, Happened(r.header.lsn, (), r.changes)
            elif isinstance(r, Outcome) and r.commit and self.outcomes.get(tx) is r:
                prepare = self.prepares[tx]
                yield tx, Happened(r.header.lsn, prepare.reads, prepare.changes)


def finish(bank: Bank) -> None:
    """Everything, once all is quiet."""
    logs, done, lost = judged(bank)
    _copies_know_the_same(bank, logs)
    values = _values(done, logs)
    _same_money(bank, values)
    _serialisable(bank, done, lost=lost)


def judged(bank: Bank) -> tuple[dict[str, Told], Done, bool]:
    """What each partition's log says, once everybody was told the truth; what happened where; and whether anything was
    given up as lost."""
    logs: dict[str, Told] = {}
    for name, world in bank.worlds.items():
        accepted = history(world.log.entries)
        world.checks.exactly_once(accepted)
        world.checks.one_writer_per_epoch(accepted)
        world.checks.copies_agree(accepted)
        if not world.checks.lost:
            world.checks.discarded_is_nowhere(accepted)
        logs[name] = Told(name, [a.record for a in accepted])
    _one_decision(logs)
    done: Done = {}
    for name, log in logs.items():
        for tx, what in log.happened():
            done.setdefault(tx, {})[name] = what
    lost = any(w.checks.lost for w in bank.worlds.values())
    for deal in bank.deals():
        _told_the_truth(deal, done.get(deal.id), lost=lost)
    return logs, done, lost


def _one_decision(logs: dict[str, Told]) -> None:
    for name, log in logs.items():
        for tx, prepare in log.prepares.items():
            outcome, first = log.outcomes.get(tx), logs[prepare.first].outcomes.get(tx)
            demand(outcome is not None, f"D5: {tx.hex()} is in doubt in {name} for ever")
            assert outcome is not None
            decided = first is not None and first.commit
            demand(outcome.commit == decided, f"T2: {tx.hex()}: {name} says {outcome.commit}, its first {decided}")
            if decided:
                missing = [p for p in prepare.participants if not _commits(logs[p], tx)]
                demand(not missing, f"D4: {tx.hex()} committed in {name}, not in {missing}")


def _commits(log: Told, tx: bytes) -> bool:
    outcome = log.outcomes.get(tx)
    return outcome is not None and outcome.commit


def _told_the_truth(deal: Deal, done: dict[str, Happened] | None, *, lost: bool) -> None:
    if deal.told is True and not (lost and len(deal.parts) == 1):
        demand(done is not None, f"P1: {deal.name} was said to have happened")
        assert done is not None
        demand(tuple(sorted(done)) == deal.parts, f"D4: {deal.name} happened in {sorted(done)}, not {deal.parts}")
    elif deal.told is False:
        demand(done is None, f"P5: {deal.name} was said not to have happened, and did")


def _copies_know_the_same(bank: Bank, logs: dict[str, Told]) -> None:
    for name, world in bank.worlds.items():
        active = world.active()
        assert active is not None
        mine, log = active.partition.state.ledger, logs[name]
        kept = {tx: o.commit for tx, o in log.outcomes.items() if int.from_bytes(tx[:8], "big") > log.horizon}
        demand({tx: d.commit for tx, d in mine.decided.items()} == kept, f"T2: {name} remembers other decisions")
        for p in world.processes():
            its = p.partition.state.ledger
            same = (its.decided, its.horizon, dict(its.locks)) == (mine.decided, mine.horizon, dict(mine.locks))
            demand(same, f"T2: {p.name} remembers other decisions of {name} than {active.name}")
            p.copy.flush()
            on_disk = (p.node.disk.decided, p.node.disk.horizon) == (mine.decided, mine.horizon)
            demand(on_disk and not p.node.disk.undecided, f"T4: the disk of {p.name} remembers other decisions")


def _values(done: Done, logs: dict[str, Told]) -> dict[tuple[str, bytes], bytes]:
    """The accounts in the end; every change rests on the version it was made on, and so does every read."""
    values: dict[tuple[str, bytes], bytes] = {}
    for name, log in logs.items():
        now: dict[bytes, int] = {}
        for _, (lsn, reads, changes) in log.happened():
            for key, version in (*reads, *((c.key, c.replaced) for c in changes)):
                found = now.get(key, ABSENT)
                demand(found == version, f"T4: lsn {lsn} of {name} rests on {key!r} at {version}, not {found}")
            for c in changes:
                assert c.value is not None
                now[c.key], values[name, c.key] = lsn, c.value
    return values


def _same_money(bank: Bank, values: dict[tuple[str, bytes], bytes]) -> None:
    demand(sum(map(int, values.values())) == BALANCE * len(values), "D4: money came or went")
    for name, world in bank.worlds.items():
        active = world.active()
        assert active is not None
        shown = {(name, key): active.value(key) for key in ACCOUNTS if active.value(key) is not None}
        demand(shown == {k: v for k, v in values.items() if k[0] == name}, f"P2: {active.name} shows other accounts")
    for seen in bank.audits:
        there = [value for _, value in seen.values() if value is not None]
        lost = any(w.checks.lost for w in bank.worlds.values())
        demand(lost or sum(map(int, there)) == BALANCE * len(there), f"D4: an audit found {seen}")


def _serialisable(bank: Bank, done: Done, *, lost: bool) -> None:
    """No cycle among: wrote it before, read what it wrote, read what it replaced."""
    writers: dict[tuple[str, bytes], list[tuple[int, object]]] = {}
    readers: dict[tuple[str, bytes, int], list[object]] = {}
    for tx, parts in done.items():
        for name, what in parts.items():
            for key in {c.key for c in what.changes}:
                writers.setdefault((name, key), []).append((what.lsn, tx))
            for key, version in what.reads:
                readers.setdefault((name, key, version), []).append(tx)
    for number, seen in enumerate([] if lost else bank.audits):
        for (name, key), (version, _) in seen.items():
            readers.setdefault((name, key, version), []).append(number)
    after: dict[object, set[object]] = {}
    for (name, key), written in writers.items():
        order = [(ABSENT, None), *sorted(written, key=lambda w: w[0])]
        for (version, writer), following in zip(order, [*order[1:], (0, None)], strict=True):
            for reader in readers.get((name, key, version), []):
                after.setdefault(writer, set()).add(reader)
                after.setdefault(reader, set()).add(following[1])
            after.setdefault(writer, set()).add(following[1])
    after.pop(None, None)
    demand(not _cyclic(after), "D4: no order of the transactions explains what they read")


def _cyclic(after: dict[object, set[object]]) -> bool:
    """By taking away what nothing comes before, again and again."""
    nodes = {n for n in (*after, *(m for to in after.values() for m in to)) if n is not None}
    before = dict.fromkeys(nodes, 0)
    for node, to in after.items():
        for m in to - {None, node}:
            before[m] += 1
    free = [n for n in nodes if not before[n]]
    gone = 0
    while free:
        node = free.pop()
        gone += 1
        for m in after.get(node, set()) - {None, node}:
            before[m] -= 1
            if not before[m]:
                free.append(m)
    return gone < len(nodes)
