"""Commands on a cluster have three options in common: the configuration, the format of the answer, and the timeout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from halog.cli.shared.options import TIMEOUT_S, config_option, timeout_after
from halog.cli.shared.output import format_option

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

R = TypeVar("R")
Command = Callable[..., R]


class ClusterOptions(NamedTuple):
    """Holds what `--config`, `--format` and `--timeout` say. `format` is table or json."""

    config_path: Path
    format: str
    timeout_s: float

    def connect(
        self, *, at_most_s: float | None = None, as_in_file: bool = False
    ) -> AbstractContextManager[ClusterConnection]:
        """Return a connection to the cluster, for the length of a command. Its requests wait for the timeout, or for
        `at_most_s`, if that is less. `as_in_file`: see `ClusterConnection.open`."""
        from halog.cli.shared.connection import connect

        wait_s = self.timeout_s if at_most_s is None else min(self.timeout_s, at_most_s)
        return connect(self.config_path, wait_s, as_in_file=as_in_file)


def gathered(command: Command[R]) -> Command[R]:
    """Pass the values of the three options to a command as one argument, `options`."""

    @wraps(command)
    def called(*args: Any, config_path: Path, format_: str, timeout_s: float, **others: Any) -> R:
        return command(*args, options=ClusterOptions(config_path, format_, timeout_s), **others)

    return called


def cluster_options_after(default_s: float, help_: str) -> Callable[[Command[R]], Command[R]]:
    """Return a decorator that adds `--config`, `--format` and `--timeout` with this default."""

    def add(command: Command[R]) -> Command[R]:
        return config_option(format_option(timeout_after(default_s, help_)(gathered(command))))

    return add


def cluster_options(command: Command[R]) -> Command[R]:
    """Add `--config`, `--format` and `--timeout`: how long to wait for an answer."""
    return cluster_options_after(TIMEOUT_S, "Give up (exit 3 or 6) after this long.")(command)
