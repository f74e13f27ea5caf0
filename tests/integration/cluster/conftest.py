"""Clusters for the tests of this directory, and their nodes' logs where a test failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import reports
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.pauses import Control
from tests.integration.site import Site


class Shared:
    """One cluster of three for all tests that leave it able to work; a failed test's is thrown away."""

    def __init__(self, site: Site, factory: pytest.TempPathFactory) -> None:
        self.site = site
        self.factory = factory
        self.cluster: Cluster | None = None

    def get(self) -> Cluster:
        if self.cluster is None:
            self.cluster = Cluster(self.factory.mktemp("cluster"), self.site)
        self.cluster.whole()
        return self.cluster

    def drop(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
        self.cluster = None


_SHARED = pytest.StashKey[dict[str, Shared]]()


def lend(kept: Shared, request: pytest.FixtureRequest) -> Iterator[Shared]:
    """The fixture that has it."""
    assert request.fixturename is not None
    request.session.stash.setdefault(_SHARED, {})[request.fixturename] = kept
    try:
        yield kept
    finally:
        kept.drop()


@pytest.fixture(scope="session")
def shared(site: Site, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Shared]:
    yield from lend(Shared(site, tmp_path_factory), request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """It ends when the next test does not use it: three idle nodes and their broker are a third of a core, and to start
    them anew costs ten seconds of that."""
    yield
    used = getattr(nextitem, "fixturenames", ())
    for name, kept in item.session.stash.get(_SHARED, {}).items():
        if name not in used:
            kept.drop()


@pytest.fixture
def cluster(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes A, B, C with six partitions, each active here, sync there, async on the third; all up and level."""
    try:
        yield shared.get()
    except BaseException:
        shared.drop()
        raise
    report = getattr(request.node, "called", None)
    if report is None or report.failed:
        shared.drop()


@pytest.fixture
def make(site: Site, tmp_path: Path) -> Iterator[Make]:
    """`make(nodes="AB", every=100, …)`: a cluster of this test's own, not started yet."""
    with ExitStack() as stack:

        def build(**values: Any) -> Cluster:
            directory = tmp_path / f"cluster{len(built)}"
            directory.mkdir()
            made = Cluster(directory, site, **values)
            built.append(made)
            stack.callback(made.close)
            return made

        built: list[Cluster] = []
        build.built = built  # type: ignore[attr-defined]
        yield build


@pytest.fixture
def control(site: Site, tmp_path: Path) -> Iterator[Control]:
    """Somebody who works beside the test, and tells how long that takes on this machine."""
    directory = tmp_path / "control"
    directory.mkdir()
    with closing(Cluster(directory, site, nodes="Z", partitions=1, sync=0, async_=0)) as cluster:
        cluster.start()
        cluster.whole()
        with Control(cluster.client()) as beside:
            yield beside


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows what the nodes said last."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "call":
        item.called = report  # type: ignore[attr-defined]
    if report.failed:
        reports.add(report, _clusters(item))
    return report  # type: ignore[return-value]


def _clusters(item: pytest.Item) -> list[Cluster]:
    used: dict[str, Any] = getattr(item, "funcargs", {})
    found = list(getattr(used.get("make"), "built", []))
    found += getattr(used.get("two_sites"), "clusters", {}).values()
    if (shared := used.get("shared")) is not None and shared.cluster is not None:
        found.append(shared.cluster)
    elif isinstance(used.get("cluster"), Cluster):
        found.append(used["cluster"])
    return found
