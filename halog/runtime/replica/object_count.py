"""This module counts the objects of a partition, on the copy that is active (P6).

Nobody counts before somebody asks. What a store holds is counted once, by reading all its keys beside the work of the
partition. From then on what commits create and delete is added, at the cost of a look at each change. A copy that is
active no more forgets its count, since it may be copied anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from halog.core.keys.directory import is_entry
from halog.core.log import records
from halog.core.log.records import CREATE, DELETE
from halog.core.log.transactions import Applied, DecidedTransaction

if TYPE_CHECKING:
    from halog.runtime.store.object_table import ObjectTable

LOOK: Final = 10_000
"""Keys between two looks whether the node closes."""


class ObjectCount:
    """Counts the objects of one copy. Changes run under the partition's lock."""

    def __init__(self, table: ObjectTable) -> None:
        self._table = table
        self._counted: int | None = None
        self._since: int | None = None
        """Created since the count began, less what was deleted; None: nobody has asked."""

    @property
    def objects(self) -> int | None:
        """Return how many there are; None: not counted yet."""
        counted, since = self._counted, self._since
        return None if counted is None or since is None else counted + since

    def took(self, accepted: Iterable[Applied]) -> None:
        """Take records into the count."""
        if self._since is None:
            return
        for record in accepted:
            commit = record.commit if isinstance(record, DecidedTransaction) else record
            if isinstance(commit, records.Commit):
                self._since += sum((c.op == CREATE) - (c.op == DELETE) for c in commit.changes if not is_entry(c.key))

    def forget(self) -> None:
        """Forget the count: it is to be made anew."""
        self._counted = self._since = None

    def count(self, closing: Callable[[], bool]) -> None:
        """Read all keys, with no lock held meanwhile. One thread at a time."""
        with self._table.lock:
            self._table.save()
            source = self._table.store.snapshot()
            self._counted = None
            self._since = 0
        found = 0
        for i, (key, _) in enumerate(self._table.objects(source)):
            if i % LOOK == 0 and closing():
                return
            found += not is_entry(key)
        with self._table.lock:
            if self._since is not None:
                self._counted = found
