"""Helpers of these tests: the command line as a process, waiting, and a topic to recognise data by."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from tests import forked

ROOT = Path(__file__).resolve().parents[3]
STARTS_S = 240.0
"""For a command that starts servers: the supervisor itself gives them 90 s."""
SOON_S = 30.0
"""For what takes a moment where nobody else needs the machine."""


def halog(
    *args: str, env: dict[str, str | None] | None = None, timeout: float = STARTS_S
) -> subprocess.CompletedProcess[str]:
    """Runs `halog ARGS`; `env` adds, or with None removes, variables."""
    return forked.run(["halog.cli.main", *args], timeout=timeout, cwd=ROOT, env=changed(env or {}))


def changed(env: dict[str, str | None]) -> dict[str, str]:
    """Our environment with these differences."""
    merged = {**os.environ, **env}
    return {k: v for k, v in merged.items() if v is not None}


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone_after(pids: Sequence[int], limit_s: float) -> float:
    """Seconds until all are gone."""
    began = time.monotonic()
    eventually(lambda: not any(alive(p) for p in pids), limit_s, "processes are gone")
    return time.monotonic() - began


def eventually(condition: Callable[[], object], limit_s: float, what: str) -> None:
    """Waits for it, or fails with `what`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.01)


def topics(bootstrap: str) -> set[str]:
    """The broker's topics."""
    return set(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=SOON_S).topics)


def make_topic(bootstrap: str, name: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SOON_S)


def znode(hosts: str, path: str, create: bytes | None = None) -> bytes:
    """Its data, after creating it where asked to."""
    client = KazooClient(hosts, timeout=5)
    client.start(SOON_S)
    try:
        if create is not None:
            client.create(path, create)
        return bytes(client.get(path)[0])
    finally:
        client.stop()
        client.close()


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
