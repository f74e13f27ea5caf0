"""Ports: asked for, remembered, or free, and never where the kernel hands out its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from halog.embedded import ports
from halog.embedded.model import Ports
from halog.errors import ConfigError, SiteError


@pytest.fixture
def taken() -> Iterator[int]:
    """A loopback port somebody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        yield s.getsockname()[1]


def test_new_ports_are_distinct_and_outside_the_ephemeral_range() -> None:
    """Inside it a reconnecting client can end up connected to itself."""
    chosen = ports.choose(None)
    low, high = ports.ephemeral_range()
    numbers = {chosen.kafka, chosen.controller, chosen.zookeeper}
    assert len(numbers) == 3
    assert not any(low <= n <= high for n in numbers)


def test_the_last_starts_ports_are_used_again() -> None:
    first = ports.choose(None)
    assert ports.choose(first) == first


def test_a_remembered_port_that_is_taken_is_replaced(taken: int) -> None:
    saved = ports.choose(None)
    chosen = ports.choose(Ports(taken, saved.controller, saved.zookeeper))
    assert chosen.kafka != taken
    assert (chosen.controller, chosen.zookeeper) == (saved.controller, saved.zookeeper)


def test_a_port_asked_for_wins_over_the_remembered_one() -> None:
    saved, other = ports.choose(None), ports.pick(set())
    assert ports.choose(saved, kafka=other).kafka == other


def test_a_remembered_port_asked_for_by_the_other_server_is_given_up() -> None:
    saved = ports.choose(None)
    chosen = ports.choose(saved, zookeeper=saved.kafka)
    assert chosen.zookeeper == saved.kafka
    assert chosen.kafka != saved.kafka


def test_a_port_is_taken_where_the_servers_would_listen() -> None:
    """All of 127.0.0.0/8 is this machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        s.listen(1)
        port = s.getsockname()[1]
        assert ports.is_free(port)
        assert not ports.is_free(port, "127.0.0.2")
        with pytest.raises(SiteError, match=f"port {port} is taken"):
            ports.choose(None, kafka=port, host="127.0.0.2")


def test_a_taken_port_asked_for_is_an_error_that_names_it(taken: int) -> None:
    with pytest.raises(SiteError, match=f"port {taken} is taken"):
        ports.choose(None, kafka=taken)


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_number_that_is_no_port_is_a_usage_error(port: int) -> None:
    with pytest.raises(ConfigError, match="--zookeeper-port"):
        ports.choose(None, zookeeper=port)


def test_one_port_for_both_servers_is_a_usage_error() -> None:
    port = ports.pick(set())
    with pytest.raises(ConfigError, match="needs its own"):
        ports.choose(None, kafka=port, zookeeper=port)


def test_the_second_doors_port_is_nobody_elses(taken: int) -> None:
    """Neither remembered nor given to a server."""
    saved = ports.choose(None)
    chosen = ports.choose(saved, remote=saved.kafka)
    assert saved.kafka not in (chosen.kafka, chosen.controller, chosen.zookeeper)
    with pytest.raises(ConfigError, match="that of a server"):
        ports.choose(None, kafka=saved.kafka, remote=saved.kafka)
    with pytest.raises(SiteError, match=f"port {taken} is taken"):
        ports.choose(None, remote=taken)
