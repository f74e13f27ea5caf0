"""`halog config check|diff|activate|show|history` handles the configuration as a file, and the version the cluster goes
by."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, gathered
from halog.cli.shared.messages import say
from halog.cli.shared.options import Text, config_option, number_of, timeout_option
from halog.cli.shared.output import emit, emit_json, format_option
from halog.core.tolerant import plain

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.config import Config
    from halog.metadata.config_versions import ActiveVersion, Version

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_EXIT = 2


def file_argument(command: F) -> F:
    """Add the argument `[FILE]`: the configuration in question, where --config names another one, which says how to
    reach the cluster."""
    return click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")(command)


NOTHING_ACTIVE = (
    "nothing was ever activated: every process goes by its own file until `halog config activate` makes one the "
    "cluster's"
)


@click.group()
def config() -> None:
    """Check, compare and activate the cluster's configuration; see what is active.

    Without FILE the file is that of --config, which also says how to reach the cluster. `-` is standard input.

    \b
    Examples:
      halog config check
      halog config diff
      halog config activate --comment "votes for the new rack"
      halog config history
    """


@config.command()
@file_argument
@config_option
@format_option
def check(file: Path | None, config_path: Path, format_: str) -> None:
    """Validate a file as a whole and say everything that is wrong with it. Asks no server.

    Exit code 2 if something is wrong. A warning is about a value that is valid, and perhaps not meant.

    \b
    Examples:
      halog config check
      halog config check new.toml --format json
    """
    from halog.config.read import name_of, problems_of, read_toml, warnings_of

    path = file or config_path
    table, name = read_toml(path), name_of(path)
    problems, warnings = problems_of(table, name), warnings_of(table, name)
    if format_ == "json":
        found, beside = ([{"key": key, "reason": reason} for key, reason in some] for some in (problems, warnings))
        emit_json({"file": str(path), "ok": not problems, "problems": found, "warnings": beside})
    else:
        for key, reason in problems:
            click.echo(f"{name}: {key}: {reason}")
        for key, reason in warnings:
            click.echo(f"{name}: {key}: warning: {reason}")
        if not problems:
            click.echo(f"{name}: ok")
    if problems:
        raise click.exceptions.Exit(CONFIG_EXIT)


@config.command()
@file_argument
@click.option("--version", "number", type=number_of(1), help="Compare with this version, not the active one.")
@click.option("--with", "with_", type=number_of(1), help="Compare this version, not a file.")
@cluster_options
def diff(file: Path | None, number: int | None, with_: int | None, options: ClusterOptions) -> None:
    """Show which keys a file changes, and when each change would take effect, or why it is refused.

    Changes nothing. If keys would belong to other partitions, all objects of the policy are read to count what moves.

    \b
    Examples:
      halog config diff
      halog config diff new.toml
      halog config diff --version 2 --with 3
    """
    from halog.cli.cluster.config_views import compare, show
    from halog.cli.shared.remap_begin import foresee
    from halog.config.read import name_of, operators_config
    from halog.metadata import config_versions as versions

    with _reached(options, file) as connection:
        c = connection.coordinator
        left = versions.read(c).version if number is None else versions.find(c, number)
        if with_ is None:
            path = file or options.config_path
            right, name = operators_config(path), name_of(path)
        else:
            right, name = versions.find(c, with_).parsed(), f"version {with_}"
        compared = compare(connection, left, right, name)
        moving = foresee(connection, right, compared.moving)
    if options.format == "json":
        emit_json({**compared.document, "moving": moving})
    else:
        show(compared)


@config.command()
@file_argument
@click.option("--comment", type=Text(), default="", help="Why; stands in the history.")
@click.option("--on", "on", type=number_of(), help="Only if this version is active (0: none); else exit 5.")
@click.option("--dry-run", is_flag=True, help="Show what would become of each key; activate nothing.")
@cluster_options
def activate(file: Path | None, comment: str, on: int | None, dry_run: bool, options: ClusterOptions) -> None:
    """Make a file the configuration that the cluster goes by: as a new version, whole or not at all.

    Refused with exit code 5, and nothing changed, if a running cluster cannot have it: each such key is named with the
    reason. Nodes take up at once what needs no restart; `halog node list` shows who must be restarted for the rest. The
    nodes then move the copies and objects that belong elsewhere, under traffic. For policies with `rebalance =
    "manual"` use `halog plan` and `halog rebalance`. If the command dies on the way, give it again.

    \b
    Examples:
      halog config activate --dry-run
      halog config activate --comment "votes for the new rack"
      halog config activate new.toml --on 3
    """
    from halog.cli.cluster.config_views import compare, show
    from halog.cli.shared.remap_begin import begin, foresee
    from halog.config.read import name_of, operators_config
    from halog.errors import RefusedError
    from halog.metadata import config_versions as versions

    path = file or options.config_path
    new = operators_config(path)
    with _reached(options, file) as connection:
        standing = versions.read(connection.coordinator)
        if on not in (None, standing.number):
            raise RefusedError(f"version {standing.number} is active, not {on}: look at `halog config diff` again")
        compared = compare(connection, standing.version, new, name_of(path))
        made, moving = None, dict[str, Any]()
        if dry_run:
            moving = foresee(connection, new, compared.moving)
        elif not (compared.refused or compared.same):
            moving = begin(connection, new, compared.moving)
            made = _activate(connection, standing, path, new, comment)
    if options.format == "json":
        emit_json({**compared.document, "activated": None if made is None else made.number, "moving": moving})
    elif compared.same:
        click.echo(f"version {standing.number} is this configuration already; nothing was changed")
        if compared.refused and not compared.away:
            say(f"the cluster differs from this configuration: {compared.refused}")
    else:
        show(compared)
    if compared.same and compared.away:
        raise RefusedError(
            f"version {standing.number} is active, but objects still move to where another configuration has them: "
            f"{compared.away}"
        )
    if compared.refused and not compared.same:
        raise RefusedError(f"nothing was activated: {name_of(path)} changes {compared.refused}")
    if made is not None:
        _say_carried(made, standing)
        say(f"version {made.number} is active; `halog node list` shows who must be restarted for it")
        _say_where(new)


@config.command("show")
@click.option("--version", "number", type=number_of(1), help="This version, not the active one.")
@config_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["toml", "json"]),
    default="toml",
    show_default=True,
    help="As a file that can be activated again, or one JSON document.",
)
@timeout_option
@gathered
def show_(number: int | None, options: ClusterOptions) -> None:
    """Show the active version, or an older one, with every key. Exit code 1, and null as JSON, if nothing was ever
    activated.

    \b
    Examples:
      halog config show
      halog config show --version 2
      halog config show --format json
    """

    from halog.cli.cluster.config_views import when
    from halog.config.later_keys import listed
    from halog.errors import HalogError
    from halog.metadata import config_versions as versions
    from halog.release import RELEASE

    with _reached(options) as connection:
        c = connection.coordinator
        version = versions.read(c).version if number is None else versions.find(c, number)
    if version is None:
        if options.format == "json":
            emit_json(None)
        raise HalogError(NOTHING_ACTIVE)
    if options.format == "json":
        emit_json(plain(version))
        return
    click.echo(f"# version {version.number}, {when(version)} by {version.by} from {version.file}")
    if version.comment:
        click.echo(f"# {version.comment}")
    if later := version.later:
        click.echo(f"# halog {RELEASE} does not know, and does not show: {listed(later)}")
    click.echo(version.parsed(checked=False).to_toml())


@config.command()
@cluster_options
def history(options: ClusterOptions) -> None:
    """List the versions that are kept, the active one first: when, by whom, from what file, why.

    \b
    Examples:
      halog config history
      halog config history --format json
    """

    from halog.cli.cluster.config_views import DIGITS, when
    from halog.metadata import config_versions as versions

    with _reached(options) as connection:
        found = versions.history(connection.coordinator)
    if not found:
        say(NOTHING_ACTIVE)
    rows = [(v.number, when(v), v.by, v.digest[:DIGITS], v.file, v.comment) for v in found]
    document = [{k: x for k, x in plain(v).items() if k != "config"} for v in found]
    emit(options.format, document, ["version", "activated", "by", "digest", "file", "comment"], rows)


def _say_carried(made: Version, standing: ActiveVersion) -> None:
    """Tell which keys of a later halog the version before had, and this one has, too."""
    from halog.config.later_keys import listed
    from halog.release import RELEASE

    if later := made.later:
        say(f"carried from version {standing.number}, as halog {RELEASE} does not know them: {listed(later)}")


def _say_where(new: Config) -> None:
    """Tell that other sites still have their own versions: each site has its own, and nothing compares them."""
    from halog.config.multi_site import sites_named, sites_of

    tree, here = new.all_sites, new.site.name
    others = [site for site in sites_of(tree, tree.nodes) if site not in ("", here)]
    if others:
        at, whose = sites_named(others), "that site's" if len(others) == 1 else "each site's own"
        say(f"it is active at site {here} alone; to have it at {at}, activate it with {whose} file, too")


def _reached(options: ClusterOptions, file: Path | None = None) -> AbstractContextManager[ClusterConnection]:
    """Return a connection by --config, or by FILE where that is the only file."""
    from halog.config.read import STANDARD

    path = options.config_path
    if file is not None and path != STANDARD and not path.exists():
        options = options._replace(config_path=file)
    return options.connect(as_in_file=True)


def _activate(connection: ClusterConnection, standing: ActiveVersion, path: Path, new: Config, comment: str) -> Version:
    from halog.cli.cluster.config_views import tell
    from halog.config.read import STANDARD, name_of
    from halog.metadata.config_versions import Draft, activate as activate_version
    from halog.metadata.identity import who

    why = " ".join(comment.split())  # it must fit one line of a table
    file = name_of(path) if path == STANDARD else str(path.absolute())
    draft = Draft(time.time_ns() // 1_000_000, who(), file, why, new)
    made = activate_version(connection.coordinator, standing, draft)
    if connection.tables and not tell(connection, made):
        say("the event history does not answer: this activation is only in `halog config history`")
    return made
