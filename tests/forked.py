"""Processes of halog for tests, forked by servers that have imported halog already (`tests/fork_server.py`).

A test run starts well over a thousand nodes and commands, and to import what one needs takes 0.4 s of CPU. They are
processes like any other: killed by signals, of a session of their own, with exit codes. What differs from `python -m`
is that `/proc/PID/cmdline` is the server's, and that all of one server have its hash seed. So there are several, which
take turns: the nodes of a cluster, and a node's next run, order their sets differently, as they do elsewhere.

Tests of the start itself execute Python: `subprocess`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
SERVERS = 3

EARLY = ("PYTHON", "LD_", "LANG", "LC_", "MALLOC_", "GLIBC_")
"""How variables begin that are obeyed while a program starts."""
LATE = ("PYTHONPATH", "PYTHONFAULTHANDLER", "PYTHONHASHSEED")
"""Those of them that the server obeys itself; a hash seed it has."""


def _obeyed_early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(EARLY) and name not in LATE}


def _network() -> str:
    return os.readlink("/proc/thread-self/ns/net")


_ENVIRONMENT, _NETWORK = dict(os.environ), _network()
"""Those of the servers."""


class Forked:
    """What `subprocess.Popen` is to tests, of a process `python -m argv` that a server has forked."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], out: IO[Any], err: IO[Any]) -> None:
        self.args = list(argv)
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        try:
            with open(os.devnull) as nothing:
                _next_server().ask(self.args, cwd, env, [nothing.fileno(), out.fileno(), err.fileno(), telling])
        finally:
            os.close(telling)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _ended(self, limit_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], limit_s)[0]:
            self.returncode = self._number()
            os.close(self._told)
        return self.returncode

    def _number(self) -> int:
        """The next that the server tells: the process's id, then its exit code."""
        line = b""
        while not line.endswith(b"\n"):
            if not (one := os.read(self._told, 1)):
                raise RuntimeError("the fork server has ended: its last words are among pytest's own on stderr")
            line += one
        return int(line)


class Server:
    """One process of `tests/fork_server.py`, until this one ends."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/fork_server.py"), str(theirs.fileno())],
                cwd=ROOT,
                env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._close)

    def ask(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[int]) -> None:
        asked = {"module": argv[0], "arguments": argv[1:], "cwd": str(cwd), "env": dict(env)}
        socket.send_fds(self._socket, [json.dumps(asked).encode()], files)

    def _close(self) -> None:
        self._socket.close()
        self.process.wait(10)


_servers: list[Server] = []
_turns = itertools.cycle(range(SERVERS))
_starting = threading.Lock()


def _next_server() -> Server:
    """The first is not started before somebody needs one."""
    with _starting:
        if len(_servers) < SERVERS:
            _servers.append(Server())
        return _servers[next(_turns)]


def started(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: IO[Any], err: IO[Any]
) -> Forked | subprocess.Popen[bytes]:
    """`python -m argv`, which cannot outlive this process. It is executed where a forked one would be something else:
    in a network of its own, or with variables that are obeyed while a program starts."""
    if _obeyed_early(env) == _obeyed_early(_ENVIRONMENT) and _network() == _NETWORK:
        return Forked(argv, cwd, env, out, err)
    child = [sys.executable, "-m", "halog.testing.child", str(os.getpid()), *argv]
    return subprocess.Popen(
        child, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )


def run(
    argv: Sequence[str], *, timeout: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same to its end, with what it said: `subprocess.run` that captures."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = started(argv, cwd=cwd or Path.cwd(), env=os.environ if env is None else env, out=out, err=err)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait(10)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, code, out.read(), err.read())
