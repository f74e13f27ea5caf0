"""A merge's id may be cut: people type as many of its first digits as tell it apart from others. Tables show twelve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from halog.errors import UnknownNameError

NAME_DIGITS = 32
"""The id of a merge of two branches has so many digits: it is a hash of 16 bytes."""

LISTED = 10
"""An error names so many ids."""


def whole(connection: ClusterConnection, tables: Iterable[PartitionTable], said: str | None) -> str | None:
    """Return the id that begins so, of the merges that the logs of these partitions still have. If there is none,
    return what was said. ConfigError if there are several, or if these are no digits."""
    if said is None:
        return None
    (found,) = {*meant(connection, tables, said).values()} or {said}
    return found


def known(connection: ClusterConnection, tables: Iterable[PartitionTable], said: str | None) -> str | None:
    """Return the id as `whole` does. UnknownNameError if the logs have no merge of this id."""
    from halog.cli.merge.log_reports import reports

    tables = list(tables)
    found = whole(connection, tables, said)
    if found is not None and all(r.name.hex() != found for t in tables for r in reports(connection, t)):
        raise unknown(tables, found)
    return found


def unknown(tables: Iterable[PartitionTable], said: str) -> UnknownNameError:
    """Return the error that the logs of these partitions have no merge of this id."""
    from halog.errors import UnknownNameError

    return UnknownNameError(
        f"there is no merge {said} in the logs{of(tables)}: `halog conflicts show` lists those they have, for --merge",
        kind="merge",
        name=said,
    )


def meant(connection: ClusterConnection, tables: Iterable[PartitionTable], said: str) -> dict[str, str]:
    """Return, by partition, the id that begins so; partitions without such a merge are left out. A whole id is looked
    for in no log: it may be of any of them."""
    from halog.cli.merge.log_reports import reports
    from halog.errors import ConfigError

    tables = list(tables)
    if not said or any(c not in "0123456789abcdef" for c in said):
        raise ConfigError(
            f"{said!r} is no id of a merge: give its hex digits, or the first, as `halog conflicts show` lists them"
        )
    if is_whole(said):
        return dict.fromkeys((t.name for t in tables), said)
    found = [(t.name, r.name.hex()) for t in tables for r in reports(connection, t) if r.name.hex().startswith(said)]
    exact = [(partition, merge) for partition, merge in found if merge == said]
    if len({merge for _, merge in exact or found}) > 1:
        listed = ", ".join(f"{merge} ({partition})" for partition, merge in found[:LISTED])
        more = f", and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise ConfigError(f"the ids of {len(found)} merges begin with {said}: {listed}{more}; say more digits of one")
    return dict(exact or found)


def is_whole(said: str) -> bool:
    """Is it all of an id? The id of an undoing is a word, then the id of what it undoes. Of such an id even a long
    beginning may not be all."""
    from restore.undoings import undoing

    word = undoing(b"").hex()
    while len(said) > NAME_DIGITS and said.startswith(word):
        said = said[len(word) :]
    return len(said) == NAME_DIGITS and not said.startswith(word)


def of(tables: Iterable[PartitionTable]) -> str:
    """Return " of" and the names of these partitions; nothing where there are none."""
    names = ", ".join(t.name for t in tables)
    return f" of {names}" if names else ""
