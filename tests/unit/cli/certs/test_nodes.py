"""What nodes present is asked by a handshake with each of them, and judged."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.certs.identity import HolderKind
from halog.certs.inventory import Inventory
from halog.certs.issuance import renew, to_renew
from halog.certs.presented import PresentedCertificate, in_the_way, presented_findings
from halog.certs.rotation import Rotation
from halog.cli.certs import nodes
from halog.metadata.nodes import NodeInfo
from tests.unit.certs.conftest import CLUSTER, NOW, Made
from tests.unit.cli.conftest import Cluster

pytestmark = pytest.mark.feature("O4", "N5")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr("os.fsync", lambda number: None)
    return Made(tmp_path / "certs")


def info(name: str, address: str, *, hosts: bool = True) -> NodeInfo:
    return NodeInfo(name, 1, address, 1, hosts, 1, "0.3.0")


@contextmanager
def listening(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """An address where each connection is answered so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    try:
                        answer(taken)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def speaking_tls(made: Made, stem: str) -> Callable[[socket.socket], object]:
    """As a node does: it asks for a certificate, which the command does not show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(made.directory.place("ca.crt"))
    context.load_cert_chain(made.directory.place(f"{stem}.crt"), made.directory.place(f"{stem}.key"))
    return lambda taken: context.wrap_socket(taken, server_side=True)


def ask(name: str, address: str, wait_s: float = 20.0) -> PresentedCertificate:
    return nodes.ask(info(name, address), time.monotonic() + wait_s)


def told(made: Made, *presented: PresentedCertificate) -> list[tuple[str, str]]:
    inventory = Inventory.read(made.directory)
    found = presented_findings(inventory, CLUSTER, {p.node: p for p in presented}, NOW)
    return [(f.result, f.detail) for f in found]


def test_a_node_that_presents_its_own_is_well(made: Made) -> None:
    with listening(speaking_tls(made, made.make("A"))) as address:
        found = ask("A", address)
    assert found.certificate is not None
    assert told(made, found) == []


def test_what_a_node_should_not_present_is_told(made: Made, tmp_path: Path) -> None:
    stem, other = made.make("A"), Made(tmp_path / "other")
    with listening(speaking_tls(made, stem)) as address:
        assert told(made, ask("B", address)) == [("fail", "presents what is for halog://fleet/node/A")]
        before = ask("A", address)
    renew(made.directory, ["A"], CLUSTER, made.key, NOW)
    assert told(made, before) == [("warn", "presents another certificate than node.A.crt")]
    with listening(speaking_tls(other, other.make("C"))) as address:
        assert told(made, ask("C", address)) == [("fail", "what it presents was issued by none of ca.crt")]


def test_an_application_presents_whom_it_is_for(made: Made) -> None:
    with listening(speaking_tls(made, made.make("shop", HolderKind.USER))) as address:
        found = nodes.ask(info("client-7", address, hosts=False), time.monotonic() + 20)
    assert told(made, found) == []


def test_who_does_not_speak_tls_or_does_not_answer_is_told(made: Made) -> None:
    with listening(lambda taken: taken.recv(1)) as address:
        plain = ask("A", address)
    assert (plain.is_plain, told(made, plain)) == (True, [("warn", "does not speak TLS")])
    with listening(lambda taken: time.sleep(3)) as address:
        silent = ask("A", address, 0.3)
    assert (silent.is_plain, told(made, silent)) == (False, [("warn", "does not answer in time")])
    for gone in (ask("A", address), ask("A", "nowhere")):
        assert (gone.is_plain, gone.certificate, gone.reason.startswith("does not answer: ")) == (False, None, True)


def test_a_rotation_is_not_finished_while_a_node_presents_the_old_authoritys(made: Made) -> None:
    stem = made.make("A")
    rotation = Rotation(made.directory, made.key)
    rotation.begin(CLUSTER, NOW)
    with listening(speaking_tls(made, stem)) as address:
        old = ask("A", address)
    renew(made.directory, [h.stem for h in to_renew(made.directory, None, NOW)], CLUSTER, made.key, NOW)
    with listening(speaking_tls(made, stem)) as address:
        new = ask("A", address)
    gone = PresentedCertificate("B", "10.0.0.6:1", None, reason="does not answer in time")
    plain = PresentedCertificate("C", "10.0.0.7:1", None, reason="does not speak TLS", is_plain=True)
    asked = {"A": old, "B": gone, "C": plain}
    assert in_the_way(made.directory, asked) == [old.place, "B at 10.0.0.6:1 (does not answer in time)"]
    assert in_the_way(made.directory, {"A": new, "C": plain}) == []
    rotation.finish()
    assert in_the_way(made.directory, asked) == []


def test_the_commands_ask_the_registered_nodes(
    cluster: Cluster, halog: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The nodes of this cluster speak plaintext; of one that is registered nobody knows where it is."""
    monkeypatch.setattr("os.fsync", lambda number: None)
    monkeypatch.chdir(tmp_path)
    assert halog("certs", "create-ca").code == 0
    ran = halog("certs", "check", "--cluster", "--timeout", "5", "--format", "json")
    found = [(f["file"][:4], f["result"], f["detail"]) for f in ran.json["findings"]]
    assert (ran.code, found) == (0, [(f"{n} at", "warn", "does not speak TLS") for n in "ABC"])
    assert halog("certs", "rotate-ca", "begin").code == 0
    coordinator = MemoryCoordinator(cluster.tree)
    coordinator.connect(lambda state: None)
    coordinator.create("nodes/gone", msgspec.json.encode(info("gone", "127.0.0.1:1", hosts=False)), ephemeral=True)
    ran = halog("certs", "rotate-ca", "finish", "--cluster", "--timeout", "5")
    assert (ran.code, "may still be needed by gone at 127.0.0.1:1 (does not answer: " in ran.err) == (5, True), ran
    coordinator.close()
    ran = halog("certs", "rotate-ca", "finish", "--cluster", "--timeout", "5")
    assert (ran.code, ran.err) == (0, "ca.crt holds one authority again: bring it to everybody\n")
