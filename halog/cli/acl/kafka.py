"""`halog acl kafka` looks whether a process may do at Kafka what it needs, and makes the ACLs that are missing (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from halog.cli.acl.group import acl, note_in_audit
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.options import Text
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halog.adapters.kafka.acls import AclReport
    from halog.adapters.kafka.rights import KafkaRight
    from halog.config import Config

ROLES: Final = ("node", "client", "operator", "spark", "site")
COLUMNS: Final = ("resource", "name", "pattern", "operation", "state")
THERE, MISSING, DENIED, NEEDED = "there", "missing", "denied", "needed"


@acl.command("kafka")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What kind of process it is.")
@click.option(
    "--principal", type=Text(), help="Who it is to the brokers, as User:halog. Default: the user of [security.kafka]."
)
@click.option("--check", "checks", is_flag=True, help="Say which rights are missing, or denied.")
@click.option("--apply", "applies", is_flag=True, help="Make the ACLs that are missing.")
@click.option("--print", "prints", is_flag=True, help="Say which rights it needs; ask no server.")
@cluster_options
@click.pass_context
def kafka(
    ctx: click.Context,
    role: str,
    principal: str | None,
    checks: bool,
    applies: bool,
    prints: bool,
    options: ClusterOptions,
) -> None:
    """Look at the rights that a kind of process needs at the site's brokers, or give them to a principal.

    \b
    node      a node of this site
    client    an application that hosts nothing
    operator  commands
    spark     jobs of Spark
    site      nodes of another site

    A right is there if any ACL allows it, with a longer prefix or for more operations too. No ACL is ever taken away.
    Who looks at ACLs, or makes them, needs the brokers' leave for it (describe and alter of the cluster): give a
    configuration with such a user, and the nodes' principal with --principal.

    --check exits with 4 if a right is missing or denied, --apply if one is still so.

    \b
    Examples:
      halog acl kafka --role node --print
      halog acl kafka --role node --principal User:halog --apply
      halog acl kafka --role client --principal User:app --check
    """
    from halog.config import load_config
    from halog.runtime.topics.kafka_rights import rights_of

    if checks + applies + prints != 1:
        raise click.UsageError("say what to do: one of --check, --apply, --print")
    config = load_config(options.config_path)
    wanted, who = rights_of(role, config), _principal(config, principal)
    if prints:
        _show(options, config, role, who, wanted, None)
        return
    if who is None:
        raise click.UsageError(
            f"{config.source}: [security.kafka] has no username: say who it is to the brokers with --principal"
        )
    report = _look(config, who, wanted, options.timeout_s, apply=applies)
    _show(options, config, role, who, wanted, report)
    say(_summary(report, who, len(wanted)))
    if applies:
        note_in_audit(options)
    ctx.exit(DEGRADED_EXIT if report.missing or report.denied else 0)


def _principal(config: Config, principal: str | None) -> str | None:
    user = None if config.security.kafka is None else config.security.kafka.username
    if principal is None:
        return None if user is None else f"User:{user}"
    if not principal.startswith("User:") or principal == "User:":
        raise click.UsageError(f"{principal!r} is no principal: write User:NAME, as the brokers have it")
    return principal


def _look(config: Config, principal: str, wanted: Sequence[KafkaRight], timeout_s: float, *, apply: bool) -> AclReport:
    from halog.adapters.kafka.acls import look
    from halog.runtime.node.kafka_access import kafka_access
    from halog.runtime.node.wiring import addresses

    access = kafka_access(config, addresses(config)[0], "acl")
    return look(access, principal, wanted, apply=apply, timeout_s=timeout_s)


def _show(
    options: ClusterOptions,
    config: Config,
    role: str,
    principal: str | None,
    wanted: Sequence[KafkaRight],
    report: AclReport | None,
) -> None:
    def state(right: KafkaRight) -> str:
        if report is None:
            return NEEDED
        return DENIED if right in report.denied else MISSING if right in report.missing else THERE

    rows = [(r.resource, r.name, "prefixed" if r.prefixed else "literal", r.operation, state(r)) for r in wanted]
    document = {
        "cluster": config.cluster.name,
        "role": role,
        "principal": principal,
        "made": 0 if report is None else report.made,
        "rights": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }
    emit(options.format, document, COLUMNS, rows)


def _summary(report: AclReport, principal: str, count: int) -> str:
    done = f"; {report.made} were made now" if report.made else ""
    if report.denied:
        return f"an ACL denies {principal} {report.denied[0]}: take it away{done}"
    if report.missing:
        return f"{principal} lacks {len(report.missing)} of {count} rights: give them with --apply{done}"
    return f"{principal} has all {count} rights{done}"
