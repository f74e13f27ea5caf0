"""What tests of several rooms share: how often the nodes of their testing clusters look."""

from __future__ import annotations

import pytest

from halog.runtime.node.paces import PACES, Paces


@pytest.fixture
def paces() -> Paces:
    """As in production; a test, or a module, that cannot wait for that has other ones."""
    return PACES
