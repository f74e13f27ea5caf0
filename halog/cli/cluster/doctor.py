"""`halog doctor` says whether everything that halog needs is there, whether the servers' settings are safe, and whether
copies are equal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from halog.cli.cluster.embedded import data_dir_option
from halog.cli.shared.output import emit, format_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from halog.cli.cluster.doctor_checks import Finding
    from halog.cli.shared.connection import ClusterConnection

DEGRADED = 4
CONNECT_S: Final = 5.0
CONFIG = "halog.toml"


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="Check the servers this configuration names.  [default: ./halog.toml if there is one, else the embedded site]",
)
@data_dir_option
@click.option(
    "--deep", is_flag=True, help="Let each node read all that it has stored, too: seconds for a million objects."
)
@format_option
@click.pass_context
def doctor(ctx: click.Context, config_path: Path | None, data_dir: Path | None, deep: bool, format_: str) -> None:
    """Check what halog needs: Java, jars, disk, servers and their settings; and whether copies are equal.

    With a configuration whose cluster is there, each node is asked at each of its addresses. The copies of each
    partition are compared by the hash of their objects, at an lsn that they have in common.

    Exits with 0 if nothing fails, else with 4.

    \b
    Examples:
      halog doctor
      halog doctor --config production.toml
      halog doctor --config production.toml --deep
      halog doctor --format json
    """
    from halog.cli.cluster import doctor_checks as checks

    config_path = config_path or (Path(CONFIG) if Path(CONFIG).exists() else None)
    results = checks.run(checks.DoctorTarget.find(config_path, data_dir))
    if config_path is not None and checks.answer(results):
        results += _of_cluster(config_path, deep=deep)
    ok = not any(r.result == "fail" for r in results)
    document = {"ok": ok, "checks": [r.to_dict() for r in results]}
    rows = [(r.name, r.result, r.detail, r.advice) for r in results]
    emit(format_, document, ("check", "result", "found", "advice"), rows)
    ctx.exit(0 if ok else DEGRADED)


def _of_cluster(config_path: Path, *, deep: bool) -> list[Finding]:
    """Return what the nodes of the cluster say. A check that cannot be made takes no other one with it."""
    from halog.cli.cluster import (
        doctor_addresses as addresses,
        doctor_checks as checks,
        doctor_copies as copies,
        doctor_security as security,
    )
    from halog.cli.shared.connection import connect
    from halog.errors import HalogError

    steps: dict[str, Callable[[ClusterConnection], list[Finding]]] = {
        addresses.NAME: addresses.check,
        security.NAME: security.check,
        copies.NAME: partial(copies.check, deep=deep),
    }
    found: list[Finding] = []
    try:
        with connect(config_path, CONNECT_S) as connection:
            for name, check in steps.items():
                try:
                    found += check(connection)
                except HalogError as error:
                    found.append(checks.Finding(name, "skip", error.message))
    except HalogError as error:
        found = [checks.Finding(name, "skip", error.message) for name in steps]
    return found
