"""`halog doctor` looks for nodes that take plain text from other machines (N5). It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from halog.cli.cluster.doctor_checks import Finding
from halog.cli.shared.plain_text import plain_text_of
from halog.errors import HalogError

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "node channel"
CONNECT_S: Final = 5.0


def look(config_path: Path) -> list[Finding]:
    """Ask every node that runs."""
    from halog.cli.shared.connection import connect
    from halog.cli.shared.survey import ask_nodes

    try:
        with connect(config_path, CONNECT_S) as connection:
            said = ask_nodes(connection)
    except HalogError as e:
        return [Finding(NAME, "skip", e.message)]
    return list(findings(said))


def findings(said: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a row for each such node; else one row."""
    plain = plain_text_of(said)
    for node, text in plain.items():
        yield Finding(NAME, "warn", f"node {node} {text}", 'set node_tls = "required" in [security] of its file')
    answered = sum("error" not in status for status in said.values())
    if not plain and answered:
        yield Finding(NAME, "ok", f"none of {answered} nodes takes plain text from other machines")
