"""What tests of several rooms share: how often the nodes of their testing clusters look, and that no test leaves its
process otherwise than it was."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from halog.runtime.node.paces import PACES, Paces
from halog.signals import STOPPING


@pytest.fixture
def paces() -> Paces:
    """As in production; a test, or a module, that cannot wait for that has other ones."""
    return PACES


def _process() -> tuple[Any, ...]:
    logger = logging.getLogger("halog")
    return logger.level, logger.propagate, list(logger.handlers), [signal.getsignal(each) for each in STOPPING]


@pytest.fixture(autouse=True)
def _left_as_it_was() -> Iterator[None]:
    """Which tests share a process is chance: what one leaves behind is met by another."""
    before = _process()
    yield
    assert _process() == before, "the test leaves other handlers of signals, or of halog's logger, behind"
