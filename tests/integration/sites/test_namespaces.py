"""The line of the kernel's: what passes it, what does not, and that nothing of it is left behind."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.integration.cluster.processes import ROOT, wait
from tests.integration.sites.packets import REFUSES, Net, ip, why_not
from tests.integration.sites.test_line import SHORT_S, Echo, said
from tests.integration.sites.two import EAST, NAMES, WEST

pytestmark = pytest.mark.feature("M5")

SOON_S = 60.0
"""TCP tries again after 0.2 s, and then each time after twice as long; and the machine may be busy."""


@pytest.fixture(scope="module")
def made() -> Iterator[Net]:
    if reason := why_not():
        pytest.skip(reason)
    net = Net(NAMES)
    yield net
    net.close()


@pytest.fixture
def net(made: Net) -> Iterator[Net]:
    """Whole before the test and after it."""
    yield made
    made.heal()


@pytest.fixture
def echo(net: Net) -> Iterator[Echo]:
    """In the west."""
    with net.ends[WEST].inside():
        found = Echo(net.addresses[WEST])
    yield found
    found.close()


def called(net: Net, echo: Echo, limit_s: float = SOON_S) -> socket.socket:
    """From the east."""
    with net.ends[EAST].inside():
        return socket.create_connection((net.addresses[WEST], echo.port), limit_s)


def test_each_site_reaches_the_other_one_and_is_reached_from_here(net: Net, echo: Echo) -> None:
    with called(net, echo) as caller, socket.create_connection((net.addresses[WEST], echo.port), SOON_S) as outside:
        for sock in (caller, outside):
            sock.sendall(b"x" * 100_000)
            assert said(sock, 100_000) == b"X" * 100_000


def test_a_cut_is_silent_and_what_was_sent_into_it_comes_after_it(net: Net, echo: Echo) -> None:
    """No connection is made, refused or closed; from here both are reached."""
    with called(net, echo) as caller:
        net.drop(NAMES)
        caller.sendall(b"a")
        assert said(caller, 1, SHORT_S) == b""
        with pytest.raises(TimeoutError):
            called(net, echo, SHORT_S)
        with socket.create_connection((net.addresses[WEST], echo.port), SOON_S):
            pass
        assert echo.heard == b""
        net.heal()
        assert said(caller, 1, SOON_S) == b"A"


@pytest.mark.parametrize("toward", NAMES)
def test_one_way_alone_is_cut(net: Net, echo: Echo, toward: str) -> None:
    """Toward east: the west hears all, and its answers are lost. Toward west: it hears nothing."""
    with called(net, echo) as caller:
        net.drop((toward,))
        caller.sendall(b"a")
        assert said(caller, 1, SHORT_S) == b""
        if toward == EAST:
            wait(lambda: echo.heard, "the west hears it")
        assert echo.heard == (b"a" if toward == EAST else b"")
        net.heal()
        assert said(caller, 1, SOON_S) == b"A"


def test_a_line_that_refuses_says_so_at_once(net: Net, echo: Echo) -> None:
    net.drop(NAMES, REFUSES)
    with pytest.raises(OSError) as refused:
        called(net, echo)
    assert refused.value.errno == errno.ENETUNREACH
    net.drop(NAMES)
    with pytest.raises(TimeoutError):
        called(net, echo, SHORT_S)


def answered_s(caller: socket.socket) -> float:
    """How long a byte takes there and back."""
    began = time.monotonic()
    caller.sendall(b"c")
    assert said(caller, 1) == b"C"
    return time.monotonic() - began


def test_a_slow_line_takes_longer_both_ways_and_loses_nothing(net: Net, echo: Echo) -> None:
    with called(net, echo) as caller:
        net.slow(0.1)
        began = time.monotonic()
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
        assert time.monotonic() - began >= 0.2
        caller.sendall(b"x" * 100_000)
        assert said(caller, 100_000) == b"X" * 100_000
        net.drop((EAST,))
        caller.sendall(b"b")
        assert said(caller, 1, 2 * SHORT_S) == b"", "what is cut is not slowed"
        net.heal()
        assert said(caller, 1, SOON_S) == b"B"
        wait(lambda: answered_s(caller) < 0.1, "it takes no time any more", SOON_S)


def test_a_line_that_cannot_be_slowed_is_as_it_was(net: Net, echo: Echo) -> None:
    """Somebody else's rule is in its way, and stays: nothing is taken away but what was made."""
    rules, (first, *_) = net_rules(net), NAMES
    with net.hub.inside():
        net.detour("add", first)
    try:
        with pytest.raises(OSError, match="File exists"):
            net.slow(0.1)
        net.heal()
        assert len(net_rules(net)) == len(rules) + 1
    finally:
        with net.hub.inside():
            net.detour("del", first)
    assert net_rules(net) == rules
    net.slow(0.1)
    with called(net, echo) as caller:
        began = time.monotonic()
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
        assert time.monotonic() - began >= 0.2
    net.heal()
    assert net_rules(net) == rules


def net_rules(net: Net) -> list[str]:
    """Of the hub."""
    with net.hub.inside():
        return ip("rule").splitlines()


REFUSED = {
    "mount --bind -o ro /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys": "pass packets on: .*Read-only file",
    "mount --bind /dev/null /dev/net/tun": "/dev/net/tun makes no device: .*Inappropriate ioctl",
}
"""What a machine refuses, made so for one process, and what is said."""


@pytest.mark.parametrize("refused", REFUSED)
def test_a_machine_that_refuses_a_part_of_it_is_told_why(made: Net, refused: str) -> None:
    asks = "from tests.integration.sites.packets import why_not; print(why_not())"
    argv = ["unshare", "--mount", "sh", "-c", f'{refused} && exec "$@"', "sh", sys.executable, "-c", asks]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env)
    if "permission denied" in done.stderr.lower():
        pytest.skip(f"nothing can be mounted: {done.stderr}")
    assert re.search(REFUSED[refused], done.stdout), (done.stdout, done.stderr)


def test_a_flapping_line_is_open_and_cut_in_turn(net: Net, echo: Echo) -> None:
    net.flap(SHORT_S, SHORT_S)
    seen: set[bool] = set()
    deadline = time.monotonic() + SOON_S
    while seen != {True, False}:
        assert time.monotonic() < deadline, f"only seen: {seen}"
        try:
            called(net, echo, SHORT_S / 4).close()
        except TimeoutError:
            seen.add(False)
        else:
            seen.add(True)


KEPT = """
import subprocess, sys, time
from tests.integration.sites.packets import Net
net = Net(("west", "east"))
net.slow(0.1)
with net.ends["west"].inside():
    child = subprocess.Popen(["sleep", "600"])
print(net.device, child.pid, flush=True)
time.sleep(600)
"""


def test_nothing_is_left_of_one_whose_owner_was_killed(made: Net) -> None:
    """Its device here is gone with the last process inside, and so is its route."""
    assert made.device in ip("link")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", KEPT], stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        device, inside = owner.stdout.readline().split()
        assert device in ip("link")
        assert device in ip("route")
        owner.kill()
    os.kill(int(inside), signal.SIGKILL)
    wait(lambda: device not in ip("link") + ip("route"), f"{device} is gone", SOON_S)
