"""`halog acl zookeeper` looks to whom the cluster's znodes belong, and gives them to whom the configuration says
(N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from halog.cli.acl.group import acl, note_in_audit
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.exit_codes import DEGRADED_EXIT
from halog.cli.shared.messages import say
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.adapters.zookeeper.access import ZooKeeperAccess
    from halog.adapters.zookeeper.acls import ZnodeReport
    from halog.config import Config

SHOWN: Final = 20
"""So many znodes are listed; a program that reads JSON gets all."""
TOLD_EACH: Final = 10_000
ROUNDS: Final = 3
"""A node that has not changed over yet may make a znode behind the walk."""
COLUMNS: Final = ("znode", "belongs to")


@acl.command("zookeeper")
@click.option("--check", "checks", is_flag=True, help="Say which znodes belong to others than configured.")
@click.option("--apply", "applies", is_flag=True, help="Give those to whom the configuration says.")
@click.option("--print", "prints", is_flag=True, help="Say to whom they should belong; ask no server.")
@cluster_options
@click.pass_context
def zookeeper(ctx: click.Context, checks: bool, applies: bool, prints: bool, options: ClusterOptions) -> None:
    """Look at who may use each znode of the cluster, or give all of them to the cluster alone.

    To whom is what [security.zookeeper] says: the user or the principals, and nobody else; everybody, where acl is
    "open". Nodes may run meanwhile, once each of them has the user; see the guide on security for the order. Stopped
    half-way, --apply goes on where it was when it is given again.

    --check exits with 4 if a znode belongs to others than configured, or to everybody; --apply exits with 4 if some
    could not be given, because they belong to somebody else; 5: the configuration names nobody.

    \b
    Examples:
      halog acl zookeeper --print
      halog acl zookeeper --check
      halog acl zookeeper --apply
    """
    from halog.config import load_config
    from halog.runtime.node.zookeeper_access import zookeeper_access

    if checks + applies + prints != 1:
        raise click.UsageError("say what to do: one of --check, --apply, --print")
    config = load_config(options.config_path)
    access = zookeeper_access(config, "acl")
    wanted = ", ".join(map(str, access.principals)) if access.closed else "everybody"
    if prints:
        places = ["/halog", f"/halog/{config.cluster.name}"]
        plan = {"cluster": config.cluster.name, "wanted": wanted, "znodes": places}
        emit(options.format, plan, COLUMNS, [(places[0], wanted), (f"{places[1]} and all below it", wanted)])
        return
    report = _walk(config, access, options.timeout_s, apply=applies)
    bad = [{"path": r.path, "owners": r.owners} for r in report.wrong]
    document = {
        "cluster": config.cluster.name,
        "wanted": wanted,
        "znodes": report.znodes,
        "given": report.given,
        "open": report.open,
        "wrong": bad,
    }
    emit(options.format, document, COLUMNS, [(r.path, r.owners) for r in report.wrong[:SHOWN]])
    if len(bad) > SHOWN:
        say(f"and {len(bad) - SHOWN} more")
    say(_summary(report, wanted, closed=access.closed))
    if applies:
        note_in_audit(options)
    ctx.exit(DEGRADED_EXIT if bad or (checks and not access.closed) else 0)


def _summary(report: ZnodeReport, wanted: str, *, closed: bool) -> str:
    done = f"; {report.given} were given to them now" if report.given else ""
    if report.wrong:
        of = f"{len(report.wrong)} of {report.znodes} znodes"
        return f"{of} do not belong to {wanted} alone, {report.open} of them to everybody{done}"
    if not closed:
        return f"{report.znodes} znodes belong to everybody, as configured: set auth in [security.zookeeper]{done}"
    return f"{report.znodes} znodes belong to {wanted} alone{done}"


def _walk(config: Config, access: ZooKeeperAccess, timeout_s: float, *, apply: bool) -> ZnodeReport:
    """Connect, and look until a walk finds nothing more to set."""
    from halog.adapters.zookeeper.acls import look
    from halog.adapters.zookeeper.coordinator import ZkCoordinator
    from halog.errors import AvailabilityError, RefusedError
    from halog.runtime.node.wiring import addresses

    _, hosts = addresses(config)
    ms = config.timing.session_timeout_ms
    coordinator = ZkCoordinator(hosts, config.cluster.name, session_timeout_ms=ms, access=access)
    try:
        coordinator.connect(lambda state: None, timeout_s)
        coordinator.joined()
        if apply and not access.principals:
            raise RefusedError(
                f"{config.source}: [security.zookeeper] has no auth, so there is nobody to give the znodes to; nothing "
                "was changed"
            )
        if coordinator.get("") is None:
            name = config.cluster.name
            raise AvailabilityError(
                f"{config.source}: cluster {name} does not exist at this site yet; its first `halog node start` "
                "creates it"
            )
        wanted, given = access.acl, 0
        for _ in range(ROUNDS):
            report = look(coordinator.znodes(timeout_s), wanted, apply=apply, progress=_Progress())
            given += report.given
            if not report.given:
                break
        return report._replace(given=given)
    finally:
        coordinator.close()


class _Progress:
    """Tells now and then how far a walk is."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, seen: int, given: int) -> None:
        if seen // TOLD_EACH > self._told:
            self._told = seen // TOLD_EACH
            say(f"{seen:,} znodes looked at, {given:,} given")
