"""Two embedded sites for all tests of this directory, and a cluster over both for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import reports
from tests.integration.sites.two import Between, TwoSites
from tests.workers import is_last

_LINKED = pytest.StashKey[Between]()


@pytest.fixture(scope="session")
def linked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Between]:
    """Both sites, running, with the lines between them: embedded ones, whatever the other tests run over."""
    made = request.session.stash[_LINKED] = Between(tmp_path_factory.mktemp("sites"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def between(linked: Between) -> Iterator[Between]:
    """The same, whole before the test and after it."""
    linked.whole()
    yield linked
    linked.whole()


@pytest.fixture
def two_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """A cluster of this test's own over both sites, not started yet."""
    made = TwoSites(tmp_path, between)
    try:
        yield made
    finally:
        between.heal()  # nodes and clients end sooner
        made.close()


@pytest.fixture
def open_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """The same, and requests go over lines to the site that serves."""
    made = TwoSites(tmp_path, between, requests=True)
    try:
        yield made
    finally:
        between.heal()
        made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """They end with the last test of this directory: an idle broker is a thirtieth of a core, for all that follow."""
    yield
    made = item.session.stash.get(_LINKED, None)
    if made is not None and is_last(item, nextitem):
        made.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows what the nodes said last."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    used: dict[str, Any] = getattr(item, "funcargs", {})
    for made in (used.get("two_sites"), used.get("open_sites")):
        if report.failed and isinstance(made, TwoSites):
            reports.add(report, made.clusters.values())
    return report  # type: ignore[return-value]
