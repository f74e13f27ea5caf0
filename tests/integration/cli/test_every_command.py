"""Every command where its servers are down, and where they know no such cluster: one code, one form, in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from halog.cli import main as frame
from tests.integration.cli.conftest import FLEET, TOML, Cluster
from tests.integration.site import Site
from tests.unit.cli.every_command import CALLS, words

pytestmark = pytest.mark.timeout(600)

LOG_READERS = [
    "audit",
    "config activate",
    "conflicts settle",
    "delete",
    "events",
    "export",
    "get",
    "history",
    "list",
    "log hold",
    "log tail",
    "mapper explain",
    "mapper list",
    "type list",
    "type retire",
    "upgrade can-rollback",
]
"""Without the log they cannot say or do anything."""
OTHER_SITE = ["conflicts list", "site demote", "site list"]
"""They ask another site's servers."""
IN_TIME_S = 8
"""Of a timeout of 1 s or less."""
SHORT_S = 0.2
"""Every command waits for all of this timeout. One that does not heed it waits for ten seconds, the default."""
OFFLINE = {"config check", "node new-identity"}
"""They ask no server."""
BEFORE = {"config activate", "config diff", "config history", "config show"}
"""May be asked before there is a cluster."""
ITS_BROKERS = {"acl kafka"}
"""These ask Kafka alone, whether or not there is a cluster yet."""
ASKING = [name for name, calls in CALLS.items() if calls and name not in OFFLINE]
Say = Callable[..., tuple[int, str, str, float]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Say]:
    """Runs the first call of a command with servers at these addresses: code, stdout, stderr, seconds."""

    def at(bootstrap: str, zookeeper: str, cluster: str = "ghost") -> Say:
        toml = TOML.format(cluster=cluster, bootstrap=bootstrap, zookeeper=zookeeper)
        sites = '[sites.west]\nbootstrap = "127.0.0.1:3"\nzookeeper = "127.0.0.1:4"\n'
        (tmp_path / "halog.toml").write_text(toml.replace("[site]", '[site]\nname = "east"') + sites)
        (tmp_path / "fleet.py").write_text(FLEET)
        monkeypatch.chdir(tmp_path)

        def run(name: str, timeout_s: float = 1.0) -> tuple[int, str, str, float]:
            capsys.readouterr()
            began = time.monotonic()
            code = frame.main([*words(CALLS[name][0]), "--timeout", str(timeout_s)])
            said = capsys.readouterr()
            return code, said.out, said.err, time.monotonic() - began

        return run

    return at


@contextmanager
def hole() -> Iterator[str]:
    """An address whose queue is full: nothing is refused, and nothing answers."""
    with socket.socket() as listener, ExitStack() as filling:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            one = filling.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.feature("O1")
@pytest.mark.parametrize("name", ASKING)
def test_servers_that_are_down_are_exit_3_within_the_timeout(say: Callable[..., Say], name: str) -> None:
    code, out, err, seconds = say("127.0.0.1:1", "127.0.0.1:2")(name, SHORT_S)
    said = "halog: ZooKeeper at 127.0.0.1:2 does not answer: nobody listens at 127.0.0.1:2\n"
    if name in ITS_BROKERS:  # librdkafka's own words follow, one or two of them
        said = "halog: Kafka at 127.0.0.1:1 does not answer: "
        err = said * (err.startswith(said) and err.count("\n") == 1)
    assert (code, out, err) == (3, "", said)
    assert seconds < IN_TIME_S


@pytest.mark.feature("O1")
def test_an_address_that_swallows_everything_is_given_up_in_time(say: Callable[..., Say]) -> None:
    with hole() as address:
        code, out, err, seconds = say(address, address)("status")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert address in err
        assert seconds < IN_TIME_S


@pytest.mark.long
@pytest.mark.feature("O1")
def test_a_log_alone_that_swallows_everything_is_given_up_in_time(
    prepared: Cluster, site: Site, say: Callable[..., Say]
) -> None:
    """The coordinator answers. Whoever needs the log, or another site, which is away, waits no longer than allowed."""
    prepared.start("A")
    with hole() as address:
        run = say(address, site.info.zookeeper, prepared.name)
        for name in LOG_READERS:
            code, out, err, seconds = run(name)
            assert (code, out, err.count("\n")) == (3, "", 1), (name, err)
            assert f"Kafka at {address} does not answer" in err, (name, err)
            assert seconds < IN_TIME_S, name
        code, out, _, seconds = run("status")
        assert (code, address in out) == (4, True)
        assert seconds < IN_TIME_S
        for name in OTHER_SITE:
            _, out, err, seconds = run(name)
            assert name == "site demote" or "127.0.0.1:4" in out + err, (name, out, err)
            assert seconds < IN_TIME_S, name
        prepared.stop("A")
        code, out, err, seconds = run("recover")
        assert (code, out, f"Kafka at {address} does not answer" in err) == (3, "", True), err
        assert seconds < IN_TIME_S


@pytest.mark.feature("O1")
def test_a_cluster_that_does_not_exist_is_exit_3(site: Site, say: Callable[..., Say]) -> None:
    run = say(site.info.bootstrap, site.info.zookeeper)
    for name in ASKING:
        if name not in BEFORE | ITS_BROKERS:
            code, out, err, _ = run(name)
            assert (code, out, err.count("\n")) == (3, "", 1), (name, err)
            assert "cluster ghost does not exist at this site yet; its first `halog node start` creates it" in err, name
