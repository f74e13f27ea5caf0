"""`halog upgrade can-rollback` proves that nothing was written that an earlier halog could not read (U1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import TIMEOUT_S, number_of
from halog.cli.shared.output import emit
from halog.cli.upgrade.group import upgrade

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.runtime.upgrade.level_scan import LevelFinding


@upgrade.command("can-rollback")
@click.option(
    "--to",
    "level",
    type=number_of(1),
    default=None,
    metavar="LEVEL",
    help="The level that is to do.  [default: what the nodes knew before the upgrade, else the cluster's]",
)
@cluster_options_after(TIMEOUT_S, "Give up (exit 3 or 6) where one answer takes this long.")
def can_rollback_(level: int | None, options: ClusterOptions) -> None:
    """Prove that a halog that knows levels up to LEVEL can read everything there is.

    Looks through every partition's log and state topic from the beginning, through the definitions of types, at the
    znodes that stop who does not know them, and asks each node about its stores. Exit code 0: nothing is above the
    level; 5: something is, and the table names the first of each place. What is written while it looks is not looked
    at: nobody writes above the cluster's level.

    \b
    Examples:
      halog upgrade can-rollback
      halog upgrade can-rollback --to 1 --format json
    """
    from halog.metadata.cluster_level import read_level
    from halog.metadata.upgrades import under_way

    with options.connect() as connection:
        now, found = read_level(connection.coordinator), under_way(connection.coordinator)
        knew = [] if found is None else list(found.knew.values())
        target = level if level is not None else min(knew, default=now.level)
        findings = list(_findings(connection, target, now.level))
    faults = [f for f in findings if f.fault]
    document = {
        "to": target,
        "level": now.level,
        "may": not faults,
        "looked_at": [{"where": f.where, "count": f.looked_at, "fault": f.fault or None} for f in findings],
    }
    rows = [(f.where, f.looked_at, f.fault or "nothing above it") for f in (faults or findings)]
    emit(options.format, document, ("where", "looked at", f"level {target}"), rows)
    if faults:
        say(
            f"halog: a halog that knows levels up to {target} cannot read everything here: {len(faults)} places are "
            "named"
        )
        raise click.exceptions.Exit(REFUSED_EXIT)
    if options.format != "json":
        say(f"a halog that knows levels up to {target} can read everything here")


def _findings(connection: ClusterConnection, target: int, cluster: int) -> Iterator[LevelFinding]:
    """Yield what each place has: znodes first, then logs and state topics, then stores."""
    from halog.cli.shared.partition_log import place_of
    from halog.errors import HalogError
    from halog.ports import TopicPartition
    from halog.runtime.topics.topic_names import schemas_topic, state_topic
    from halog.runtime.upgrade.level_scan import LevelFinding, in_definitions, in_log, in_state_topic, in_znodes

    yield in_znodes(connection.coordinator, target)
    log = connection.adapters.log
    schemas = TopicPartition(schemas_topic(connection.config), 0)
    yield in_definitions(schemas, log.read_keyed(schemas))
    places = [(t, place_of(t), log.bounds(place_of(t), connection.timeout_s)) for t in connection.tables]
    with progress() as bar:
        total = sum(end - start for _, _, (start, end) in places)
        task = bar.add_task("log entries", total=total, note="")
        for table, tp, (start, end) in places:
            bar.update(task, note=table.name)
            yield in_log(tp, connection.read(tp, start, end), target, lambda n: bar.advance(task, n))
            state = TopicPartition(state_topic(connection.config, table.policy), table.index)
            try:
                yield in_state_topic(state, log.read_keyed(state), target)
            except HalogError as e:
                yield LevelFinding(f"state topic {state.topic}/{state.partition}", 0, f"cannot be read: {e}")
    yield from _stores(connection, cluster)


def _stores(connection: ClusterConnection, cluster: int) -> Iterator[LevelFinding]:
    from halog.cli.shared.survey import ask_nodes
    from halog.cli.upgrade.scope import hosting_names
    from halog.runtime.upgrade.level_scan import LevelFinding, in_stores

    nodes, said = connection.nodes, ask_nodes(connection)
    copies, faults = {}, {}
    for node, answer in said.items():
        if "error" in answer:
            faults[node] = f"it does not tell: {answer['error']}"
            continue
        loaded = [c for c in answer.get("copies", ()) if not c["error"]]
        copies[node] = len(loaded)
        if broken := [c for c in answer.get("copies", ()) if c["error"]]:
            faults[node] = f"{broken[0]['partition']}: {broken[0]['error']}"
    yield from in_stores([nodes[n] for n in said], copies, faults, cluster)
    for name in hosting_names(connection):
        if name not in said:
            yield LevelFinding(f"store of {name}", 0, "the node is down, and nobody can tell")
