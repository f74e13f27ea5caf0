"""What integration tests share: one real Kafka and one real ZooKeeper for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.embedded import EmbeddedSite


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSite]:
    """A running site: `site.info.bootstrap`, `site.info.zookeeper`; `site.kill("kafka")`, `restart`, `pause`, `resume`.

    Shared: a test that hurts a server brings it back (`start_server`, `resume`) before it ends.
    """
    running = EmbeddedSite(tmp_path_factory.mktemp("site"))
    running.start()
    try:
        yield running
    finally:
        running.stop()
