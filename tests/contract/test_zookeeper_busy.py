"""A ZooKeeper that is there and gives no session: what is said of it, and how long it is waited for; and a chroot."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from halog.adapters.zookeeper import reachability
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.adapters.zookeeper.reachability import Diagnosis, silence
from halog.cli.cluster import doctor_checks as checks
from halog.embedded import jars, ports
from halog.embedded.java import find_java
from halog.errors import ConfigError, HalogError, UnreachableError
from halog.ports import UnknownResult, Versioned
from tests.contract.proxy import Proxy
from tests.contract.rigs_coordinator import ANSWER_S, SESSION_MS, States, ZkRig, wait_for

pytestmark = pytest.mark.feature("N4", "O3")
LONG_S = 60.0
"""What is allowed where nothing is to be waited for."""
SOON_S = 20.0
"""Long before that, on a busy machine too."""


def is_written(c: ZkCoordinator, path: str) -> bool:
    """Try to create a node. A session of a second breaks where the machine stands still."""
    with suppress(UnreachableError, UnknownResult):
        return c.create(path, b"") or c.get(path) is not None
    return False


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is not given up because the machine stood still."""
    monkeypatch.setattr(reachability, "LOOK_S", LONG_S)


def let_it_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whoever closes what it accepts all the time that it wants for that."""
    look = reachability._look
    monkeypatch.setattr(reachability, "_look", lambda address, step_s: look(address, LONG_S))


def let_it_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whoever answers all the time that it wants for that."""
    asked = reachability._asked

    def ask(address: str, made: socket.socket) -> Diagnosis:
        made.settimeout(LONG_S)
        return asked(address, made)

    monkeypatch.setattr(reachability, "_asked", ask)


class Door:
    """A server that accepts connections, and then closes them at once, or says nothing."""

    def __init__(self, *, closes: bool) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.closes = closes
        self._held: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                made, _ = self._server.accept()
            except OSError:
                return
            if self.closes:
                made.close()
            else:
                self._held.append(made)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for made in self._held:
            made.close()


