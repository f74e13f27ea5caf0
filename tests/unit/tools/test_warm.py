"""What is fetched before the first test: all of it, or one line that says why not."""

from __future__ import annotations

from typing import Any

import pytest

from halog.errors import SiteError
from tools import warm


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for; nothing is fetched."""
    found: list[str] = []

    def jars(java: Any, progress: Any, of: Any = warm.jars.SERVERS) -> tuple[str, bool]:
        found.append(of.what)
        return "jars", True

    monkeypatch.setattr(warm, "find_java", lambda: None)
    monkeypatch.setattr(warm.jars, "ensure", jars)
    monkeypatch.setattr(warm.archives, "ensure", lambda java, where, progress: found.append(f"archives of {where}"))
    monkeypatch.setattr(warm.dataset, "ensure", lambda progress: found.append("flights"))
    return found


def test_all_that_a_test_would_fetch_is_there_afterwards(asked: list[str]) -> None:
    assert warm.main() == 0
    assert asked == ["the servers' jars", "archives of jars", "Spark's Kafka connector", "flights"]


def test_what_cannot_be_had_is_said_in_one_line(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java() -> None:
        raise SiteError("no Java found")

    monkeypatch.setattr(warm, "find_java", no_java)
    assert warm.main() == 1
    assert capsys.readouterr().err == "warm: no Java found\n"
    assert asked == []
