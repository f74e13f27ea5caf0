"""`halog upgrade status|pause` shows an upgrade, and stops it behind its step (U1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_facts, say
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.metadata.upgrades import Upgrade


@click.group("upgrade")
def upgrade() -> None:
    """Bring the nodes to another release of halog, one after the other, while the cluster works.

    \b
    Examples:
      halog upgrade plan
      halog upgrade start --all --hook "ssh-restart"
      halog upgrade status
      halog upgrade finish
    """


@upgrade.command("status")
@cluster_options
def status_(options: ClusterOptions) -> None:
    """Show how far an upgrade is, who runs what, and whether all may still go back.

    \b
    Examples:
      halog upgrade status
      halog upgrade status --format json
    """
    from halog.cli.upgrade.views import day_text, status_document
    from halog.metadata.cluster_level import read_level
    from halog.metadata.upgrades import driven_by, read_upgrade

    with options.connect() as connection:
        c = connection.coordinator
        found, driven, level, nodes = read_upgrade(c), driven_by(c), read_level(c), connection.nodes
    document = status_document(found, driven, level, nodes, why_not_back(found, level.level))
    if options.format == "json":
        emit_json(document)
        return
    if found is None:
        echo_facts([("upgrade", "none"), ("level", level.level)])
    else:
        echo_facts(_facts(found, document, driven, day_text(found.since_ms)))
    rows = [
        (n["node"], n["runs"] or "is down", n["wanted"], n["before"], n["level"], "yes" if n["done"] else "")
        for n in document["nodes"]
    ]
    emit_table(["node", "runs", "to run", "ran before", "knows level", "done"], rows)


def _facts(found: Upgrade, document: dict[str, Any], driven: str, since: str) -> list[tuple[str, object]]:
    back = " (going back)" if found.back else ""
    return [
        ("upgrade", f"to halog {found.to}{back}: {found.state}"),
        *([("why", found.why)] if found.why else []),
        ("begun", f"{since} by {found.by}"),
        *([("command", f"{driven} is at it" if driven else "none is at it")] if not found.over else []),
        *([("at node", found.node)] if found.node else []),
        ("next", document["upgrade"]["next"] or "nothing"),
        ("level", document["level"]["level"]),
        ("may go back", "yes" if document["may_go_back"] else f"no: {document['why_not_back']}"),
    ]


def why_not_back(found: Upgrade | None, level: int) -> str:
    """Return what stands against going back, as far as the record tells; `halog upgrade can-rollback` looks at
    everything."""
    low = [] if found is None else [f"halog {found.before[n]} of {n}" for n, k in found.knew.items() if k < level]
    return f"the level is {level}, which {', '.join(low)} does not know" if low else ""


@upgrade.command("pause")
@cluster_options
def pause_(options: ClusterOptions) -> None:
    """Stop an upgrade behind its present step. Nothing is taken back.

    A node that is being restarted is still awaited and compared by the command that is at it. `halog upgrade start`
    goes on, `halog upgrade rollback` takes back what was done.

    \b
    Example:
      halog upgrade pause
    """
    from halog.cli.upgrade.telling import command_now, tell_step
    from halog.metadata.upgrades import change
    from halog.runtime.upgrade.record import paused

    with options.connect() as connection:
        now = change(connection.coordinator, partial(paused, command=command_now()))
        if now is not None:
            tell_step(connection, now, "paused", now.why)
    if options.format == "json":
        emit_json({"to": now.to, "state": now.state, "node": now.node or None} if now is not None else None)
    elif now is not None:
        at = f" behind what it does with {now.node}" if now.node else ""
        say(f"the upgrade to halog {now.to} pauses{at}; go on with `halog upgrade start`")
