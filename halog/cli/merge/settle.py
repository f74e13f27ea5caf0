"""This module has the command `halog conflicts settle`. It decides what a merge left to an operator (M2, M3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from halog.cli.merge.merge_ids import known, whole
from halog.cli.merge.reports import READ_S, conflicts as conflicts
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.options import Name, Text, of_arguments, reason_option
from halog.cli.shared.output import emit
from halog.cli.shared.with_home import partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.merge.settlement import Case, CaseOutcome, OperatorChoice
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable

STATES = ("source", "initiating", "base", "nothing")


class Fields(click.ParamType[Mapping[str, Any]]):
    """Takes a JSON object."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, Any]:
        try:
            said = json.loads(str(value))
        except (ValueError, RecursionError) as error:
            self.fail(f"no JSON: {str(error)[:200]}", param, ctx)
        if not isinstance(said, dict):
            self.fail('give a JSON object, as {"gate": "A12"}', param, ctx)
        return said


@conflicts.command("settle")
@click.argument("type_name", type=Name(), metavar="[TYPE", required=False)
@click.argument("key", type=Text(), metavar="KEY...]", nargs=-1)
@click.option("--as", "choice", type=click.Choice(STATES), help="The state that should stand.")
@click.option("--fields", type=Fields(), metavar="JSON", help="Change these of its fields.  [default: of the source's]")
@click.option("--all", "everything", is_flag=True, help="Everything that waits for an operator.")
@click.option(
    "--merge", "merge", type=Name(), metavar="ID", help="Only what this merge left; the first digits will do."
)
@partition_option
@click.option("--force", is_flag=True, help="Settle it even if the object was changed since the merge.")
@click.option("--dry-run", is_flag=True, help="Show what would stand, and change nothing.")
@reason_option
@cluster_options_after(READ_S, "Give up (exit 3 or 6) after this long.")
def settle(
    type_name: str | None,
    key: tuple[str, ...],
    choice: str | None,
    fields: Mapping[str, Any] | None,
    everything: bool,
    merge: str | None,
    names: tuple[str, ...],
    force: bool,
    dry_run: bool,
    reason: str,
    options: ClusterOptions,
) -> None:
    """Settle a conflict that a merge left to an operator: say what should stand. Give it at the site that serves.

    TYPE and KEY are as for `halog get`. What stands then is what one of the sites had, what was there when they parted
    (base), or nothing. --fields changes some of its fields, or gives all of them if nothing was there. It is an
    ordinary commit: the other site mirrors it. What stands already is written, too, so that it is known to be settled.

    Refused (exit 5), and nothing changed, if the object does not stand any more as the merge left it. With --all each
    conflict is settled on its own, and exit code 5 says that some are not.

    \b
    Examples:
      halog conflicts settle Flight LH4 --as initiating --reason "the west's gate is right"
      halog conflicts settle Flight LH4 --as initiating --fields '{"gate": "B7"}'
      halog conflicts settle Flight LH9 --as nothing --dry-run
      halog conflicts settle --all --partition flights-0 --as source
    """
    from halog.cli.merge.settlement import OperatorChoice

    _check_usage(type_name, key, choice, fields, everything=everything, force=force)
    wanted = OperatorChoice(choice or "source", type_name or "", fields)
    with options.connect() as connection:
        for name in names:
            connection.table(name)
        if type_name is None:
            cases = _all_open(connection, names, merge)
        else:
            cases = [_named(connection, type_name, key, names, merge)]
        outcomes = _settled(connection, cases, wanted, reason, force=force, dry_run=dry_run)
        documents = [_document(connection, o) for o in outcomes]
    if type_name is not None and outcomes[0].error is not None:
        raise outcomes[0].error
    _emit(options.format, documents if type_name is None else documents[0], documents, dry_run=dry_run)
    if any(o.error is not None for o in outcomes):
        raise click.exceptions.Exit(REFUSED_EXIT)


def _settled(
    connection: ClusterConnection,
    cases: Iterable[Case],
    wanted: OperatorChoice,
    reason: str,
    *,
    force: bool,
    dry_run: bool,
) -> list[CaseOutcome]:
    """Settle the cases, and write each commit into the event history. An error says how many were settled before it."""
    from halog.cli.merge.settlement import settled
    from halog.errors import HalogError

    outcomes: list[CaseOutcome] = []
    try:
        with of_arguments():
            for done in settled(connection, cases, wanted, force=force, dry_run=dry_run):
                outcomes += done
                _tell(connection, done, wanted.said, reason)
    except HalogError as error:
        if count := sum(o.lsn > 0 for o in outcomes):
            error.message = f"after {count:,} conflicts: {error.message}; asked for again, it goes on with the others"
        raise
    return outcomes


