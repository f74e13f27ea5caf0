"""What integration tests share: one site for the whole run, embedded or (`--site containers`) three servers of each."""

from __future__ import annotations

import pytest

from tests.integration.site import Site


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Site:
    """A running site: `site.info.bootstrap`, `site.info.zookeeper`; `site.kill("kafka")`, `restart`, `pause`, `resume`.

    Shared: a test that hurts a server brings it back (`start_server`, `resume`) before it ends.
    """
    kind = "container_site" if request.config.getoption("--site") == "containers" else "embedded_site"
    running: Site = request.getfixturevalue(kind)
    return running
