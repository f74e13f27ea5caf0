"""`halog status` says whether the cluster is well, on one screen and with one exit code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.cli.shared.survey import PartitionView, PlanView, Survey

SHOWN = 20
"""So many partitions are named before "and N more"."""


@click.command()
@cluster_options
def status(options: ClusterOptions) -> None:
    """Show how the cluster is: nodes, partitions, replicas, lag.

    Exit code 4 if it is degraded: Kafka does not answer, or a partition has no active node, no quorum or fewer replicas
    than configured, lacks a site that its commits wait for or votes of sites that it needs, or has parted.

    \b
    Examples:
      halog status
      halog status --config /etc/halog.toml --format json
      halog status || echo "look at it"
    """
    from halog.cli.shared.survey import survey

    with options.connect() as connection:
        seen = survey(connection)
    if options.format == "json":
        emit_json(as_json(seen))
    else:
        show(seen)
    if not seen.is_well:
        raise click.exceptions.Exit(DEGRADED_EXIT)


def as_json(seen: Survey) -> dict[str, Any]:
    """Return the overview as one document."""
    from halog.cli.shared.divergence_rows import documents
    from halog.cli.shared.upgrade_status import upgrade_json

    worst = worst_of(seen)
    return {
        "cluster": seen.cluster,
        "site": seen.site,
        "ok": seen.is_well,
        "kafka": None if seen.kafka is None else msgspec.to_builtins(seen.kafka),
        "nodes": {n.node: n.state for n in seen.nodes},
        "zones": zones_of(seen),
        "config": {"version": seen.config or None, "behind": behind(seen)},
        "plan": plan_json(seen.plan),
        "drained": list(seen.drained),
        "upgrade": upgrade_json(seen.upgrade),
        "plain_text": seen.plain_text,
        "partitions": len(seen.partitions),
        "without_active": [p.partition for p in served_here(seen) if p.active is None],
        "mirrored": [p.partition for p in seen.partitions if is_mirrored(p)],
        "parted": documents({p.partition: p.parted for p in seen.partitions if p.parted is not None}),
        "replicas": {"configured": configured_replicas(seen), "present": present_replicas(seen)},
        "why": {p.partition: p.why for p in seen.degraded if p.why},
        "replicas_missing": {p.partition: list(p.missing) for p in seen.degraded if p.missing},
        "failed": [{"partition": p, "node": n, "why": why} for p, n, why in seen.failed],
        "sync_sites": sync_sites(seen),
        "votes_of_sites": votes_of_sites(seen),
        "worst_lag": worst,
    }


def plan_json(plan: PlanView | None) -> dict[str, Any] | None:
    """Return the plan that is not done as a document."""
    if plan is None:
        return None
    return {
        "id": plan.id,
        "made_for": plan.made_for or None,
        "made_ms": plan.made_ms,
        "moves": plan.moves,
        "waiting": plan.waiting,
        "moving": plan.moving,
    }


def worst_of(seen: Survey) -> dict[str, Any] | None:
    """Return the replica that is furthest behind in the whole cluster."""
    told = [(p.partition, p.worst) for p in seen.partitions if p.worst is not None]
    if not told:
        return None
    partition, copy = max(told, key=lambda pair: (pair[1].lag_records or 0, pair[1].lag_ms or 0.0))
    return {"partition": partition, "node": copy.node, "records": copy.lag_records, "ms": copy.lag_ms}


def zones_of(seen: Survey) -> dict[str, str]:
    """Return the worst state that a node says of each zone (`halog zone list`)."""
    from halog.cli.shared.zone_views import worst

    names = dict.fromkeys(zone for n in seen.nodes for zone in n.zones)
    return {name: worst(n.zones[name] for n in seen.nodes if name in n.zones) for name in names}


def behind(seen: Survey) -> list[str]:
    """Return the nodes that run without some of the active version: most must be restarted (`halog node list`)."""
    return [n.node for n in seen.nodes if n.config not in (None, seen.config)]


def is_mirrored(p: PartitionView) -> bool:
    """Does another site serve it, while this one keeps copies?"""
    return any(c.kind == "mirror" for c in p.copies)


def served_here(seen: Survey) -> list[PartitionView]:
    """Return the partitions that this site serves."""
    return [p for p in seen.partitions if not is_mirrored(p)]


def sync_sites(seen: Survey) -> dict[str, dict[str, int]]:
    """Return how many partitions each site is sync for, behind, away, or let go of, by site whose log commits should
    wait for."""
    found: dict[str, dict[str, int]] = {}
    for site in (s for p in seen.partitions for s in p.sites):
        states = found.setdefault(site.site, {})
        states[site.state] = states.get(site.state, 0) + 1
    return found


def votes_of_sites(seen: Survey) -> dict[str, int]:
    """Return in how many of the partitions served here this site has the quorum, where sites vote on which of them goes
    on."""
    voted = [p for p in seen.partitions if p.votes]
    return {"partitions": len(voted), "with_quorum": sum(not p.outvoted for p in voted)} if voted else {}


def configured_replicas(seen: Survey) -> int:
    """Return how many replicas there should be of the partitions served here."""
    return sum(len(p.configured) - 1 for p in served_here(seen))


def present_replicas(seen: Survey) -> int:
    """Return how many replicas there are."""
    return sum(c.kind in ("sync", "async") and c.error is None for p in seen.partitions for c in p.copies)


def show(seen: Survey) -> None:
    """Show the overview for people."""
    hosting = [n for n in seen.nodes if n.state != "client"]
    up = sum(n.state == "up" for n in hosting)
    clients = len(seen.nodes) - len(hosting)
    here = served_here(seen)
    active, mirrored = sum(p.active is not None for p in here), len(seen.partitions) - len(here)
    echo_facts(
        [
            ("cluster", f"{seen.cluster} at site {seen.site}: {'ok' if seen.is_well else 'degraded'}"),
            *([("kafka", seen.kafka.text())] if seen.kafka is not None else []),
            ("nodes", f"{up} of {len(hosting)} up" + (f", clients: {clients}" if clients else "")),
            *[(f"zone {name}", state) for name, state in zones_of(seen).items() if state == "disabled"],
            *([("config", _config_text(seen))] if seen.config else []),
            *([("plan", _plan_text(seen.plan))] if seen.plan is not None else []),
            *([("drained", _drained_text(seen.drained))] if seen.drained else []),
            *([("upgrade", seen.upgrade.text())] if seen.upgrade is not None else []),
            *((f"node {name}", text) for name, text in seen.plain_text.items()),
            ("partitions", f"{active} of {len(here)} with an active node"),
            *([("mirrored", f"{mirrored} partitions of other sites")] if mirrored else []),
            *((f"site {name}", _site_text(states)) for name, states in sync_sites(seen).items()),
            *([("votes of sites", _votes_text(voted))] if (voted := votes_of_sites(seen)) else []),
            ("replicas", f"{present_replicas(seen)} of {configured_replicas(seen)}"),
            ("worst lag", _lag_text(worst_of(seen))),
        ]
    )
    _show_nodes(seen)
    if seen.degraded:
        _show_degraded(seen.degraded, seen.failed)


def _site_text(states: dict[str, int]) -> str:
    have = f"its log has what is committed in {states.get('sync', 0)} of {sum(states.values())} partitions"
    rest = ", ".join(f"{state}: {count}" for state, count in states.items() if state != "sync")
    return f"{have}{'; ' if rest else ''}{rest}"


def _votes_text(counted: dict[str, int]) -> str:
    return f"this site has the quorum in {counted['with_quorum']} of {counted['partitions']} partitions"


def _config_text(seen: Survey) -> str:
    without = ", ".join(behind(seen))
    return f"version {seen.config}" + (f"; not yet all of it: {without}, see `halog node list`" if without else "")


def _plan_text(plan: PlanView) -> str:
    made = datetime.fromtimestamp(plan.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    whose = f"a node's, for policy {plan.made_for}" if plan.made_for else "an operator's"
    said = f"{plan.id}, {whose}, of {made}: {plan.waiting} of {plan.moves} partitions wait, {plan.moving} move"
    if plan.made_for:
        return said
    return f"{said}; nodes may hold back their own for it: `halog plan apply` or `halog plan cancel` it"


def _drained_text(nodes: Sequence[str]) -> str:
    last = nodes[-1]
    return f"{', '.join(nodes)}: no partitions that are added; `halog drain {last} --undo` ends that"


def _show_nodes(seen: Survey) -> None:
    rows = [(n.node, n.state, n.active, n.replicas, n.why or "") for n in seen.nodes if n.state != "client"]
    emit_table(["node", "state", "active for", "replica of", ""], rows)


def _lag_text(worst: dict[str, Any] | None) -> str:
    if worst is None:
        return "no replica answered"
    if not worst["records"]:
        return "none"
    return f"{worst['records']} records, {worst['ms']:.0f} ms ({worst['partition']} on {worst['node']})"


def failed_rows(failed: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return rows for copies that take part in nothing, named one by one up to a point."""
    rows = list(failed[:SHOWN])
    if len(failed) > SHOWN:
        rows.append((f"and {len(failed) - SHOWN} more", "", "see `halog partition show`"))
    return rows


def _show_degraded(degraded: list[PartitionView], failed_copies: Sequence[tuple[str, str, str]]) -> None:
    from halog.cli.shared.divergence_rows import COLUMNS, documents, row

    rows = [(p.partition, p.state, p.active, ", ".join(p.missing), p.why) for p in degraded[:SHOWN]]
    if len(degraded) > SHOWN:
        rows.append((f"and {len(degraded) - SHOWN} more", "", None, "see `halog partition list`", ""))
    emit_table(["partition", "state", "active", "missing", ""], rows)
    if failed := failed_rows(failed_copies):
        emit_table(["failed", "on", "why"], failed)
    apart = {p.partition: p.parted for p in degraded[:SHOWN] if p.parted is not None}
    if apart:
        emit_table(COLUMNS, map(row, documents(apart)))
