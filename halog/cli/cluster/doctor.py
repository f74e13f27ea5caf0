"""`halog doctor` says whether everything that halog needs is there, and whether the servers' settings are safe."""

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
@format_option
@click.pass_context
def doctor(ctx: click.Context, config_path: Path | None, data_dir: Path | None, format_: str) -> None:
    """Check what halog needs: Java, jars, disk, servers and their settings.

    Exits with 0 if nothing fails, else with 4.

    \b
    Examples:
      halog doctor
      halog doctor --config production.toml
      halog doctor --format json
    """
    from halog.cli.cluster import doctor_checks as checks

    target = checks.DoctorTarget.find(config_path or (Path(CONFIG) if Path(CONFIG).exists() else None), data_dir)
    results = checks.run(target)
    ok = not any(r.result == "fail" for r in results)
    document = {"ok": ok, "checks": [r.to_dict() for r in results]}
    rows = [(r.name, r.result, r.detail, r.advice) for r in results]
    emit(format_, document, ("check", "result", "found", "advice"), rows)
    ctx.exit(0 if ok else DEGRADED)
