"""`halog doctor` says whether everything that halog needs is there, whether the servers' settings are safe, and whether
copies are equal."""

from __future__ import annotations

from pathlib import Path

import click

from halog.cli.cluster.embedded import data_dir_option
from halog.cli.shared.output import emit, format_option

DEGRADED = 4
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
    from halog.cli.cluster import (
        doctor_addresses as addresses,
        doctor_checks as checks,
        doctor_copies as copies,
        doctor_security as security,
    )

    config_path = config_path or (Path(CONFIG) if Path(CONFIG).exists() else None)
    results = checks.run(checks.DoctorTarget.find(config_path, data_dir))
    if config_path is not None and checks.answer(results):
        results += addresses.check(config_path)
        results += security.look(config_path)
        results += copies.compare(config_path, deep=deep)
    ok = not any(r.result == "fail" for r in results)
    document = {"ok": ok, "checks": [r.to_dict() for r in results]}
    rows = [(r.name, r.result, r.detail, r.advice) for r in results]
    emit(format_, document, ("check", "result", "found", "advice"), rows)
    ctx.exit(0 if ok else DEGRADED)
