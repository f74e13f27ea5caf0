"""This module reads and changes partitions/<name>: one partition's table.

partitions/<name>    JSON: `halog.core.table.table.PartitionTable`, changed by compare-and-set only
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from halog.core.table.table import PartitionTable
from halog.errors import CoordinatorError, HalogError, OutcomeUnknownError, RefusedError, UnknownNameError
from halog.metadata.cas import attempts
from halog.ports import Coordinator

ATTEMPTS = 20
"""A znode changes with each node that joins or leaves: in no real cluster is somebody else quicker so often."""

TableReport = Callable[[PartitionTable, PartitionTable], None]
"""Called with a change once it is set: what it was made of, and what it came to."""


def untold(before: PartitionTable, now: PartitionTable) -> None:
    """Tell nobody: the change is not reported, or nodes report it."""


def change_table(
    coordinator: Coordinator,
    partition: str,
    change: Callable[[PartitionTable], PartitionTable],
    told: TableReport = untold,
) -> PartitionTable:
    """Set what `change` makes of the table as it is now; return the new table.

    `change` is asked again where no answer came, and then changes nothing of what it has done already; `told` is called
    then, too. Raises OutcomeUnknownError where an unanswered change ends in another error, unless that error says that
    it has looked (`judged`): the table may have changed, or not.
    """
    unanswered: list[tuple[PartitionTable, PartitionTable]] = []
    try:
        return _changed(coordinator, partition, change, told, unanswered)
    except HalogError as e:
        if not unanswered or "judged" in e.evidence:
            raise
        raise OutcomeUnknownError(
            f"it is not known whether the table of {partition} was changed: no answer came, and then: {e.message}; "
            f"look at it with `halog partition show {partition}`, and ask again if it was not",
            partition=partition,
        ) from e


def _changed(
    coordinator: Coordinator,
    partition: str,
    change: Callable[[PartitionTable], PartitionTable],
    told: TableReport,
    unanswered: list[tuple[PartitionTable, PartitionTable]],
) -> PartitionTable:
    for attempt in attempts(coordinator, f"partitions/{partition}", ATTEMPTS):
        if attempt.found is None:
            raise UnknownNameError.of("partition", partition, coordinator.children("partitions"))
        table = PartitionTable.from_bytes(attempt.found.data)
        changed = change(table)
        if changed == table:
            if unanswered:
                told(*unanswered[-1])
            return table
        if attempt.write(changed.to_bytes()):
            told(table, changed)
            return changed
        if attempt.unanswered:  # if it landed, the next attempt finds nothing to change
            unanswered.append((table, changed))
    raise RefusedError(f"the table of {partition} changes too often to be changed; try again", partition=partition)


def table_of(coordinator: Coordinator, partition: str) -> PartitionTable:
    """Return the table as the site of this coordinator has it. Raises CoordinatorError if it has none."""
    found = coordinator.get(f"partitions/{partition}")
    if found is None:
        raise CoordinatorError(f"there is no partition {partition}", partition=partition)
    return PartitionTable.from_bytes(found.data)


def serves(there: Coordinator, table: PartitionTable) -> bool:
    """Say whether the other site is to serve this very history, by its own word. (One set up anew has another history
    of this name.)"""
    theirs = its_table(there, table)
    return theirs is not None and not theirs.owner


def its_table(there: Coordinator, table: PartitionTable) -> PartitionTable | None:
    """Return what the other site has of this very history."""
    found = there.get(f"partitions/{table.name}")
    theirs = None if found is None else PartitionTable.from_bytes(found.data)
    return theirs if theirs is not None and theirs.log_id == table.log_id else None


def read_tables(coordinator: Coordinator) -> dict[str, PartitionTable]:
    """Return every partition's table, by its name."""
    return {name: table for name, (_, table) in read_versions(coordinator, coordinator.children("partitions")).items()}


def read_versions(coordinator: Coordinator, names: Iterable[str]) -> dict[str, tuple[int, PartitionTable]]:
    """Return the tables of those of these partitions that exist, each with its znode's version."""
    listed = list(names)
    found = zip(listed, coordinator.get_many([f"partitions/{name}" for name in listed]), strict=True)
    return {name: (z.version, PartitionTable.from_bytes(z.data)) for name, z in found if z is not None}
