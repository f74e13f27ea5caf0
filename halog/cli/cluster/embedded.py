"""This module has the commands `halog up` and `halog down`. They start and stop embedded sites, one or several side by
side."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from halog.cli.shared.messages import say
from halog.cli.shared.options import config_option
from halog.cli.shared.output import emit, format_option

if TYPE_CHECKING:
    from halog.cli.cluster.secured_site import SecuredSite
    from halog.config import Config
    from halog.embedded.model import SiteInfo
    from halog.embedded.site import EmbeddedSite

LOOK_S = 0.2
"""`--foreground` looks this often whether a site has ended by itself."""


class SiteNames(click.ParamType[tuple[str, ...]]):
    """Takes names of sites, each once: west,east."""

    name = "name,name,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from halog.config.check import wrong_name

        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if why := wrong_name(name):
                self.fail(why, param, ctx)
            if names.count(name) > 1:
                self.fail(f"{name!r} is named twice", param, ctx)
        return names


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where the site keeps its data.  [default: $HALOG_SITE or ~/.local/share/halog/site]",
)
sites_option = click.option(
    "--sites",
    type=SiteNames(),
    help="Several sites by their names, each in a directory of its own in the data directory.",
)


@click.command()
@data_dir_option
@click.option(
    "--kafka-port", type=int, help="Listen there; a taken port is an error.  [default: last one, or a free one]"
)
@click.option("--zookeeper-port", type=int, help="The same for ZooKeeper.")
@sites_option
@click.option("--secure", is_flag=True, help="Take TLS and passwords, for the cluster and nodes of --config.")
@config_option
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then stop the servers.")
@format_option
def up(
    data_dir: Path | None,
    kafka_port: int | None,
    zookeeper_port: int | None,
    sites: tuple[str, ...] | None,
    secure: bool,
    config_path: Path,
    foreground: bool,
    format_: str,
) -> None:
    """Start an embedded Kafka and ZooKeeper and leave them running.

    The first start fetches the servers (45 MB, about a minute); later ones take two seconds. Data stays in the data
    directory; starting again continues with it.

    With --secure it makes certificates and passwords, once, and lets in by TLS who has them; it names a file with the
    lines that the configuration needs for it. The doors in plain text stay open to programs of this machine.

    With --sites it starts a Kafka and a ZooKeeper for each name, side by side, as data centres of one cluster. If one
    cannot start, none is left running.

    \b
    Examples:
      halog up
      halog up --data-dir ./site --kafka-port 9092 --zookeeper-port 2181
      halog up --sites west,east --data-dir ./sites
      halog up --data-dir ./site --secure
      halog up --foreground
      halog up --format json       {"kafka_ms": …, "zookeeper_ms": …, "cached": true, "bootstrap": …, …}
      halog up --sites west,east --format json       {"sites": {"west": {"kafka_ms": …, …}, "east": {…}}}
    """
    from halog.embedded.datadir import default_data_dir

    path = data_dir or default_data_dir()
    if sites is None:
        _up_one(path, (kafka_port, zookeeper_port), config_path if secure else None, foreground, format_)
    elif secure:
        raise click.UsageError("--secure excludes --sites: start each of them in its own directory")
    elif kafka_port is not None or zookeeper_port is not None:
        given = "--zookeeper-port" if kafka_port is None else "--kafka-port"
        raise click.UsageError(f"{given} excludes --sites: each of them has ports of its own")
    else:
        _up_several(path.absolute(), sites, foreground, format_)


def _up_one(
    path: Path, ports: tuple[int | None, int | None], secured: Path | None, foreground: bool, format_: str
) -> None:
    """Start one site; `secured`: by the configuration there."""
    from halog.embedded.model import process_start
    from halog.embedded.progress import BarProgress
    from halog.embedded.site import EmbeddedSite

    if secured is not None:
        EmbeddedSite(path, kafka_port=ports[0], zookeeper_port=ports[1]).check()  # before anything is made there
    made = None if secured is None else _secured(path, secured)
    with BarProgress() as progress:
        site = EmbeddedSite(
            path,
            kafka_port=ports[0],
            zookeeper_port=ports[1],
            zookeeper_tls=None if made is None else made.site.zookeeper,
            secure=None if made is None else made.site.kafka,
            detach=not foreground,
            progress=progress,
            since=process_start(),
        )
        _interruptible()
        info = site.start()
        if made is not None:
            _admit(site, made, info)
    if foreground:
        _stay([site], lambda: _show(info, format_, made))
    else:
        _show(info, format_, made)


class _Secured(NamedTuple):
    site: SecuredSite
    config: Config


def _secured(path: Path, config_path: Path) -> _Secured:
    from halog.cli.cluster.secured_site import prepare
    from halog.cli.shared.certificate_library import check_library
    from halog.config import load_config

    check_library()
    config = load_config(config_path)
    return _Secured(prepare(path.absolute(), config), config)


def _admit(site: EmbeddedSite, made: _Secured, info: SiteInfo) -> None:
    """Make the user; without it nobody could use the site, so it does not stay up."""
    from halog.cli.cluster.secured_site import admit

    try:
        admit(made.site, info, made.config)
    except BaseException:
        site.stop()
        raise


def _up_several(root: Path, names: Sequence[str], foreground: bool, format_: str) -> None:
    from halog.embedded.model import process_start
    from halog.embedded.progress import BarProgress
    from halog.embedded.several import check_root, part_of, start_all
    from halog.embedded.site import EmbeddedSite

    check_root(root)
    with BarProgress() as progress:
        sites = {
            name: EmbeddedSite(part_of(root, name), detach=not foreground, progress=progress, since=process_start())
            for name in names
        }
        _interruptible()
        infos = start_all(sites)
    if foreground:
        _stay(list(sites.values()), lambda: _show_all(root, infos, format_))
    else:
        _show_all(root, infos, format_)


def _interruptible() -> None:
    """Have SIGTERM interrupt the start, as Ctrl-C does: then the supervisor gives up, and nothing half-started stays
    behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.get_current_context().call_on_close(lambda: signal.signal(signal.SIGTERM, before))


