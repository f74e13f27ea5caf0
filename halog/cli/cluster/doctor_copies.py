"""`halog doctor` compares the copies of each partition by the hash of their objects (U1). It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from halog.cli.cluster.doctor_checks import Finding
from halog.errors import HalogError

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.shared.copy_hashes import CopyComparison

NAME: Final = "copies"
ANSWER_S: Final = 5.0
"""A node that has not counted a copy yet does so when it is asked: a million objects take it some seconds."""
SCAN_S: Final = 120.0
"""A node that looks at what it has stored, object by object."""


def check(connection: ClusterConnection, *, deep: bool) -> list[Finding]:
    """Compare all copies of all partitions that are placed, as far as their nodes answer. `deep`: each node looks also
    whether its store holds what was written to it."""
    from halog.cli.shared.copy_hashes import compare_copies

    tables = [table for table in connection.tables if table.configured]
    compared = compare_copies(connection, tables, SCAN_S if deep else ANSWER_S, scan=deep)
    return list(findings(compared, deep=deep))


def findings(compared: Sequence[CopyComparison], *, deep: bool) -> Iterator[Finding]:
    """Yield what became of the comparison: each copy that differs, then what could not be compared; else one row."""
    wrong = [*_differing(compared), *(_altered(compared) if deep else ())]
    unsure = [*_unmatched(compared), *_silent(compared)]
    yield from wrong
    yield from unsure
    if not wrong and not unsure:
        count = sum(len(c.said) for c in compared)
        held = ", and stores hold what was written to them" if deep else ""
        partitions = f"{len(compared)} partition{'s' if len(compared) != 1 else ''}"
        found = f"{count} copies of {partitions}, equal at the lsns they have in common{held}"
        yield Finding(NAME, "ok", found)


def _differing(compared: Sequence[CopyComparison]) -> Iterator[Finding]:
    for c in compared:
        for d in c.differing:
            found = f"copy of {c.partition} on {d.node} differs from {d.other}'s at lsn {d.lsn}"
            yield Finding(NAME, "fail", found, _anew(d.node))


def _altered(compared: Sequence[CopyComparison]) -> Iterator[Finding]:
    for c in compared:
        for node, said in c.answers.items():
            if said.scanned and said.scanned != said.hash:
                found = f"the store of {node} does not hold what was written to it of {c.partition}, at lsn {said.lsn}"
                yield Finding(NAME, "fail", found, _anew(node))


def _anew(node: str) -> str:
    return f"stop {node}, move its data_dir aside, start it: it makes its copies anew from the log"


def _unmatched(compared: Sequence[CopyComparison]) -> Iterator[Finding]:
    for c in compared:
        for node in c.unmatched:
            found = (
                f"copy of {c.partition} on {node} is at lsn {c.answers[node].lsn}, and has none in common with others"
            )
            yield Finding(NAME, "warn", found, "see its lag in `halog status`, and ask again once it has caught up")


def _silent(compared: Sequence[CopyComparison]) -> Iterator[Finding]:
    """Yield one row for each node that says nothing of some of its copies."""
    of: dict[str, list[HalogError]] = {}
    for c in compared:
        for node, error in c.silent.items():
            of.setdefault(node, []).append(error)
    for node, errors in sorted(of.items()):
        many = f"{len(errors)} copies" if len(errors) > 1 else "one copy"
        yield Finding(NAME, "warn", f"{node} says nothing of {many}: {errors[0].message}", "see `halog status`")
