"""This module speaks to the supervisor of a running site: where is it, stop it, hurt one of its servers (for fault
tests).

Each request takes one connection, with one line of JSON each way (supervisor.py). It never starts a site.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from halog.embedded import datadir
from halog.embedded.model import ServerName, SiteInfo, error_from
from halog.errors import SiteError, UnreachableError

REPLY_S = 120.0  # starting a server again may take the supervisor's own limit
DOWN_S = 15.0  # the supervisor's grace for its servers and a little


def read_site(data_dir: str | os.PathLike[str]) -> SiteInfo:
    """Return the site running on this data directory. UnreachableError: none is."""
    path = Path(data_dir)
    try:
        if datadir.is_locked(path):
            return SiteInfo.from_dict(json.loads((path / datadir.STATE).read_text()))
    except (OSError, ValueError, TypeError):
        pass  # starting or stopping just now
    raise UnreachableError(f"no embedded site is running in {path}: start it with `halog up --data-dir {path}`")


def attach(data_dir: str | os.PathLike[str]) -> SiteControl:
    """Return the control of a site that another process started, e.g. `halog up`."""
    read_site(data_dir)
    return SiteControl(data_dir)


class SiteControl:
    """A `SiteControl` acts on a running site. Each call returns when it is done, with the site as it is then."""

    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self.data_dir = Path(data_dir).absolute()

    @property
    def info(self) -> SiteInfo:
        """Return the site as last published."""
        return read_site(self.data_dir)

    def kill(self, server: ServerName) -> SiteInfo:
        """Kill a server (kill -9); it stays down until started."""
        return self._ask("kill", server)

    def shut(self, server: ServerName) -> SiteInfo:
        """Stop one server in order."""
        return self._ask("stop", server)

    def start_server(self, server: ServerName) -> SiteInfo:
        """Start a server on the same port and data; return when it answers."""
        return self._ask("start", server)

    def restart(self, server: ServerName) -> SiteInfo:
        """Stop a server in order, then start it."""
        self._ask("stop", server)
        return self._ask("start", server)

    def pause(self, server: ServerName) -> SiteInfo:
        """Stop a server with SIGSTOP: it is alive, connected, and silent."""
        return self._ask("pause", server)

    def resume(self, server: ServerName) -> SiteInfo:
        """Wake a paused server with SIGCONT."""
        return self._ask("resume", server)

    def kill_kafka(self) -> SiteInfo:
        """Call `kill("kafka")`."""
        return self.kill("kafka")

    def restart_kafka(self) -> SiteInfo:
        """Call `restart("kafka")`."""
        return self.restart("kafka")

    def kill_zookeeper(self) -> SiteInfo:
        """Call `kill("zookeeper")`."""
        return self.kill("zookeeper")

    def restart_zookeeper(self) -> SiteInfo:
        """Call `restart("zookeeper")`."""
        return self.restart("zookeeper")

    def down(self) -> None:
        """Stop both servers and their supervisor; return when all are gone."""
        self._ask("down")
        deadline = time.monotonic() + DOWN_S
        while datadir.is_locked(self.data_dir):
            if time.monotonic() > deadline:
                raise SiteError(f"the site in {self.data_dir} did not stop in {DOWN_S:.0f} s; see its logs directory")
            time.sleep(0.01)

    def _ask(self, op: str, server: ServerName | None = None) -> SiteInfo:
        request = json.dumps({"op": op, "server": server}).encode() + b"\n"
        try:
            answer = datadir.at_socket(self.data_dir, lambda address: _exchange(address, request))
        except (OSError, ValueError) as e:
            raise UnreachableError(f"the supervisor of {self.data_dir} does not answer ({e})") from None
        if "error" in answer:
            raise error_from(answer)
        return SiteInfo.from_dict(answer["ok"])


def _exchange(address: str, request: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(REPLY_S)
        s.connect(address)
        s.sendall(request)
        answer: dict[str, Any] = json.loads(s.makefile().readline())
        return answer
