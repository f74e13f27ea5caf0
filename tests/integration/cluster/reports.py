"""What clusters say of themselves in the report of a test that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.integration.cluster.harness import Cluster

LOG_LINES = 60


def add(report: pytest.TestReport, clusters: Iterable[Cluster]) -> None:
    """Their servers, their tables and copies, the ends of their nodes' logs, and what their threads do."""
    for cluster in clusters:
        for server, said in getattr(cluster.site, "describe", dict)().items():
            report.sections.append((server, said))
        report.sections.append((f"{cluster.name} as it is", _told(cluster.describe)))
        for log in sorted(cluster.directory.glob("*.err")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            report.sections.append((f"{cluster.name} {log.stem}", "\n".join(lines)))
        for name in cluster.running():
            report.sections.append((f"{cluster.name} {name}'s threads", _told(cluster.processes[name].stacks)))


def _told(by: Callable[[], str]) -> str:
    """Until the test's time is over: pytest-timeout's alarm strikes wherever it meets, and here would end the run."""
    try:
        return by()
    except pytest.fail.Exception as over:
        return str(over)
