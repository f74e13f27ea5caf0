"""This module has Spark do a part of a command's work, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.core.table.table import PartitionTable

LOCAL_SPARK = "local[*]"
NEEDED = ("pyspark", "pyarrow", "pandas")
"""Only Spark jobs need these packages."""


def check_installed(without: str) -> None:
    """Raise ConfigError where a package that Spark jobs need is missing. `without` says what happens without
    --spark."""
    from importlib.util import find_spec

    from halog.errors import ConfigError

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--spark needs {missing[0]}, which is not installed: pip install 'halog[spark]'; without --spark {without}"
        )


def classifying(
    config_path: Path,
    tables: Sequence[PartitionTable],
    sources: Mapping[str, str],
    checkpoint: Path | None,
    master: str | None,
) -> Callable[[list[str]], None]:
    """Return a function that has Spark jobs compare the histories of these partitions. There is one job for each policy
    and source, with a directory of its own in `checkpoint`. The function is given the partitions that were merged
    before; it leaves these out."""

    def classify(done: list[str]) -> None:
        import spark_jobs.merge as job

        groups: dict[tuple[str, str], list[str]] = {}
        for table in tables:
            groups.setdefault((table.policy, sources[table.name]), []).append(table.name)
        for (policy, source), names in groups.items():
            if set(names) - set(done):
                directory = None if checkpoint is None else checkpoint / f"{policy}-{source}"
                job.publish(
                    config_path, policy, source, directory, names=names, done=done, master=master or LOCAL_SPARK
                )

    return classify
