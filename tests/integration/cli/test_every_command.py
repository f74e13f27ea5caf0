"""Every command where its servers are down, and where they know no such cluster: one code, one form, in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from halog.cli import main as frame
from tests.integration.cli.conftest import FLEET, TOML
from tests.integration.site import Site
from tests.unit.cli.every_command import CALLS, words

OFFLINE = {"config check"}
"""Asks no server."""
BEFORE = {"config activate", "config diff", "config history", "config show"}
"""May be asked before there is a cluster."""
ASKING = [name for name, calls in CALLS.items() if calls and name not in OFFLINE]
Say = Callable[[str], tuple[int, str, str, float]]


@pytest.fixture
def say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], Say]:
    """Runs the first call of a command with servers at these addresses: code, stdout, stderr, seconds."""

    def at(bootstrap: str, zookeeper: str) -> Say:
        toml = TOML.format(cluster="ghost", bootstrap=bootstrap, zookeeper=zookeeper)
        sites = '[sites.west]\nbootstrap = "127.0.0.1:3"\nzookeeper = "127.0.0.1:4"\n'
        (tmp_path / "halog.toml").write_text(toml.replace("[site]", '[site]\nname = "east"') + sites)
        (tmp_path / "fleet.py").write_text(FLEET)
        monkeypatch.chdir(tmp_path)

        def run(name: str) -> tuple[int, str, str, float]:
            capsys.readouterr()
            began = time.monotonic()
            code = frame.main([*words(CALLS[name][0]), "--timeout", "1"])
            said = capsys.readouterr()
            return code, said.out, said.err, time.monotonic() - began

        return run

    return at


@pytest.mark.feature("O1")
@pytest.mark.parametrize("name", ASKING)
def test_servers_that_are_down_are_exit_3_within_the_timeout(say: Callable[[str, str], Say], name: str) -> None:
    code, out, err, seconds = say("127.0.0.1:1", "127.0.0.1:2")(name)
    said = "halog: ZooKeeper at 127.0.0.1:2 does not answer: nobody listens at 127.0.0.1:2\n"
    assert (code, out, err) == (3, "", said)
    assert seconds < 4, "of a timeout of 1 s"


@pytest.mark.feature("O1")
def test_an_address_that_swallows_everything_is_given_up_in_time(say: Callable[[str, str], Say]) -> None:
    """Its queue is full: nothing is refused, and nothing answers."""
    with socket.socket() as hole, ExitStack() as filling:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        address = f"127.0.0.1:{hole.getsockname()[1]}"
        for _ in range(4):
            one = filling.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(hole.getsockname())
        code, out, err, seconds = say(address, address)("status")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert address in err
        assert seconds < 4, "of a timeout of 1 s"


@pytest.mark.feature("O1")
def test_a_cluster_that_does_not_exist_is_exit_3(site: Site, say: Callable[[str, str], Say]) -> None:
    run = say(site.info.bootstrap, site.info.zookeeper)
    for name in ASKING:
        if name not in BEFORE:
            code, out, err, _ = run(name)
            assert (code, out, err.count("\n")) == (3, "", 1), (name, err)
            assert "cluster ghost does not exist at this site yet; its first `halog node start` creates it" in err, name
