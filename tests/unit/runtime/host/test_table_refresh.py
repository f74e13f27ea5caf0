"""Tables that are to be read again (P10)."""

from __future__ import annotations

import logging
import threading

import pytest

from halog.core.table.table import PartitionTable
from halog.errors import UnreachableError
from halog.ports import Versioned
from halog.runtime.host.table_refresh import TableRefresh

TABLE = PartitionTable("p", "0" * 32, "topic", 0, "policy", ("A",), 0)


class Away:
    """A coordinator that cannot be reached the first few times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def sync(self, path: str) -> None:
        if self.times > 0:
            self.times -= 1
            raise UnreachableError("nobody answers")

    def get_many(self, paths: list[str]) -> list[Versioned]:
        return [Versioned(TABLE.to_bytes(), 7) for _ in paths]


@pytest.mark.feature("P10")
def test_a_table_that_cannot_be_read_is_tried_again_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[tuple[str, int]] = []
    made = TableRefresh(Away(3), lambda name, version, table: seen.append((name, version)), 0.001)  # type: ignore[arg-type]
    made.ask("p")
    with caplog.at_level(logging.WARNING, logger="halog"):
        made.turn(threading.Event())
    assert seen == [("p", 7)]
    assert [r.message for r in caplog.records] == [
        "the table of partition p cannot be read, going on trying: UnreachableError: nobody answers"
    ]


class Broken(Away):
    """One of its tables is no table."""

    def get_many(self, paths: list[str]) -> list[Versioned]:
        return [Versioned(b"{" if path.endswith("/b") else TABLE.to_bytes(), 7) for path in paths]


@pytest.mark.feature("P10")
def test_a_table_that_is_none_holds_up_no_other() -> None:
    closing, seen = threading.Event(), set[str]()

    def took(name: str, version: int, table: PartitionTable) -> None:
        seen.add(name)
        if seen >= {"a", "c"}:
            closing.set()

    made = TableRefresh(Broken(0), took, 0.001)  # type: ignore[arg-type]
    for name in "abc":
        made.ask(name)
    made.turn(closing)
    assert seen == {"a", "c"}
