"""These tests are about the embedded site, whatever the others run over."""

from __future__ import annotations

import pytest

from halog.embedded import EmbeddedSite


@pytest.fixture(scope="session")
def site(embedded_site: EmbeddedSite) -> EmbeddedSite:
    return embedded_site
