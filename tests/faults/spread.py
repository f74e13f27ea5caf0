"""Clients whose every transaction is over several partitions, and the judge of what they did (D4, D5).

Transfers take from an account and give to one in another partition, by methods on the active nodes of both; audits read
all accounts; lists of several partitions are read and appended to. Each writes something, a ticket at least: so what it
read is checked at its commit, by votes (without, a node may answer that does not know that it was replaced). Whatever
happens, the money is the same in every audit, each transaction stands in all the logs it was to change or in none, and
one order of them all explains what was read.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from halog.transactions.node import Node as Verbs
from tests.faults import serializability
from tests.faults.clients import BLOCK_S, Clients, History, main, transact
from tests.faults.history import Outcome
from tests.faults.recorder import Pair, Step, transactions
from tests.faults.verdict import ENOUGH
from tests.integration.cluster import checker
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait

ACCOUNTS = ("a0", "a1")
"""In each partition; together they hold nothing, at any time."""
WRITES = frozenset({"add", "append"})


class Spread(Clients):
    """Threads of this process that work over all partitions."""

    module = __name__

    def _plan(self, rng: random.Random, group: str, value: int) -> tuple[list[Step], bool]:
        others = rng.sample([g for g in self.groups.values() if g != group], len(self.groups) - 1)
        dice = rng.random()
        if dice < 0.4:
            amount = rng.randint(1, 9)
            return [
                Step("add", group, rng.choice(ACCOUNTS), -amount),
                Step("add", others[0], rng.choice(ACCOUNTS), amount),
            ], True
        if dice < 0.6:
            return list(self._audit()), True
        name = f"l{int(time.monotonic() // BLOCK_S)}{rng.choice('xyz')}"
        places = [group, *others[: rng.randint(1, len(others))]]
        if dice < 0.7:
            return [Step("list", place, name) for place in places], True
        return list(_read_and_append(rng, places, name, value)), True

    def _audit(self) -> Iterator[Step]:
        return (Step("look", group, name) for group in self.groups.values() for name in ACCOUNTS)

    def read_all(self, node: Verbs) -> None:
        """Every list, and all accounts once more, after all else."""
        lists = {(s.group, s.name) for p in self.pairs() for s in p.began.steps if s.kind in ("append", "list")}
        for group, name in sorted(lists):
            assert transact(self.recorder, node, f"{self.name}end", [Step("list", group, name)]) is Outcome.OK
        assert transact(self.recorder, node, f"{self.name}end", list(self._audit())) is Outcome.OK

    def parts(self) -> dict[str, str]:
        """The partition of each group."""
        return {group: partition for partition, group in self.groups.items()}


def _read_and_append(rng: random.Random, places: Sequence[str], name: str, value: int) -> Iterator[Step]:
    """Into two of them at least."""
    for n, place in enumerate(places):
        yield Step("list", place, name)
        if n < 2 or rng.random() < 0.5:
            yield Step("append", place, name, value + n)


# --- the judge ---


def judge(cluster: Cluster, clients: Spread, *others: History) -> list[Pair]:
    """Everything; the transactions that were judged."""
    assert clients.errors == []
    wait(lambda: not in_doubt(cluster), lambda: f"everything is decided; in doubt: {in_doubt(cluster)}")
    clients.read_all(cluster.client())
    found = [p for h in (clients, *others) for p in h.pairs()]
    settled = checker.check(cluster)
    happened_whole(found, {name: h.ids for name, h in settled.items()}, clients.parts())
    appended_whole(found)
    conserved(found)
    anomalies = serializability.check(list(transactions(found)))
    assert not anomalies, "not serialisable:\n" + "\n".join(f"{a.kind}: {a.what[:500]}" for a in anomalies[:5])
    return found


def in_doubt(cluster: Cluster) -> list[str]:
    """Transactions that are prepared and not decided, by the logs."""
    found = (checker.history(cluster, p).prepared for p in cluster.partitions())
    return [tx.hex() for prepared in found for tx, changes in prepared.items() if changes]


def happened_whole(
    found: Sequence[Pair], ids: Mapping[str, Mapping[bytes, list[int]]], parts: Mapping[str, str]
) -> None:
    """By the logs each is once in all it was to change, or in none; what was acknowledged is, what failed is not.
    `ids`: of each partition, what happened there and at which lsns; `parts`: of each group, its partition."""
    wrong, ok = list[str](), 0
    for p in found:
        wanted = {parts[s.group] for s in p.began.steps if s.kind in WRITES}
        if p.ended is None or not p.ended.tx or not wanted:
            continue
        tx = bytes.fromhex(p.ended.tx)
        there = {name for name in wanted if tx in ids[name]}
        ok += p.outcome is Outcome.OK
        of_outcome: dict[Outcome, list[set[str]]] = {
            Outcome.OK: [wanted],
            Outcome.FAILED: [set()],
            Outcome.UNKNOWN: [wanted, set()],
        }
        explained = of_outcome[p.outcome]
        if there not in explained or any(len(ids[name][tx]) > 1 for name in there):
            wrong.append(
                f"{p.ended.tx} of {p.began.process} was {p.outcome.value}: in {sorted(there)} of {sorted(wanted)}"
            )
    assert not wrong, f"{len(wrong)} transactions did not happen as told:\n" + "\n".join(wrong[:5])
    assert ok >= ENOUGH // 3, f"too little happened to prove anything: {ok} transactions"


def appended_whole(found: Sequence[Pair]) -> None:
    """By the lists as they were read last, also what a killed client was at: all that it appended is there, or none."""
    last: dict[str, tuple[int, ...]] = {}
    for p in found:
        if p.outcome is Outcome.OK and p.ended is not None:
            read = {s.key: r for s, r in zip(p.began.steps, p.ended.results, strict=True) if s.kind == "list"}
            last |= {key: r for key, r in read.items() if len(r) >= len(last.get(key, ()))}
    half = []
    for p in found:
        there = [s.argument in last.get(s.key, ()) for s in p.began.steps if s.kind == "append"]
        if any(there) and not all(there):
            half.append(p)
    assert not half, f"half of {len(half)} transactions is there: {half[:3]}"


def conserved(found: Sequence[Pair]) -> None:
    """The accounts hold nothing together, as every audit saw it."""
    audits = [p for p in found if p.outcome is Outcome.OK and all(s.kind == "look" for s in p.began.steps)]
    wrong = [p for p in audits if p.ended is not None and sum(v for (v,) in p.ended.results) != 0]
    assert not wrong, f"{len(wrong)} of {len(audits)} audits saw half of a transfer: {wrong[:3]}"
    assert len(audits) >= ENOUGH // 15, f"too little was seen to prove anything: {len(audits)} audits"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Spread)
