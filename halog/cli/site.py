"""`halog up` and `halog down`: the embedded site from the command line."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.output import emit, format_option

if TYPE_CHECKING:
    from halog.embedded.model import SiteInfo
    from halog.embedded.site import EmbeddedSite

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where the site keeps its data.  [default: $HALOG_SITE or ~/.local/share/halog/site]",
)


@click.command()
@data_dir_option
@click.option(
    "--kafka-port", type=int, help="Listen there; a taken port is an error.  [default: last one, or a free one]"
)
@click.option("--zookeeper-port", type=int, help="The same for ZooKeeper.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then stop the servers.")
@format_option
def up(
    data_dir: Path | None, kafka_port: int | None, zookeeper_port: int | None, foreground: bool, format_: str
) -> None:
    """Start an embedded Kafka and ZooKeeper and leave them running.

    The first start fetches the servers (45 MB, about a minute); later ones take two seconds. Data stays in the data
    directory; starting again continues with it.

    \b
    Examples:
      halog up
      halog up --data-dir ./site --kafka-port 9092 --zookeeper-port 2181
      halog up --foreground
      halog up --format json       {"kafka_ms": …, "zookeeper_ms": …, "cached": true, "bootstrap": …, …}
    """
    from halog.embedded.datadir import default_data_dir
    from halog.embedded.model import process_start
    from halog.embedded.progress import BarProgress
    from halog.embedded.site import EmbeddedSite

    with BarProgress() as progress:
        site = EmbeddedSite(
            data_dir or default_data_dir(),
            kafka_port=kafka_port,
            zookeeper_port=zookeeper_port,
            detach=not foreground,
            progress=progress,
            since=process_start(),
        )
        info = _start(site)
    if foreground:
        _stay(site, info, format_)
    else:
        _show(info, format_)


def _start(site: EmbeddedSite) -> SiteInfo:
    """Interrupted while starting, the supervisor is told to give up: nothing half-started stays behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return site.start()


def _stay(site: EmbeddedSite, info: SiteInfo, format_: str) -> None:
    from halog.errors import SiteError

    try:
        _show(info, format_)
        code = site.wait()
    except KeyboardInterrupt:
        click.echo("stopping", err=True)
        site.stop()
    else:
        if code != 0:
            raise SiteError(f"the site's supervisor ended (exit code {code}); see {site.data_dir}/logs")


def _show(info: SiteInfo, format_: str) -> None:
    names = ("kafka_ms", "zookeeper_ms", "cached", "bootstrap", "zookeeper", "data_dir", "pid")
    values = info.to_dict()
    document = {name: values[name] for name in names}
    rows = [
        ("kafka", info.bootstrap, f"{info.kafka_ms} ms", info.pids.get("kafka")),
        ("zookeeper", info.zookeeper, f"{info.zookeeper_ms} ms", info.pids.get("zookeeper")),
    ]
    emit(format_, document, ("server", "address", "answered after", "pid"), rows)
    if format_ == "table":
        click.echo(f"supervisor {info.pid}, data in {info.data_dir}; stop it with `halog down`", err=True)


@click.command()
@data_dir_option
@format_option
def down(data_dir: Path | None, format_: str) -> None:
    """Stop the embedded Kafka and ZooKeeper. The data stays.

    \b
    Examples:
      halog down
      halog down --data-dir ./site
    """
    from halog.embedded import default_data_dir
    from halog.embedded.control import SiteControl
    from halog.embedded.datadir import is_locked

    path = (data_dir or default_data_dir()).absolute()
    running = is_locked(path)
    if running:
        SiteControl(path).down()
    elif format_ == "table":
        click.echo(f"no site is running in {path}", err=True)
    emit(
        format_,
        {"stopped": running, "data_dir": str(path)},
        ("data directory", "stopped"),
        [(path, "yes" if running else "no")],
    )
