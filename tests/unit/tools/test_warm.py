"""What is fetched before the first test: all of it, or one line that says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import jars
from halog.errors import SiteError
from tools import warm


def warmed(java_of: Callable[[], Any]) -> tuple[int, list[str]]:
    """The exit code, and what was asked for; nothing is fetched."""
    found: list[str] = []

    def jars_of(java: Any, progress: Any, of: Any = jars.SERVERS) -> tuple[Path, bool]:
        found.append(of.what)
        return Path("jars"), True

    def archives_of(java: Any, where: Path, progress: Any) -> None:
        found.append(f"archives of {where}")

    return warm.main(java_of, jars_of, archives_of, lambda progress: found.append("flights")), found


def test_all_that_a_test_would_fetch_is_there_afterwards() -> None:
    code, asked = warmed(lambda: None)
    assert code == 0
    assert asked == ["the servers' jars", "archives of jars", "Spark's Kafka connector", "flights"]


def test_what_cannot_be_had_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def no_java() -> None:
        raise SiteError("no Java found")

    code, asked = warmed(no_java)
    assert code == 1
    assert capsys.readouterr().err == "warm: no Java found\n"
    assert asked == []
