"""Whether clients were told the truth, and whether what they saw has an explanation: the judge's reasoning, without a
cluster."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults import linearizability, serializability
from tests.faults.history import Outcome
from tests.faults.recorder import Pair, operations, transactions
from tests.integration.cluster.checker import History

REGISTERS = frozenset({"write", "swap", "read"})
COUNTERS = frozenset({"add", "see"})
ENOUGH = 150
"""Acknowledged transactions before clients may stop; fewer prove little."""


def told_the_truth(found: Sequence[Pair], settled: dict[str, History]) -> None:
    """Acknowledged transactions stand in the log once, where their callers were told; failed ones nowhere."""
    known = {tx for h in settled.values() for tx in h.ids}
    ok = [p for p in found if p.outcome is Outcome.OK and p.ended is not None and p.ended.tx]
    assert len(ok) >= ENOUGH // 2, "too little happened to prove anything"
    lost = [p for p in ok if not _stands(p, settled)]
    assert not lost, f"{len(lost)} of {len(ok)} acknowledged transactions are not in the log as told: {lost[:3]}"
    failed = [p for p in found if p.outcome is Outcome.FAILED and p.ended is not None and p.ended.tx]
    seen = [p for p in failed if p.ended is not None and bytes.fromhex(p.ended.tx) in known]
    assert not seen, f"{len(seen)} failed transactions stand in the log: {seen[:3]}"


def _stands(p: Pair, settled: dict[str, History]) -> bool:
    assert p.ended is not None
    return settled[p.began.partition].ids.get(bytes.fromhex(p.ended.tx)) == [p.ended.lsn]


def explained(found: Sequence[Pair]) -> None:
    """Registers and counters are linearizable, lists strictly serialisable (plain reads: serialisable)."""
    wrong = [
        *linearizability.check(operations(found, REGISTERS), linearizability.register),
        *linearizability.check(operations(found, COUNTERS), linearizability.counter),
    ]
    assert not wrong, "not linearizable:\n" + "\n".join(str(v)[:3_000] for v in wrong[:3])
    anomalies = serializability.check(list(transactions(found)))
    assert not anomalies, "not serialisable:\n" + "\n".join(f"{a.kind}: {a.what[:500]}" for a in anomalies[:5])