def _check_usage(
    type_name: str | None,
    key: tuple[str, ...],
    choice: str | None,
    fields: Mapping[str, Any] | None,
    *,
    everything: bool,
    force: bool,
) -> None:
    if everything == bool(type_name) or (type_name and not key):
        raise click.UsageError("say which one by TYPE and KEY, or --all")
    if choice is None and fields is None:
        raise click.UsageError("say what should stand, by --as or --fields")
    if fields is not None and (everything or choice == "nothing"):
        raise click.UsageError(f"--fields is of no use with {'--all' if everything else '--as nothing'}")
    if everything and force:
        raise click.UsageError("--all leaves objects alone that were changed since: --force is of no use")


def _all_open(connection: ClusterConnection, names: tuple[str, ...], merge: str | None) -> list[Case]:
    """Return the open conflicts in the partitions that are named, or in all that this site serves."""
    from halog.cli.merge.log_reports import reports
    from halog.cli.merge.settlement import Case

    tables = with_home(connection, names)
    if names:
        _check_served(connection, tables)
    merge = known(connection, tables, merge)
    found = []
    for table in tables:
        if not connection.router.site_of(table.name):
            of_it = (r for r in reports(connection, table) if merge in (None, r.name.hex()))
            found += [Case(table.name, report, told) for report in of_it for told in report.open]
    return found


def _named(
    connection: ClusterConnection, type_name: str, words: tuple[str, ...], names: tuple[str, ...], merge: str | None
) -> Case:
    """Return the conflict of this object. NotFoundError or RefusedError if there is none."""
    from halog.cli.objects.get import sought
    from halog.errors import ConfigError, NotFoundError

    said = f"{type_name} {' '.join(words)}"
    key, places = sought(connection, type_name, words)
    theirs = dict.fromkeys(partition for place in places for partition in place.owners)
    if names and not set(names) & set(theirs):
        raise ConfigError(f"{said} belongs to {', '.join(theirs)}, and not to {', '.join(names)}")
    tables = with_home(connection, [name for name in theirs if not names or name in names])
    _check_served(connection, tables)
    merge = whole(connection, tables, merge)
    for table in tables:
        found = _left(connection, table, key, said, merge)
        if found is not None:
            return found
    which = "no merge" if merge is None else f"no merge {merge}"
    where = ", ".join(table.name for table in tables)
    raise NotFoundError(
        f"the log of {where} has {which} that touched {said}, or no longer has it: see `halog conflicts show`"
    )


def _left(
    connection: ClusterConnection, table: PartitionTable, key: bytes, said: str, merge: str | None
) -> Case | None:
    """Return the conflict as the last merge left it to an operator. RefusedError if merges did touch the object, and
    none left it."""
    from halog.cli.merge.log_reports import reports
    from halog.cli.merge.settlement import Case
    from halog.errors import RefusedError

    told = [
        r for r in reports(connection, table) if merge in (None, r.name.hex()) and any(m.key == key for m in r.merged)
    ]
    left = [r for r in told if key in r.deferred]
    if left:
        return Case(table.name, left[-1], left[-1].deferred[key])
    if told:
        raise RefusedError(
            f"{said} was not left to an operator: see `halog conflicts show --all`; the application may change it"
        )
    return None


def _check_served(connection: ClusterConnection, tables: Iterable[PartitionTable]) -> None:
    from halog.errors import RefusedError

    for table in tables:
        site = connection.router.site_of(table.name)
        if site:
            raise RefusedError(
                f"partition {table.name} is served by site {site}: settle it there, with the configuration of {site}",
                partition=table.name,
                site=site,
            )


# --- what is said of it ---


def _tell(connection: ClusterConnection, done: Sequence[CaseOutcome], stands: str, reason: str) -> None:
    from halog.cli.merge.settlement import tell
    from halog.cli.shared.messages import say

    if done and done[0].lsn:
        names = [_object(_document(connection, o)) for o in done]
        if not tell(connection, done, stands, names, reason):
            say("the event history does not have it: its log does not answer")


def _document(connection: ClusterConnection, o: CaseOutcome) -> dict[str, Any]:
    from halog.cli.merge.conflicts import state_of, told

    case = o.case
    one = told(connection, case.told.found, case.told.then, case.told.verdict, case.told.why)
    return {
        "partition": case.partition,
        "merge": case.report.name.hex(),
        "type": one["type"],
        "key": one["key"],
        "was": state_of(connection, o.was),
        "stands": state_of(connection, o.stands if o.error is None else o.was),
        "settled": bool(o.lsn) or o.already,
        "lsn": o.lsn or None,
        "why": "settled already" if o.already else "" if o.error is None else o.error.message,
    }


def _object(document: Mapping[str, Any]) -> str:
    return f"{document['type']} {json.dumps(document['key'], ensure_ascii=False)}"


def _emit(format_: str, document: object, documents: Sequence[Mapping[str, Any]], *, dry_run: bool) -> None:
    from halog.cli.merge.conflicts import said_of

    done = "would be settled" if dry_run else "settled"
    rows = [
        (d["partition"], d["merge"][:12], _object(d), said_of(d["was"]), said_of(d["stands"]), d["why"] or done)
        for d in documents
    ]
    emit(format_, document, ["partition", "merge", "object", "was", "stands", ""], rows)
