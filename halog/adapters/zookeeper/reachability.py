"""This module says why a ZooKeeper cannot be used, in an operator's words: what its addresses do, and a chroot that
nobody has made."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Any, NamedTuple

from halog.errors import ConfigError

LOOK_S = 0.5
"""How long an address is listened to: a server that closes what it does not want does so at once."""


STEPS = 3
"""A look connects, listens, and asks; each takes up to LOOK_S."""


class Diagnosis(NamedTuple):
    """Says what addresses do, in words; `busy`: somebody is there who may answer soon."""

    text: str
    busy: bool


def silence(hosts: str, within_s: float = STEPS * LOOK_S) -> Diagnosis:
    """Look at every address, at all of them at once: one connection each, on which nothing is said."""
    addresses = hosts.partition("/")[0].split(",")
    step_s = min(LOOK_S, within_s / STEPS)
    looks: dict[int, Diagnosis] = {}

    def look(at: int) -> None:
        looks[at] = _look(addresses[at], step_s)

    numbers = range(len(addresses))
    threads = [threading.Thread(target=look, args=(at,), name="halog-zk-look", daemon=True) for at in numbers]
    for thread in threads:
        thread.start()
    until = time.monotonic() + within_s + 2 * LOOK_S  # a machine that is busy itself is later
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    # A look without an end: no resolver has said what the name stands for.
    late = [Diagnosis(f"{address} cannot be reached in time", False) for address in addresses]
    found = [looks.get(at, late[at]) for at in numbers]
    return Diagnosis("; ".join(look.text for look in found), any(look.busy for look in found))


def _look(address: str, step_s: float) -> Diagnosis:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), step_s) as made:
            return _heard(address, made)
    except ConnectionRefusedError:
        return Diagnosis(f"nobody listens at {address}", False)
    except (BrokenPipeError, ConnectionResetError):  # made, and closed before this process looked at it
        return _closes(address)
    except (OSError, ValueError) as error:  # ValueError: no resolver takes such a name
        return Diagnosis(f"{address} cannot be reached ({error})", False)


def _heard(address: str, made: socket.socket) -> Diagnosis:
    try:
        closed = not made.recv(1)
    except TimeoutError:
        return _asked(address, made)
    except OSError:
        closed = True
    return _closes(address) if closed else Diagnosis(f"{address} is no ZooKeeper: it speaks first", False)


def _closes(address: str) -> Diagnosis:
    return Diagnosis(
        f"{address} accepts connections and closes them at once, as ZooKeeper does where one machine has as many as "
        "its maxClientCnxns allows: close some, or raise that setting in its zoo.cfg",
        True,
    )


def _asked(address: str, made: socket.socket) -> Diagnosis:
    """Ask an address that said nothing at first. Every ZooKeeper that is not too busy has an answer to this word, also
    one that does not allow it. A broker closes the connection, for which the word is a length; a web server
    complains."""
    try:
        made.sendall(b"srvr\n")
        answer = made.recv(256)
    except TimeoutError:
        busy = "it is busy, or too few servers of its ensemble are up"
        return Diagnosis(f"{address} accepts connections and says nothing: {busy}", True)
    except OSError:
        answer = b""
    if b"ookeeper" in answer.lower() or answer.startswith(b"srvr "):
        slow = "it was busy, or too few servers of its ensemble are up"
        return Diagnosis(f"{address} is a ZooKeeper that gave no session in time: {slow}", True)
    if speaks_tls(address, LOOK_S):
        how = 'set tls = "required" in [security.zookeeper], or name the port that takes plain text'
        return Diagnosis(f"{address} speaks TLS, and this process does not: {how}", False)
    if not answer:
        closes = "it closes the connection when it is asked, as a Kafka broker does"
        return Diagnosis(f"{address} is no ZooKeeper, or one that ends: {closes}", True)
    what = "it answers as a web server does" if b"HTTP" in answer else "its answer is none of a ZooKeeper's"
    return Diagnosis(f"{address} is no ZooKeeper: {what}", False)


def speaks_tls(address: str, step_s: float) -> bool:
    """Say whether somebody there begins a conversation by TLS, whoever that is: nobody is trusted, and nothing said."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), step_s) as made, asking.wrap_socket(made):
            return True
    except ssl.SSLError as error:  # it may ask for a certificate, which it does in TLS
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False


def no_chroot(hosts: str, chroot: str) -> ConfigError:
    """Return the error for a chroot that is not there. Nothing makes it by itself: below a mistyped one a cluster would
    seem to be empty."""
    servers = hosts.partition("/")[0]
    names = chroot.strip("/").split("/")
    levels = ["/" + "/".join(names[: n + 1]) for n in range(len(names))]
    command = f"zkCli.sh -server {servers} create {levels[0]}"
    if len(levels) > 1:
        command = f"for p in {' '.join(levels)}; do zkCli.sh -server {servers} create $p; done"
    return ConfigError(
        f"ZooKeeper at {servers} has no chroot {chroot}, and nothing was made there: correct site.zookeeper, or create "
        f"it with `{command}`",
        chroot=chroot,
        command=command,
    )


def lacks_chroot(client: Any, timeout_s: float) -> bool:
    """Say whether a connected kazoo client has a chroot in its addresses that is not there."""
    return bool(client.chroot) and client.exists_async("/").get(timeout=timeout_s) is None
