"""This module has the group `halog certs` (O4, N5), and spells the options that its commands have in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from halog.cli.shared.certificate_library import check_library
from halog.cli.shared.options import Text, config_option, number_of
from halog.cli.shared.output import format_option

if TYPE_CHECKING:
    from halog.certs.directory import CertsDirectory

R = TypeVar("R")
Command = Callable[..., R]
MOST_DAYS = 36_500


@click.group("certs")
def certs() -> None:
    """Make the certificates of a cluster, check them, renew them, and replace the authority that signs them.

    The files are in one directory: --certs-dir, else `certs_dir` of the configuration's [security], else ./certs.

    \b
    Examples:
      halog certs create-ca
      halog certs create-node A --host 10.0.0.5
      halog certs create-user alice --role operator
      halog certs check
      halog certs renew --all --within 30d
    """


class CertsOptions(NamedTuple):
    """Holds what the options say of the directory, the cluster and the form of the answer."""

    directory: CertsDirectory
    configured: str
    """The cluster's name in the configuration; "" if there is none."""
    given: str
    """The cluster's name on the command line."""
    format: str
    config_path: Path

    @property
    def known_cluster(self) -> str:
        """Return the cluster's name as the configuration, the command line or the authority tells it; "" if none
        does. ConfigError if the first two differ."""
        from halog.certs.certificate import identity_of
        from halog.certs.inventory import AUTHORITIES, trusted_authorities
        from halog.errors import ConfigError

        if self.configured and self.given and self.configured != self.given:
            raise ConfigError(
                f"{self.config_path}: the cluster is {self.configured}, not {self.given}; nothing was changed"
            )
        told = self.configured or self.given
        if told or not self.directory.place(AUTHORITIES).exists():
            return told
        identity = identity_of(trusted_authorities(self.directory)[0])
        return identity.cluster if identity is not None else ""

    @property
    def cluster(self) -> str:
        """Return the cluster's name. ConfigError if nothing tells it."""
        from halog.errors import ConfigError

        if told := self.known_cluster:
            return told
        raise ConfigError("the cluster's name is not known: name it with --cluster, or a configuration with --config")


def now() -> dt.datetime:
    """Return the time by this machine's clock."""
    return dt.datetime.now(dt.UTC)


def directory_options(command: Command[R]) -> Command[R]:
    """Add `--certs-dir`, `--config` and `--format`, and pass them as one argument, `options`. What needs `cryptography`
    may be imported by the command."""

    @wraps(command)
    def called(
        *args: Any, config_path: Path, certs_dir: Path | None, format_: str, cluster: str = "", **others: Any
    ) -> R:
        check_library()
        options = _options(config_path, certs_dir, format_, cluster)
        return command(*args, options=options, **others)

    with_directory = click.option(
        "--certs-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="The directory of the certificates.  [default: `certs_dir` of [security], else ./certs]",
    )(called)
    return config_option(format_option(with_directory))


cluster_name_option = click.option(
    "--cluster",
    type=Text(),
    default="",
    metavar="NAME",
    help="The cluster's name, where neither a configuration nor the authority tells it.",
)

nodes_option = click.option(
    "--cluster", "asks_nodes", is_flag=True, help="Ask the registered nodes which certificates they present, too."
)

authority_key_option = click.option(
    "--ca-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The authority's key, if it is elsewhere.  [default: ca.key in the directory]",
)

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace files that are there.")


def days_option(default: int) -> Callable[[Command[R]], Command[R]]:
    """Return the option `--days` with this default."""
    return click.option(
        "--days",
        type=number_of(1, MOST_DAYS),
        default=default,
        show_default=True,
        help="It ends after so many days, and not later than the authority.",
    )


def authority_key(options: CertsOptions, given: Path | None) -> Path:
    """Return where the authority's key is."""
    from halog.certs.inventory import AUTHORITY_KEY

    return options.directory.place(AUTHORITY_KEY) if given is None else given


def _options(config_path: Path, certs_dir: Path | None, format_: str, cluster: str) -> CertsOptions:
    """Read the two keys that these commands need of the configuration. A cluster whose certificates are still to be
    made may have a configuration that cannot be run yet, and an authority's machine may have none."""
    from halog.certs.directory import CertsDirectory
    from halog.config.read import STANDARD, read_toml

    context = click.get_current_context()
    is_given = context.get_parameter_source("config_path") is not click.core.ParameterSource.DEFAULT
    table = read_toml(config_path) if is_given or config_path.exists() else {}
    name = _text_of(table, "cluster", "name", config_path)
    told = _text_of(table, "security", "certs_dir", config_path)
    base = Path() if config_path == STANDARD else config_path.parent
    chosen = certs_dir or (base / Path(told).expanduser() if told else Path("certs"))
    return CertsOptions(CertsDirectory(chosen), name, cluster, format_, config_path)


def _text_of(table: dict[str, Any], section: str, key: str, file: Path) -> str:
    from halog.errors import ConfigError

    values = table.get(section, {})
    found = values.get(key, "") if isinstance(values, dict) else None
    if not isinstance(found, str):
        raise ConfigError(f"{file}: {section}.{key}: must be a string")
    return found
