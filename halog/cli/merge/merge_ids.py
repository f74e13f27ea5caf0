"""The id of a merge as people type it: as many of its first digits as tell it apart from others, twelve as tables have
them, say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.core.table.table import PartitionTable


if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection
    from halog.core.table.table import PartitionTable
    from halog.errors import UnknownNameError

NAME_DIGITS = 32
"""Of a merge of two branches: a hash of 16 bytes."""

LISTED = 10
"""Ids that an error names."""


def whole(connection: Connection, tables: Iterable[PartitionTable], said: str | None) -> str | None:
    """The id that begins so, of the merges that the logs of these partitions still have; as it was said if there is
    none. ConfigError if there are several, or these are no digits."""
    if said is None:
        return None
    (found,) = {*meant(connection, tables, said).values()} or {said}
    return found


def known(connection: Connection, tables: Iterable[PartitionTable], said: str | None) -> str | None:
    """The same; UnknownNameError if the logs have none that is called so."""
    from halog.cli.merge.log_reports import reports

    tables = list(tables)
    found = whole(connection, tables, said)
    if found is not None and all(r.name.hex() != found for t in tables for r in reports(connection, t)):
        raise unknown(tables, found)
    return found


def unknown(tables: Iterable[PartitionTable], said: str) -> UnknownNameError:
    """Nothing that the logs of these partitions have is called so."""
    from halog.errors import UnknownNameError

    return UnknownNameError(
        f"there is no merge {said} in what the logs have{of(tables)}: `halog conflicts show` tells which there were, "
        "for --merge",
        kind="merge",
        name=said,
    )


def meant(connection: Connection, tables: Iterable[PartitionTable], said: str) -> dict[str, str]:
    """By partition, the same; those without it are left out. What is whole already is looked for in no log: it may be
    of any of them."""
    from halog.cli.merge.log_reports import reports
    from halog.errors import ConfigError

    tables = list(tables)
    if not said or any(c not in "0123456789abcdef" for c in said):
        raise ConfigError(f"{said!r} is no id of a merge: hex digits, as `halog conflicts show` tells, or the first")
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
    """Is it all of an id? That of an undoing is a word, and the id of what it undoes: what begins with the word may be
    less than all of one."""
    from restore.undoings import undoing

    word = undoing(b"").hex()
    while len(said) > NAME_DIGITS and said.startswith(word):
        said = said[len(word) :]
    return len(said) == NAME_DIGITS and not said.startswith(word)


def of(tables: Iterable[PartitionTable]) -> str:
    """Of which partitions, in words; nothing where there are none."""
    names = ", ".join(t.name for t in tables)
    return f" of {names}" if names else ""