def _stay(sites: Sequence[EmbeddedSite], show: Callable[[], None]) -> None:
    from halog.errors import SiteError

    try:
        show()
        while None in (codes := {site.ended() for site in sites}) and codes <= {None, 0}:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        say("stopping")
        failed = []
    else:  # somebody else stopped all of them, or one has failed
        failed = [(site.data_dir, code) for site in sites if (code := site.ended())]
    for site in sites:
        site.stop()
    for path, code in failed:
        raise SiteError(f"the site's supervisor ended (exit code {code}); see {path}/logs")


def _document(info: SiteInfo) -> dict[str, Any]:
    names = ("kafka_ms", "zookeeper_ms", "cached", "bootstrap", "zookeeper", "data_dir", "pid")
    sealed = ("kafka_ssl", "kafka_sasl_ssl", "zookeeper_tls")
    values = info.to_dict()
    return {name: values[name] for name in names} | {name: values[name] for name in sealed if values[name]}


def _servers(info: SiteInfo) -> list[tuple[object, ...]]:
    kafka, zookeeper = info.pids.get("kafka"), info.pids.get("zookeeper")
    doors = (
        ("kafka, certificate", info.kafka_ssl, "", kafka),
        ("kafka, password", info.kafka_sasl_ssl, "", kafka),
        ("zookeeper, TLS", info.zookeeper_tls, "", zookeeper),
    )
    return [
        ("kafka", info.bootstrap, f"{info.kafka_ms} ms", kafka),
        ("zookeeper", info.zookeeper, f"{info.zookeeper_ms} ms", zookeeper),
        *(door for door in doors if door[1]),
    ]


def _show(info: SiteInfo, format_: str, made: _Secured | None = None) -> None:
    document = _document(info) | ({} if made is None else {"lines": str(made.site.lines)})
    emit(format_, document, ("server", "address", "answered after", "pid"), _servers(info))
    if format_ == "table":
        from halog.embedded.datadir import default_data_dir

        there = "" if Path(info.data_dir) == default_data_dir() else f" --data-dir {shlex.quote(info.data_dir)}"
        say(f"supervisor {info.pid}, data in {info.data_dir}; stop it with `halog down{there}`")
        if made is not None and made.config.security.kafka is None:
            say(f"add the lines of {made.site.lines} to {made.config.source}")


def _show_all(root: Path, infos: Mapping[str, SiteInfo], format_: str) -> None:
    document = {"sites": {name: _document(info) for name, info in infos.items()}}
    rows = [(name, *row) for name, info in infos.items() for row in _servers(info)]
    emit(format_, document, ("site", "server", "address", "answered after", "pid"), rows)
    if format_ == "table":
        say(f"data in {root}; stop them with `halog down --sites {','.join(infos)} --data-dir {root}`")


@click.command()
@data_dir_option
@sites_option
@format_option
def down(data_dir: Path | None, sites: tuple[str, ...] | None, format_: str) -> None:
    """Stop the embedded Kafka and ZooKeeper. The data stays.

    \b
    Examples:
      halog down
      halog down --data-dir ./site
      halog down --data-dir ./sites --sites west,east
    """
    from halog.embedded.datadir import default_data_dir

    path = (data_dir or default_data_dir()).absolute()
    if sites is None:
        _down_one(path, format_)
    else:
        _down_several(path, sites, format_)


def _down_one(path: Path, format_: str) -> None:
    from halog.embedded.control import SiteControl
    from halog.embedded.datadir import is_locked

    running = is_locked(path)
    if running:
        SiteControl(path).down()
    elif format_ == "table":
        say(f"no site is running in {path}")
    emit(
        format_,
        {"stopped": running, "data_dir": str(path)},
        ("data directory", "stopped"),
        [(path, _yes(running))],
    )


def _down_several(root: Path, names: Sequence[str], format_: str) -> None:
    from halog.embedded.several import part_of, stop_all

    paths = {name: part_of(root, name) for name in names}
    ran = stop_all(paths)
    if format_ == "table":
        for name in names:
            if not ran[name]:
                say(f"no site is running in {paths[name]}")
    document = {"sites": {name: {"stopped": ran[name], "data_dir": str(paths[name])} for name in names}}
    rows = [(name, paths[name], _yes(ran[name])) for name in names]
    emit(format_, document, ("site", "data directory", "stopped"), rows)


def _yes(said: bool) -> str:
    return "yes" if said else "no"