@pytest.fixture(params=["closes", "says nothing"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    made = Door(closes=request.param == "closes")
    yield made
    made.close()


def said_by(door: Door) -> str:
    return r"closes them at once.*maxClientCnxns.*zoo\.cfg" if door.closes else "accepts connections and says nothing"


def test_a_server_that_gives_no_session_is_told_as_that(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """By nodes, tools and doctor; and of several addresses each."""
    if door.closes:
        let_it_close(monkeypatch)
    c = ZkCoordinator(f"127.0.0.1:1,{door.address}/chroot", "x", answer_s=1.0)
    with pytest.raises(UnreachableError, match=rf"nobody listens at 127\.0\.0\.1:1; {door.address} .*{said_by(door)}"):
        c.connect(States())
    assert silence(door.address).busy
    assert not silence("127.0.0.1:1").busy
    (found,) = checks.zookeeper(_target(door.address))
    assert found.result == "fail"
    assert said_by(door).split(".*")[0] in found.detail


@pytest.mark.parametrize(
    ("answer", "said", "busy"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n", "is no ZooKeeper: it answers as a web server does", False),
        (b"\xff" * 40, "is no ZooKeeper: its answer is none of a ZooKeeper's", False),
        (b"", "is no ZooKeeper, or one that ends: it closes the connection when it is asked", True),
        (b"srvr is not executed because it is not in the whitelist.\n", "a ZooKeeper that gave no session", True),
        (b"This ZooKeeper instance is not currently serving requests\n", "a ZooKeeper that gave no session", True),
    ],
)
def test_a_server_of_another_kind_is_told_as_that(
    answer: bytes, said: str, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server, a broker whose address stands where ZooKeeper's should; and a ZooKeeper is taken for one."""
    let_it_answer(monkeypatch)

    def serve(server: socket.socket) -> None:
        made, _ = server.accept()
        with made:
            made.recv(64)
            made.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        seen = silence(address)
    assert (seen.busy, said in seen.text) == (busy, True), seen


def _target(zookeeper: str) -> checks.DoctorTarget:
    return checks.DoctorTarget(Path(), False, None, zookeeper)


def test_one_that_is_busy_is_waited_for_and_no_longer(zookeeper: ZkRig) -> None:
    """It lets nobody in until somebody else has left; whoever is patient gets in, whoever is not is told in time."""
    proxy = Proxy(zookeeper.site.info.zookeeper)
    proxy.hold_replies()
    began = time.monotonic()
    hasty = ZkCoordinator(proxy.address, zookeeper.cluster, answer_s=1.0)
    with pytest.raises(UnreachableError, match="does not answer"):
        hasty.connect(States())
    assert time.monotonic() - began < SOON_S
    patient = ZkCoordinator(proxy.address, zookeeper.cluster, answer_s=1.0, patience_s=LONG_S)
    began = time.monotonic()
    opened = threading.Timer(2.5, proxy.pass_replies)
    opened.start()
    patient.connect(States())
    assert 2.0 < time.monotonic() - began < LONG_S - 1.0
    wait_for(lambda: is_written(patient, "/n"))
    patient.close()
    opened.join()
    proxy.close()


@pytest.fixture
def counting(tmp_path: Path, zookeeper: ZkRig) -> Iterator[str]:
    """A real server that lets each machine have five connections."""
    port = ports.pick(set())
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir={tmp_path}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=5\n"
        "admin.enableServer=false\ntickTime=500\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    argv = [
        str(find_java().path),
        "-Xmx64m",
        "-Dzookeeper.nio.sessionlessCnxnTimeout=600000",  # who says nothing stays
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars.classpath(jars.directory(), "zookeeper"),
        main,
    ]
    with (tmp_path / "out").open("wb") as out:
        server = subprocess.Popen([*argv, str(tmp_path / "zoo.cfg")], stdout=out, stderr=out, cwd=tmp_path)
    try:
        wait_for(lambda: silence(f"127.0.0.1:{port}").busy, timeout_s=LONG_S)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def test_as_many_connections_as_are_allowed_are_told_as_that(counting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has all of them; once one is free whoever is patient gets it."""
    host, _, port = counting.rpartition(":")
    held = [socket.create_connection((host, int(port)), LONG_S) for _ in range(5)]
    try:
        wait_for(lambda: "maxClientCnxns" in silence(counting).text)
        let_it_close(monkeypatch)
        c = ZkCoordinator(counting, "x", answer_s=1.0)
        with pytest.raises(UnreachableError, match="maxClientCnxns"):
            c.connect(States())
        leaves = threading.Timer(2.0, held.pop().close)
        leaves.start()
        patient = ZkCoordinator(counting, "x", answer_s=1.0, patience_s=LONG_S)
        patient.connect(States())
        wait_for(lambda: is_written(patient, "/n"))
        patient.close()
        leaves.join()
    finally:
        for made in held:
            made.close()


@pytest.mark.parametrize(("patience_s", "joined"), [(LONG_S, False), (LONG_S, True), (0.0, False)])
def test_a_connection_that_breaks_while_a_node_joins_is_waited_for(
    zookeeper: ZkRig, patience_s: float, joined: bool
) -> None:
    """As on a machine that is too busy to answer its heartbeats. Who has joined, and tools, are told at once."""
    proxy = Proxy(zookeeper.site.info.zookeeper)
    c = ZkCoordinator(proxy.address, zookeeper.cluster, patience_s=patience_s, answer_s=ANSWER_S)
    try:
        c.connect(States())
        if joined:
            c.joined()
        proxy.cut(reopen=False)
        wait_for(lambda: not c._client.connected)
        if patience_s and not joined:
            opens = threading.Timer(1.0, proxy.open)
            opens.start()
            assert c.get("nothing") is None
            opens.join()
        else:
            with pytest.raises(UnreachableError, match="is not connected"):
                c.get("nothing")
            proxy.open()
    finally:
        c.close()
        proxy.close()


@pytest.mark.parametrize("chroot", ["/apps", "/apps/halog"])
def test_a_chroot_that_is_not_there_is_told_with_the_command_that_makes_it(zookeeper: ZkRig, chroot: str) -> None:
    """Nobody makes it by itself; once it is there all works below it, watched members too."""
    servers = zookeeper.site.info.zookeeper
    top = f"/{zookeeper.cluster}"
    address = servers + top + chroot
    with pytest.raises(ConfigError, match=rf"no chroot {top}{chroot}, and nothing was made") as told:
        ZkCoordinator(address, "x", answer_s=ANSWER_S).connect(States())
    command = told.value.evidence["command"]
    assert f"`{command}`" in told.value.message
    made = [top + chroot[: chroot.find("/", 1)] if chroot.count("/") > 1 else top + chroot, top + chroot]
    assert all(path in command for path in (top, *made))
    assert f"zkCli.sh -server {servers} create" in command
    assert isinstance(told.value, HalogError)
    (found,) = checks.zookeeper(_target(address))
    assert (found.result, found.detail) == ("fail", f"{address}: there is no chroot {top}{chroot}")
    assert f"`{command}`" in found.advice
    maker = KazooClient(servers)
    maker.start()
    assert maker.exists(top) is None
    for path in (top, *made):
        maker.ensure_path(path)
    maker.stop()
    maker.close()
    c = ZkCoordinator(address, "x", session_timeout_ms=SESSION_MS, answer_s=ANSWER_S)
    seen = dict[str, Versioned | None]()
    c.connect(States())
    c.watch_members("partitions", seen.__setitem__)
    assert c.create("partitions/p", b"0")
    assert c.set("partitions/p", b"1", 0) == 1
    wait_for(lambda: seen == {"partitions/p": Versioned(b"1", 1)})
    c.close()
    (found,) = checks.zookeeper(_target(address))
    assert found.result == "ok"
