"""What integration tests share: one site for the whole run, embedded, of a broker that allows little (`--site closed`),
or three servers of each (`--site containers`); one Spark session, since a second and a third one would cost ten seconds
each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.closed import ClosedSite
from tests.integration.site import Site
from tests.secured import secured_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Site:
    """A running site: `site.info.bootstrap`, `site.info.zookeeper`; `site.kill("kafka")`, `restart`, `pause`, `resume`.

    Shared: a test that hurts a server brings it back (`start_server`, `resume`) before it ends.
    """
    kind = {"containers": "container_site", "closed": "closed_site"}.get(request.config.getoption("--site"))
    running: Site = request.getfixturevalue(kind or "embedded_site")
    return running


@pytest.fixture(scope="session")
def closed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedSite]:
    """One whose broker allows only what an ACL allows."""
    with secured_site(tmp_path_factory.mktemp("closed-site"), closed=True) as secured:
        yield ClosedSite(secured)


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A session of seconds is over before what the second compiler makes pays, and that takes a third of its CPU or more.
No JVM but Spark's sees this: an embedded site's servers get little of our environment."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """On this machine, two tasks at a time."""
    import spark_jobs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
        made = spark_jobs.session("local[2]", "halog-tests", settings={"spark.sql.shuffle.partitions": "2"})
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def quick_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a test that starts Spark in processes of its own."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
