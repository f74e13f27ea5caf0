"""`halog safe-to-stop` proves that nodes may stop without stopping a partition (X4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.shared.survey import NodeView, PartitionView, Survey
    from halog.core.placement.stop_check import CopyFact, StopVerdict


@click.command("safe-to-stop")
@click.argument("nodes", type=Name(), nargs=-1, required=True, metavar="NODE...")
@cluster_options
def safe_to_stop(nodes: tuple[str, ...], options: ClusterOptions) -> None:
    """Prove that these nodes may stop, all of them at once.

    For every partition they host, a node must be left that may be active, has everything that was acknowledged, and
    finds the quorum it needs. And no node may be left offline because it reaches too few of its zone. The command asks
    every node now, also which nodes it reaches; it does not foresee what fails a moment later. Exit code 0: safe; 5: it
    is not, and the table says why.

    \b
    Examples:
      halog safe-to-stop A
      halog safe-to-stop A B --format json
      halog safe-to-stop A && ssh a systemctl restart halog
    """

    with options.connect() as connection:
        check_known(connection, nodes)
        verdicts = judge_all(connection, set(nodes))
    unsafe = [v for v in verdicts if not v.safe]
    if options.format == "json":
        rows = [{"partition": v.partition, "safe": v.safe, "heir": v.heir or None, "why": v.why} for v in verdicts]
        emit_json({"nodes": list(nodes), "safe": not unsafe, "partitions": rows})
    else:
        emit_table(
            ["partition", "safe", "active then", "why"],
            [(v.partition, "yes" if v.safe else "no", v.heir, v.why) for v in (unsafe or verdicts)],
        )
    if unsafe:
        say(f"halog: not safe: {len(unsafe)} of {len(verdicts)} partitions on {', '.join(nodes)} would stop or lose")
        raise click.exceptions.Exit(REFUSED_EXIT)


def check_known(connection: ClusterConnection, nodes: Collection[str]) -> None:
    """Raise ConfigError for a name that no node of this site has."""
    from halog.config.multi_site import elsewhere
    from halog.errors import ConfigError, UnknownNameError

    known = [*connection.config.nodes, *(n for n in connection.nodes if n not in connection.config.nodes)]
    for node in nodes:
        if away := elsewhere(connection.config, node):
            raise ConfigError(f"{away}: ask with the configuration of that site")
        if node not in known:
            raise UnknownNameError.of("node", node, known)


def judge_all(connection: ClusterConnection, stopping: set[str], seen: Survey | None = None) -> list[StopVerdict]:
    """Return a verdict on every partition hosted by these nodes, and by those that would be offline without them (Q1),
    from one look: `seen`, or a new one."""
    from halog.cli.shared.survey import survey
    from halog.core.placement.stop_check import judge
    from halog.core.table.group import as_of
    from halog.runtime.support.clock import wall_ms

    seen = seen or survey(connection)
    falling = offline_then(connection, seen.nodes, stopping)
    gone = stopping | falling.keys()
    views = {v.partition: v for v in seen.partitions}
    now = wall_ms()
    hosted = [as_of(t, now) for t in connection.tables if gone & {*t.hosts, *t.node_list}]
    unlogged = {name for name, policy in connection.config.policies.items() if policy.unlogged}
    verdicts = [judge(t, gone, _facts(views[t.name]), unlogged=t.policy in unlogged) for t in hosted]
    if not falling:
        return verdicts
    said = "; ".join(f"{node} would be offline, {why}" for node, why in sorted(falling.items()))
    return [v if v.safe else v._replace(why=f"{said}: {v.why}") for v in verdicts]


def offline_then(connection: ClusterConnection, nodes: Sequence[NodeView], stopping: set[str]) -> dict[str, str]:
    """Return the nodes that stay and lose the quorum of a zone when `stopping` stop, each with what it lacks. A node
    that does not answer counts as reached by nobody: it may be registered, and still be heard, for a moment after it
    froze."""
    from halog.cli.shared.survey import OFFLINE, UP
    from halog.core.table.zones import NodeContacts, count
    from halog.metadata.zone_switches import read_switch
    from halog.runtime.membership.node_quorum import zones_of

    left = {n.node: n for n in nodes if n.state in (UP, OFFLINE) and n.node not in stopping}
    falling: dict[str, str] = {}
    for name, node in left.items():
        sight = NodeContacts(reached=frozenset(left).intersection(node.reaches))
        for zone in zones_of(connection.config, name):
            counted = count(zone, name, sight)
            if zone.guarded and not counted.holds and not read_switch(connection.coordinator, zone.name).off:
                falling[name] = f"zone {zone.name} has {counted} then"
    return falling


def _facts(view: PartitionView) -> Iterator[CopyFact]:
    """Yield the copies that run, as their nodes say."""
    from halog.core.placement.stop_check import ACTIVE, CopyFact

    for c in view.copies:
        if c.error is None and c.kind != "missing" and (c.kind != ACTIVE or view.active == c.node):
            yield CopyFact(c.node, c.kind, c.lag_records or 0)
