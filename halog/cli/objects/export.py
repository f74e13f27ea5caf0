"""This module has the command `halog export`. It writes objects as JSON lines, lossless, by their stored
definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.files import is_standard, written_whole
from halog.cli.shared.messages import progress
from halog.cli.shared.options import Name, output_option
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.errors import HalogError


@click.command()
@click.argument("types", type=Name(), metavar="[TYPE]...", nargs=-1)
@output_option
@cluster_options
def export(types: tuple[str, ...], target: Path, options: ClusterOptions) -> None:
    """Write objects to a file, one JSON document a line; all types, or those named with their subclasses.

    Each line holds type, key, fields and reference. No value is lost: decimals, dates and UUIDs are text, bytes are
    hex, not-a-number and infinities have names. Each partition is read from its active node page by page: an object is
    as some transaction left it, but two objects may be of two moments. The file appears when it is complete; its last
    line says how many objects it has, and their checksum. "of" is how many objects the nodes count by themselves. If
    nothing is written meanwhile, the export fails unless it has them all. To `-`, standard output, they go as they are
    read, and the summary goes to stderr.

    \b
    Examples:
      halog export -o all.jsonl
      halog export Aircraft Airport -o places.jsonl
      halog export Flight -o flights.jsonl --format json
      halog export -o - | gzip > all.jsonl.gz
    """

    with options.connect() as connection, written_whole(target) as out:
        counts, there = write_lines(connection, _families(connection, types), out)
    document = {"file": str(target), "objects": counts.total(), "of": there.total(), "types": dict(counts)}
    rows = [(name, counts[name], there[name]) for name in dict.fromkeys([*counts, *there])]
    rows.append(("all", counts.total(), there.total()))
    emit(options.format, document, ["type", "objects", "of"], rows, aside=is_standard(target))


def _families(connection: ClusterConnection, types: Sequence[str]) -> dict[bytes, frozenset[str]]:
    """Return {id of a key space: the type names wanted of it}. Without types, it is everything kept at this site."""
    definitions = connection.definitions
    here = {d.name for d in definitions.all() if connection.places.policy_of(d.name) is not None}
    named = types or sorted(here)
    wanted: dict[bytes, frozenset[str]] = {}
    for name in named:
        family = definitions.current(name).family_id
        all_of_it = frozenset(definitions.family(name))
        wanted[family] = wanted.get(family, frozenset()) | (all_of_it if types else all_of_it & here)
    return wanted


def write_lines(
    connection: ClusterConnection, families: dict[bytes, frozenset[str]], out: IO[str]
) -> tuple[Counter[str], Counter[str]]:
    """Write every object of the families, and the checksum line. Return how many of each type were written, and how
    many the nodes counted before. HalogError if the two differ although nothing was written meanwhile."""
    from halog.cli.shared.export_sum import ChecksumWriter

    summing, there = ChecksumWriter(out), Counter[str]()
    connection.check_settled(connection.policies_of([name for names in families.values() for name in sorted(names)]))
    places = [(family, p) for family, names in families.items() for p in _partitions(connection, sorted(names))]
    with progress() as bar:
        task = bar.add_task("partitions", total=len(places), note="")
        for family, partition in places:
            expected, lsn = _counted(connection, family, families[family], partition)
            there += expected
            before = summing.types.copy()
            for name, shown in _described(connection, family, families[family], partition):
                summing.write(name, shown)
                if summing.types[name] % 1000 == 0:
                    bar.update(task, note=f"{summing.types.total():,} objects")
            written = summing.types - before
            if written != expected and _counted(connection, family, families[family], partition) == (expected, lsn):
                raise _short(partition, written, expected)
            bar.advance(task)
    summing.end()
    return summing.types, there


def _short(partition: str, written: Counter[str], expected: Counter[str]) -> HalogError:
    from halog.errors import HalogError

    return HalogError(
        f"of the {expected.total():,} objects of {partition} that its active node counts, {written.total():,} were "
        "read: this is a bug in halog; the export is not complete",
        partition=partition,
    )


def _counted(
    connection: ClusterConnection, family: bytes, names: frozenset[str], partition: str
) -> tuple[Counter[str], int]:
    """Return how many objects of the types the active node counts, and where in its log that was."""
    counted, lsn = connection.count(partition, family)
    found = Counter[str]()
    for type_id, n in counted.items():
        found[connection.definitions.foreign(type_id).name] += n
    return Counter({name: n for name, n in found.items() if name in names}), lsn


def _partitions(connection: ClusterConnection, names: Sequence[str]) -> list[str]:
    policies = connection.policies_of(names)
    return [t.name for t in connection.tables if t.policy in policies]


def _described(
    connection: ClusterConnection, family: bytes, names: frozenset[str], partition: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    from halog.cli.shared.values import describe

    definitions = connection.definitions
    for found in connection.scan(partition, family):
        shown = describe(definitions, found)
        if shown["type"] in names:
            yield shown["type"], shown
