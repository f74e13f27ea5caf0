"""Every test run: the `feature` marker, the outcomes `make features` is made from, and the sites (`--site`).

`@pytest.mark.feature("P1", "R1")` names the mission's ids a test proves, at most three; a wrong one stops the run.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tools import features

# Whoever changes nothing sees the same result: a build must not fail by chance, nor because its machine is slow.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)  # HYPOTHESIS_PROFILE=explore: other examples each time
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # In the background of a shell. Every process a test starts would inherit it, and tests press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from halog.embedded import EmbeddedSite
    from tests.containers.site import ContainerSite

_SERIOUS: dict[str, int] = {"skipped": 0, "passed": 1, "failed": 2}


IDS = "halog features"
"""A test's property: its ids. Properties come back with the reports of xdist's workers."""


class Recorder:
    """Collects the outcome of each test that carries ids; a failing set-up or tear-down is a failure."""

    def __init__(self) -> None:
        self.outcomes: dict[str, features.Ended] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            ids = tuple(dict.fromkeys(i for mark in item.iter_markers("feature") for i in mark.args))
            if not ids:
                continue
            if problem := features.problem_with(ids):
                raise pytest.UsageError(f"{item.nodeid}: {problem}")
            item.user_properties.append((IDS, ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = dict(report.user_properties).get(IDS)
        if not isinstance(ids, tuple | list) or (report.when != "call" and report.outcome == "passed"):
            return
        before = self.outcomes.get(report.nodeid)
        if before is None or _SERIOUS[report.outcome] > _SERIOUS[before.outcome]:
            self.outcomes[report.nodeid] = features.Ended(tuple(ids), report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.outcomes and not hasattr(session.config, "workerinput"):
            features.save({**features.load(), **self.outcomes})


class Listed:
    """Leaves out what a list of `--list-files` does not name."""

    def __init__(self, root: Path, names: str) -> None:
        self.files = {root / name for name in names.splitlines()}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.suffix == ".py" and collection_path not in self.files else None


class Nodes:
    """Marks tests that run nodes in this process, over memory adapters, by what they and their fixtures use."""

    USED = (("halog.testing.cluster", "Cluster", "wait_until"), ("halog.adapters.memory", "MemoryBroker", "MemoryTree"))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        used = {id(getattr(sys.modules[m], name)) for m, *names in self.USED if m in sys.modules for name in names}
        known: dict[int, bool] = {}

        def uses_it(names: dict[str, object]) -> bool:
            if id(names) not in known:
                known[id(names)] = not used.isdisjoint(map(id, names.values()))
            return known[id(names)]

        for item in items:
            if isinstance(item, pytest.Function):
                fixtures = (one.func for some in item._fixtureinfo.name2fixturedefs.values() for one in some)
                if any(map(uses_it, [vars(item.module), *(f.__globals__ for f in fixtures)])):
                    item.add_marker("nodes")


def pytest_addoption(parser: pytest.Parser) -> None:
    said = os.environ.get("HALOG_TEST_SITE", "embedded")
    sites = ("embedded", "closed", "containers")
    parser.addoption("--site", choices=sites, default=said, help="what the integration tests run over")
    lists = "write there which files have tests of nodes, and which have others"
    parser.addoption("--list-files", metavar="FOLDER", type=Path, help=lists)
    parser.addoption(
        "--listed", metavar="FILE", type=Path, help="collect no other files than this one of those lists names"
    )


@pytest.fixture(scope="session")
def embedded_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSite]:
    """One Kafka and one ZooKeeper, children of this process."""
    from halog.embedded import EmbeddedSite

    running = EmbeddedSite(tmp_path_factory.mktemp("site"))
    with running:
        yield running


@pytest.fixture(scope="session")
def container_site() -> Iterator[ContainerSite]:
    """Three brokers and three ZooKeeper servers in containers, or a skip that says why there are none."""
    from tests.containers.available import why_not

    if reason := why_not("kafka", "zookeeper"):
        pytest.skip(reason)
    from tests.containers.site import ContainerSite

    running = ContainerSite()
    with running:
        yield running


def pytest_collection_finish(session: pytest.Session) -> None:
    """Five thousand tests, their modules and what those import stay to the end: a quarter of a million objects, and to
    look through them in each full collection took a seventh of a run's CPU."""
    if folder := session.config.getoption("list_files"):
        list_files(session, folder)
    gc.collect()
    gc.freeze()


def list_files(session: pytest.Session, folder: Path) -> None:
    """A worker that runs only tests of nodes need not import and collect the files that have none; nor need one that
    runs only others. A file may be in both lists."""
    files: dict[str, dict[str, None]] = {"nodes": {}, "others": {}}
    for item in session.items:
        files["nodes" if item.get_closest_marker("nodes") else "others"][item.nodeid.partition("::")[0]] = None
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in files.items():
        (folder / name).write_text("".join(f"{file}\n" for file in found))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """`--dist loadfile`: more than files stay together."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests import workers

    return workers.Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(), "halog-features")
    config.pluginmanager.register(Nodes(), "halog-nodes")
    if listed := config.getoption("listed"):
        config.pluginmanager.register(Listed(config.rootpath, listed.read_text()), "halog-listed")
