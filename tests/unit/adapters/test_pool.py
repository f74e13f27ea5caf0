"""What interrupts a request says whether anything of it was sent (R4)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from halog.adapters.tcp import pool
from halog.adapters.tcp.connect import Dialler
from halog.adapters.tcp.pool import Pool
from halog.adapters.zookeeper.reachability import silence
from halog.errors import UnreachableError, is_unsent

pytestmark = pytest.mark.feature("R4")


@pytest.fixture
def address() -> Iterator[str]:
    """Where somebody listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def interrupt(*of: Any) -> Any:
    raise KeyboardInterrupt


class Limit(BaseException):
    """As a library for time limits raises."""


LIMIT = Limit()
"""One and the same instance each time."""


FRAME = b"a commit"


@pytest.mark.parametrize(("where", "unsent"), [(Dialler, True), ("_send", False), ("_receive", False)])
def test_an_interrupted_request(
    address: str, where: str | type[Dialler], unsent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pool(1_000, Dialler(None))
    if isinstance(where, str):
        monkeypatch.setattr(pool, where, interrupt)
    else:
        monkeypatch.setattr(where, "connect", interrupt)
    with pytest.raises(KeyboardInterrupt) as told:
        made.request(address, FRAME, 1.0)
    assert is_unsent(told.value, FRAME) is unsent
    made.close()


@pytest.mark.parametrize("same", [True, False])
def test_an_instance_that_interrupts_again_says_nothing_of_what_it_interrupts_then(
    address: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First while nobody is connected yet, then while an answer is waited for; the second frame may have the same
    bytes, or be the same one."""

    def limit(*of: Any) -> Any:
        raise LIMIT

    made, first = Pool(1_000, Dialler(None)), bytes([1, 2, 3])
    second = first if same else bytes([1, 2, 3])
    with monkeypatch.context() as connecting:
        connecting.setattr(Dialler, "connect", limit)
        with pytest.raises(Limit):
            made.request(address, first, 1.0)
    assert is_unsent(LIMIT, first)
    monkeypatch.setattr(pool, "_receive", limit)
    with pytest.raises(Limit):
        made.request(address, second, 1.0)
    assert not is_unsent(LIMIT, second)
    made.close()


@pytest.mark.parametrize("address", ["db..example:7400", f"{'h' * 64}:7400", ".:1", "h\0:1"])
def test_a_name_that_no_resolver_takes_is_an_address_that_is_not_reached(address: str) -> None:
    """Whoever registered it: nobody's thread ends of it."""
    with pytest.raises(UnreachableError, match="cannot be connected") as told:
        Dialler(None).connect(address, 1.0)
    assert told.value.evidence["sent"] is False
    assert "cannot be reached" in silence(address).text
