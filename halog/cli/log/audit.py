"""`halog audit` shows who asked for what, and what came of it (O4, Q5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from halog.audit import DONE, FAILED, LOST, REFUSED
from halog.cli.log.events import moment
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.options import Text, number_of
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.audit import AuditEntry
    from halog.cli.shared.connection import ClusterConnection

COLUMNS = ("time", "principal", "role", "from", "command", "outcome", "what")


@click.command()
@click.option(
    "--since", type=Text(), callback=moment, metavar="ISO", help="Only entries from then on; UTC if it names no zone."
)
@click.option("--until", type=Text(), callback=moment, metavar="ISO", help="Only entries before then.")
@click.option("--principal", type=Text(), metavar="NAME", help="Only of this one: `user olga`, or olga.")
@click.option("--command", "words", type=Text(), metavar="WORDS", help="Only this command or request, or its group.")
@click.option("--outcome", type=click.Choice([DONE, REFUSED, FAILED, LOST]), help="Only what came out so.")
@click.option("-n", "count", type=number_of(), help="Only this many, the last ones.")
@cluster_options
def audit(
    since: int | None,
    until: int | None,
    principal: str | None,
    words: str | None,
    outcome: str | None,
    count: int | None,
    options: ClusterOptions,
) -> None:
    """Show who asked for what, and what came of it: commands that change something, and requests to nodes.

    Nodes write what operators ask them for, and whom they refuse; commands write what they do. Entries are kept for a
    year. A principal is proven where a node saw the certificate; what a command says of itself is marked as claimed.
    With --format json there is one document, a list of entries.

    \b
    Examples:
      halog audit -n 20
      halog audit --outcome refused --since 2026-11-21
      halog audit --principal olga --command "config activate"
    """
    from halog.cli.shared.event_log import time_text

    def wanted(entry: AuditEntry) -> bool:
        return (
            (since is None or entry.time_ms >= since)
            and (until is None or entry.time_ms < until)
            and (principal is None or principal in (entry.principal, entry.principal.partition(" ")[2]))
            and (words is None or f"{entry.command} ".startswith(f"{words} "))
            and (outcome is None or entry.outcome == outcome)
        )

    with options.connect() as connection:
        found = deque((entry for entry in _entries(connection) if wanted(entry)), count)
    document = [_document(entry, time_text(entry.time_ms)) for entry in found]
    emit(options.format, document, COLUMNS, (_row(entry, time_text(entry.time_ms)) for entry in found))


def _entries(connection: ClusterConnection) -> Iterator[AuditEntry]:
    """Yield every entry once, in the order in which they were written."""
    from halog.audit import AuditEntry
    from halog.errors import RecordFormatError
    from halog.ports import TopicPartition
    from halog.runtime.topics.topic_names import audit_topic

    tp = TopicPartition(audit_topic(connection.config.cluster.name), 0)
    if not connection.adapters.log.partitions(tp.topic):
        say(f"there is no topic {tp.topic} yet; the next node of this release that starts makes it")
        return
    seen = set[str]()
    for item in connection.read(tp, *connection.adapters.log.bounds(tp, connection.timeout_s)):
        try:
            entry = AuditEntry.from_bytes(item.value)
        except RecordFormatError as error:
            say(f"offset {item.offset} of {tp.topic} is passed over: {error.message}")
            continue
        if entry.id not in seen:
            seen.add(entry.id)
            yield entry


def _document(entry: AuditEntry, time: str) -> dict[str, Any]:
    import msgspec

    return {"time": time, **msgspec.to_builtins(entry)}


def _row(entry: AuditEntry, time: str) -> tuple[str, ...]:
    whom = entry.principal if entry.proven else f"{entry.principal} (claimed)"
    command = f"{entry.command} (dry run)" if entry.dry_run else entry.command
    code = "" if entry.exit_code in (None, 0) else f" ({entry.exit_code})"
    times = [f"{entry.count} times"] if entry.count > 1 else []
    given = [f"{name}={_text(value)}" for name, value in entry.arguments.items()]
    what = "; ".join(filter(None, [" ".join(given), *times, entry.reason]))
    return time, whom, entry.role or "-", entry.address or "-", command, f"{entry.outcome}{code}", what


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
