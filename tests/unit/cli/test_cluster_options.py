"""The options that commands on a cluster have in common: one decorator adds them, and passes them as one value."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from halog.adapters.memory import MemoryChannel, MemoryCoordinator, MemoryLog
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options, cluster_options_after
from halog.cli.shared.surroundings import Surroundings
from halog.config import Config
from halog.runtime.support.adapters import Adapters
from tests.unit.cli.conftest import TOML
from tests.unit.cli.every_command import commands

pytestmark = pytest.mark.feature("O1")

SHARED = ["--config", "--format", "--timeout"]


def test_their_values_arrive_as_one() -> None:
    seen: list[tuple[str, ClusterOptions]] = []

    @click.command()
    @click.argument("name")
    @cluster_options
    def command(name: str, options: ClusterOptions) -> None:
        seen.append((name, options))

    ran = CliRunner().invoke(command, ["A", "--config", "x.toml", "--format", "json", "--timeout", "3"])
    assert (ran.exit_code, seen) == (0, [("A", ClusterOptions(Path("x.toml"), "json", 3.0))])


def test_a_command_may_wait_for_longer_by_default_and_its_requests_no_longer_than_others(
    tmp_path: Path,
) -> None:
    waits: list[float] = []
    file = tmp_path / "halog.toml"
    file.write_text(TOML)

    def adapters(config: Config, name: str, *, answer_s: float) -> Adapters:
        waits.append(answer_s)
        return Adapters(MemoryLog(), MemoryCoordinator(), MemoryChannel(), None)

    @click.command()
    @cluster_options_after(60.0, "Wait.")
    def command(options: ClusterOptions) -> None:
        with options.connect(as_in_file=True), options.connect(at_most_s=10.0, as_in_file=True):
            pass

    assert CliRunner().invoke(command, ["--config", str(file)], obj=Surroundings(adapters)).exit_code == 0
    assert waits == [60.0, 10.0]


def test_every_command_has_them_in_one_order() -> None:
    """A command that waits for nodes has its timeout beside `--wait`."""
    for name, command in commands():
        found = [p.opts[-1] for p in command.params if p.opts[-1] in SHARED]
        assert found in ([o for o in SHARED if o in found], ["--timeout", "--config", "--format"]), name
