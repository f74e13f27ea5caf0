"""`halog up --sites` and `down --sites`: what is refused before anything is touched. What they do is an integration
test (tests/integration/embedded/test_several.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.cli.cluster.embedded import SiteNames

pytestmark = pytest.mark.feature("O3", "M5")

Run = Callable[..., Any]


@pytest.mark.parametrize("command", ["up", "down"])
@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("", "the name '' must be 1 to 100 of"),
        ("west,", "the name '' must be"),
        ("west,a b", "the name 'a b' must be"),
        ("../west", "the name '../west' must be"),
        ("west,..", "the name '..' must be"),
        ("west,east,west", "'west' is named twice"),
    ],
)
def test_names_that_cannot_be_are_refused(halog: Run, tmp_path: Path, command: str, names: str, why: str) -> None:
    ran = halog(command, "--sites", names, "--data-dir", tmp_path / "sites")
    assert (ran.code, why in ran.err) == (2, True), ran
    assert not (tmp_path / "sites").exists()


@pytest.mark.parametrize("option", ["--kafka-port", "--zookeeper-port"])
def test_one_port_is_not_for_several_sites(halog: Run, tmp_path: Path, option: str) -> None:
    ran = halog("up", "--sites", "west,east", option, 9092, "--data-dir", tmp_path / "sites")
    assert (ran.code, f"{option} excludes --sites" in ran.err) == (2, True), ran
    assert not (tmp_path / "sites").exists()


def test_spaces_around_names_are_nothing() -> None:
    assert SiteNames().convert("west , east", None, None) == ("west", "east")
