"""What interrupts a request says whether anything of it was sent (R4)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from halog.adapters import pool
from halog.adapters.pool import Pool
from halog.errors import is_unsent

pytestmark = pytest.mark.feature("R4")


@pytest.fixture
def address() -> Iterator[str]:
    """Where somebody listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def interrupt(*of: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("where", "unsent"), [("connect", True), ("_send", False), ("_receive", False)])
def test_an_interrupted_request(address: str, where: str, unsent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pool(1_000)
    monkeypatch.setattr(pool, where, interrupt)
    with pytest.raises(KeyboardInterrupt) as told:
        made.request(address, b"x", 1.0)
    assert is_unsent(told.value) is unsent
    made.close()
