"""The fault suite's clusters, and its report: each test names the promise it tries to break, and `--faults-report FILE`
writes `[{name, promise, passed}]`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from halog.embedded import EmbeddedSite
from halog.embedded.model import SERVERS
from halog.errors import SiteError
from tests.faults.mesh import Mesh
from tests.faults.promises import PROMISES
from tests.integration.cluster import conftest as clusters
from tests.integration.cluster.harness import Cluster
from tests.integration.site import Site
from tests.integration.sites.conftest import between, linked, open_sites, two_sites

MODULE = "tests.faults.things"
__all__ = ["between", "linked", "open_sites", "two_sites"]

make = clusters.make
pytest_runtest_makereport = clusters.pytest_runtest_makereport
pytest_runtest_teardown = clusters.pytest_runtest_teardown


class Shared(clusters.Shared):
    """The cluster of all tests that leave it able to work."""

    def get(self) -> Cluster:
        if self.cluster is None:
            self.cluster = Cluster(self.factory.mktemp("cluster"), self.site, partitions=3, module=MODULE)
        self.cluster.whole()
        return self.cluster


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSite]:
    """The suite's own servers."""
    running = EmbeddedSite(tmp_path_factory.mktemp("faults-site"))
    with running:
        yield running


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[EmbeddedSite]:
    """Servers of one test that leaves them beyond repair."""
    running = EmbeddedSite(tmp_path / "site")
    with running:
        yield running


@pytest.fixture(scope="session")
def shared(
    site: EmbeddedSite, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[clusters.Shared]:
    yield from clusters.lend(Shared(site, tmp_path_factory), request)


class SharedMesh(clusters.Shared):
    """The same, each connection through a link."""

    mesh: Mesh | None = None

    def get(self) -> Cluster:
        if self.cluster is None or self.mesh is None:
            self.cluster = Cluster(self.factory.mktemp("mesh"), self.site, partitions=3, module=MODULE)
            self.mesh = Mesh(self.cluster)
            self.mesh.start()
        self.mesh.whole()
        return self.cluster

    def drop(self) -> None:
        if self.mesh is not None:
            self.mesh.close()
        self.mesh = None
        super().drop()


@pytest.fixture(scope="session")
def shared_mesh(
    site: EmbeddedSite, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[clusters.Shared]:
    yield from clusters.lend(SharedMesh(site, tmp_path_factory), request)


@pytest.fixture
def mesh(shared_mesh: SharedMesh, request: pytest.FixtureRequest) -> Iterator[Mesh]:
    """Nodes A, B, C and a client, every connection through a link; all open afterwards."""
    yield from lent(shared_mesh, request, lambda: shared_mesh.mesh)


@pytest.fixture
def cluster(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes A, B, C with three partitions, each active here, sync there, async on the third; all up and level.

    Whatever a test did to the servers, both run afterwards; a failed test's cluster is thrown away."""
    yield from lent(shared, request, lambda: shared.cluster)


T = TypeVar("T")


def lent(shared: clusters.Shared, request: pytest.FixtureRequest, what: Callable[[], T | None]) -> Iterator[T]:
    """Something of a shared cluster, for one test."""
    request.node.funcargs["shared"] = shared  # a failure's report shows this cluster
    try:
        shared.get()
        found = what()
        assert found is not None
        yield found
    except BaseException:
        shared.drop()
        raise
    finally:
        mend(shared.site)
    report = getattr(request.node, "called", None)
    if report is None or report.failed:
        shared.drop()


def mend(site: Site) -> None:
    """Both servers run."""
    for server in SERVERS:
        for again in (site.resume, site.start_server):
            with suppress(SiteError):  # it is not stopped, it runs
                again(server)


# --- the report ---


class Report:
    """Every fault with its promise, and whether that held: `passed` is true or false. One that is known to break it
    (xfail) has not passed. One that this machine cannot make (no root, no compiler) has null there, and `skipped` says
    why; the run ends with a list of these."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.found: dict[str, dict[str, object]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if "tests/faults/" in item.nodeid and not any(item.iter_markers("promise")):
                raise pytest.UsageError(f"{item.nodeid} names no promise: @pytest.mark.promise(1)")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[assignment]
        marker = item.get_closest_marker("promise")
        if marker is None:
            return report  # type: ignore[return-value]
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(item, marker.args[0], None, skipped=_why_skipped(report))
        elif report.when == "call" or report.failed:
            held = self.found.get(item.nodeid, {"passed": True})["passed"]
            self._note(item, marker.args[0], bool(held) and report.passed)
        return report  # type: ignore[return-value]

    def _note(self, item: pytest.Item, promise: int, passed: bool | None, **more: object) -> None:
        name = item.nodeid.partition("tests/faults/")[2]
        self.found[item.nodeid] = {"name": name, "promise": f"{promise}. {PROMISES[promise]}", "passed": passed, **more}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = [fault for fault in self.found.values() if fault["passed"] is None]
        if not skipped:
            return
        terminalreporter.section(f"{len(skipped)} of {len(self.found)} faults were NOT made on this machine", red=True)
        for fault in skipped:
            terminalreporter.line(f"{fault['name']}: {fault['skipped']}")

    def pytest_sessionfinish(self) -> None:
        if self.file is not None:
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(json.dumps(list(self.found.values()), indent=1) + "\n")


def _why_skipped(report: pytest.TestReport) -> str:
    """`longrepr` of a skipped test is (file, line, reason)."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-report", type=Path, metavar="FILE", help="write what was tried and whether it held")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Report(config.getoption("--faults-report")), "halog-faults")
