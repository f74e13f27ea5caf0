"""This module is `EmbeddedSite`: it brings a site up and down from Python or for the command line. The caller is the
parent.

It never runs a server itself: it prepares (Java, jars, class archives) and starts the supervisor, which does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from types import TracebackType

from halog.embedded import archives, datadir, jars, ports
from halog.embedded.archives import child_environment
from halog.embedded.control import DOWN_S, SiteControl
from halog.embedded.java import find_java
from halog.embedded.model import (
    LOOPBACK,
    Launch,
    RemoteListener,
    SecureListeners,
    SiteInfo,
    ZooKeeperTls,
    boot_clock,
    checked_host,
    error_from,
)
from halog.embedded.progress import LogProgress, Progress
from halog.errors import ConfigError, HalogError, SiteError


class EmbeddedSite(SiteControl):
    """An `EmbeddedSite` runs a Kafka and a ZooKeeper on loopback, for as long as this process lives (`detach=True`:
    until stopped).

    Use it as a context manager, or call `start()` and `stop()`. The data directory outlives both: starting on it again
    finds the same data on the same ports, if these are free.

    `host` is another IPv4 address of this machine for the servers to listen on, and to be named by. They authenticate
    nobody: it is for networks that nobody else uses, as between two network namespaces. `zookeeper_tls` lets ZooKeeper
    take TLS, too, at a port of its own.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        kafka_port: int | None = None,
        zookeeper_port: int | None = None,
        remote: RemoteListener | None = None,
        host: str = LOOPBACK,
        zookeeper_tls: ZooKeeperTls | None = None,
        secure: SecureListeners | None = None,
        detach: bool = False,
        progress: Progress | None = None,
        since: float | None = None,
    ) -> None:
        super().__init__(data_dir)
        self.detach = detach
        self._ports = (kafka_port, zookeeper_port)
        self._remote = remote
        if secure is not None and host != LOOPBACK:
            raise ConfigError(f"host {host!r}: beside listeners with TLS the one in plain text stays on {LOOPBACK}")
        self._secure = secure
        self._host = checked_host(host)
        self._zookeeper_tls = zookeeper_tls
        self._progress = progress or LogProgress()
        self._since = since  # when the command began, on boot_clock(); None: when start() is called
        self._pid = os.getpid()
        self._starting: subprocess.Popen[bytes] | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    def start(self) -> SiteInfo:
        """Start both servers and return when they answer. SiteError: they cannot be brought up, in one sentence."""
        self.begin()
        return self.begun()

    def check(self) -> None:
        """Raise SiteError or ConfigError if it cannot be started here and now. This starts and makes nothing."""
        datadir.check(self.data_dir)
        if datadir.is_locked(self.data_dir):
            os.close(datadir.lock(self.data_dir))  # raises the right error, before anything is fetched
        ports.asked_for(*self._ports, self._remote.port if self._remote else None, self._host)

    def begin(self) -> None:
        """Start without waiting. Call `begun` next, or `abandon`."""
        self._pid = os.getpid()
        since = self._since if self._since is not None else boot_clock()
        self.check()
        java = find_java()
        jar_dir, had_jars = jars.ensure(java, self._progress)
        archive_dir, had_archives = archives.ensure(java, jar_dir, self._progress)
        launch = Launch(
            data_dir=str(self.data_dir),
            java=java.path,
            jars=str(jar_dir),
            archives=archive_dir,
            cached=had_jars and had_archives,
            since=since,
            parent=0 if self.detach else os.getpid(),
            kafka_port=self._ports[0],
            zookeeper_port=self._ports[1],
            remote=self._remote,
            host=self._host,
            zookeeper_tls=self._zookeeper_tls,
            secure=self._secure,
        )
        self._starting = subprocess.Popen(
            [sys.executable, "-m", "halog.embedded.supervisor", launch.to_json()],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # a Ctrl-C meant for the caller must not hit the servers first
        )

    def begun(self) -> SiteInfo:
        """Wait until the site that `begin` started answers. SiteError: it does not, in one sentence."""
        process = self._starting
        assert process is not None, "begin() comes first"
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with process.stdout, process.stderr:
                line = process.stdout.readline()
                said = process.stderr.read().decode(errors="replace") if not line else ""
        except BaseException:  # after Ctrl-C no half-started process stays behind
            self.abandon()
            raise
        self._starting = None
        if line and "ok" in (answer := json.loads(line)):
            self._supervisor = process
            return SiteInfo.from_dict(answer["ok"])
        process.wait()
        if line:
            raise error_from(answer)
        last = (said.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise SiteError(f"the supervisor ended before the servers answered: {last}; see {self.data_dir}/logs")

    def abandon(self) -> None:
        """Give up a start that `begin` made; no process of it is left when this returns. In a forked child it belongs
        to the parent."""
        if os.getpid() != self._pid:
            return
        process = self._starting
        self._starting = None
        if process is None:
            return
        process.terminate()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()

    def stop(self) -> None:
        """Stop both servers and the supervisor; all are gone when this returns. It does nothing if nothing runs, or in
        a child forked from the process that started them."""
        if os.getpid() != self._pid:
            return
        if datadir.is_locked(self.data_dir):
            with suppress(HalogError):  # it may be ending already; the wait below tells
                self.down()
        if self._supervisor is not None:
            try:
                self._supervisor.wait(DOWN_S)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            self._supervisor = None

    def ended(self) -> int | None:
        """Return the supervisor's exit code; None while it runs."""
        return self._supervisor.poll() if self._supervisor else 0

    def __enter__(self) -> SiteInfo:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
