"""`halog doctor` looks for nodes that take plain text from other machines (N5). It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from halog.cli.cluster.doctor_checks import Finding
from halog.cli.shared.plain_text import plain_text_of

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

NAME: Final = "node channel"


def check(connection: ClusterConnection) -> list[Finding]:
    """Ask every node that runs."""
    from halog.cli.shared.survey import ask_nodes

    return list(findings(ask_nodes(connection)))


def findings(said: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a row for each such node; else one row."""
    plain = plain_text_of(said)
    for node, text in plain.items():
        yield Finding(NAME, "warn", f"node {node} {text}", 'set node_tls = "required" in [security] of its file')
    answered = sum("error" not in status for status in said.values())
    if not plain and answered:
        yield Finding(NAME, "ok", f"none of {answered} nodes takes plain text from other machines")
