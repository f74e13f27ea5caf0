"""Fork server of these tests: `python fork_server.py SOCKET`, started by `tests.forked`, which asks it.

It has imported what nodes and commands of halog import, which is most of the CPU that their start takes, and runs a
module in a new process as `python -m` does, with a session, standard files, environment, directory, signals and
modules of its own. Nothing of halog has run in it: it has one thread and no connection.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple, cast

import halog.cli
from halog.testing.child import die_with

PRELOADED = (
    "encodings.idna",
    "halog.adapters.tcp.channel",
    "halog.adapters.kafka.log",
    "halog.adapters.kafka.topics",
    "halog.adapters.rocksdb.store",
    "halog.adapters.zookeeper.coordinator",
    "halog.runtime.node.open",
    "halog.runtime.node.status",
)
"""They start no thread. Beside them all commands are, but `halog.cli.main`: it is what a new process runs."""

LARGEST = 1 << 18


class Asked(NamedTuple):
    """A process to be started, as `tests.forked` has written it."""

    module: str
    arguments: list[str]
    cwd: str
    env: dict[str, str]


class Ended(Exception):
    """Whom this works for is gone."""


def serve(asked: socket.socket) -> Asked:
    """Returns in each new process, with what it is to run."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd: process id, and where its end is told
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != asked.fileno():
                poll.unregister(ready)
                pid, told = running.pop(ready)
                os.close(ready)
                _tell(told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)
                continue
            data, files, *_ = socket.recv_fds(asked, LARGEST, 4)
            if not data:
                raise Ended
            parent, pid = os.getpid(), os.fork()
            if not pid:
                return _begun(parent, Asked(**json.loads(data)), files)
            *standard, told = files
            for each in standard:
                os.close(each)
            _tell(told, pid)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, told
            poll.register(pidfd, select.POLLIN)


def _tell(told: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, b"%d\n" % number)


def _begun(parent: int, asked: Asked, files: list[int]) -> Asked:
    """What a new program has of its own."""
    die_with(parent)
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number, name, mode in ((0, "stdin", "rb"), (1, "stdout", "wb"), (2, "stderr", "wb")):
        setattr(sys, name, _opened_as(getattr(sys, name), number, mode))
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.chdir(asked.cwd)
    os.environ.clear()
    os.environ.update(asked.env)
    sys.path[:] = dict.fromkeys([asked.cwd, *filter(None, asked.env.get("PYTHONPATH", "").split(":")), *sys.path])
    importlib.invalidate_caches()
    if asked.env.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    return asked


def _opened_as(old: io.TextIOWrapper, number: int, mode: str) -> io.TextIOWrapper:
    """What it says and knows of its file is not this one's."""
    file = cast(io.BufferedWriter, os.fdopen(number, mode, 0 if old.write_through and number else -1, closefd=False))
    return io.TextIOWrapper(
        file, old.encoding, old.errors, line_buffering=old.line_buffering, write_through=old.write_through
    )


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    given = os.environ.get("PYTHONPATH", "").split(":")
    found = (each.name for each in pkgutil.walk_packages(halog.cli.__path__, "halog.cli."))
    commands = (name for name in found if name != "halog.cli.main")
    for module in (*PRELOADED, *commands):
        importlib.import_module(module)
    sys.path[:] = [each for each in sys.path[1:] if each not in given]
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy one thread of several"
    gc.collect()
    gc.freeze()  # else the first collection in each process would copy every page
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        try:
            begun = serve(asked)
        except Ended:
            return
        asked.detach()
    sys.argv[:] = [begun.module, *begun.arguments]
    runpy.run_module(begun.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
