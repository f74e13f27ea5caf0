"""This module is the one process that owns both servers of a site: `python -m halog.embedded.supervisor '<Launch as
JSON>'`.

It is single-threaded and uses the standard library only. Its law: *the servers live exactly as long as it does*. It
ends when told (control socket, SIGTERM), when the process that started it ends (`Launch.parent`, watched through a
pidfd, which no thread's end and no inherited pipe can fool), or when its directory is deleted. If it is killed itself,
the kernel ends the servers. It never restarts a server by itself: a crash under test must be seen.

It writes one line of JSON to stdout, {"ok": SiteInfo} or {"error": sentence}, and then goes silent.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from halog.embedded import datadir, leftovers, ports, probe, settings
from halog.embedded.jars import classpath
from halog.embedded.model import LOOPBACK, SERVERS, Launch, Ports, ServerName, SiteInfo, boot_clock, error_to
from halog.embedded.process import POLL_S, Server, stop_all
from halog.errors import HalogError, SiteError

START_TIMEOUT_S = 90.0  # a cold disk and no archive: 5 s measured; a laptop on battery may need ten times that
STOP_GRACE_S = 10.0  # an orderly Kafka stop takes about a second
PLACINGS = 3  # choices of ports: each time another process must have taken one within the second of a start
ORPHAN_GRACE_S = 1.0  # no caller waits any more, but logs should be closed, not torn


class Supervisor:
    """A `Supervisor` holds the servers and the control socket, and runs the loop that watches them."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.root = Path(launch.data_dir)
        self.ending = False
        self.orphaned = False
        self.published = True
        self.parent_fd = _watch(launch.parent) if launch.parent else -1
        self.wake_fd = _wake_on_signals()
        self.servers: dict[ServerName, Server] = {}
        self.ports: Ports
        self.control: socket.socket

    def run(self) -> int:
        """Run from the lock to the last server's end; return the exit code."""
        try:
            self._open()
            self._start_somewhere()
        except HalogError as e:
            _say(error_to(e))
            stop_all(list(self.servers.values()), 0)
            return 1
        _say({"ok": self._publish().to_dict()})
        try:
            self._serve()
        finally:
            self._close()
        return 0

    # ---- opening and closing

    def _open(self) -> None:
        marker = datadir.prepare(self.root)
        self.lock_fd = datadir.lock(self.root)
        _log_to(self.root / datadir.LOGS / "supervisor.log")
        leftovers.clear(self.root, marker.cluster_id)
        self._place()
        try:
            self.control = datadir.at_socket(self.root, _listen)
        except OSError as e:
            raise self._not_written(e) from None

    def _place(self) -> None:
        """Give the servers their ports."""
        marker, remote = datadir.read_marker(self.root), self.launch.remote
        self.ports = ports.choose(
            marker.ports,
            self.launch.kafka_port,
            self.launch.zookeeper_port,
            remote.port if remote else None,
            self.launch.host,
        )
        try:
            datadir.save_ports(self.root, marker, self.ports)
            parts = self.launch.zookeeper_tls, self.launch.secure
            settings.write(self.root, self.ports, marker.cluster_id, remote, self.launch.host, *parts)
        except OSError as e:
            raise self._not_written(e) from None
        self.servers = {name: self._server(name, marker.cluster_id) for name in SERVERS}

    def _not_written(self, error: OSError) -> SiteError:
        return SiteError(f"data directory {self.root} cannot be written ({error.strerror})")

    def _server(self, name: ServerName, cluster_id: str) -> Server:
        archive = Path(self.launch.archives, f"{name}.jsa") if self.launch.archives else None
        argv = settings.command(
            name,
            self.launch.java,
            classpath(Path(self.launch.jars), name),
            str(archive) if archive and archive.exists() else "",
            cluster_id,
        )
        port: int = getattr(self.ports, name)
        ask = probe.kafka_answers if name == "kafka" else probe.zookeeper_answers
        return Server(name, self.root, argv, lambda: ask(port, host=self.launch.host))

    def _close(self) -> None:
        with suppress(OSError):
            (self.root / datadir.STATE).unlink()
        stop_all(list(self.servers.values()), ORPHAN_GRACE_S if self.orphaned else STOP_GRACE_S)
        with suppress(OSError):
            (self.root / datadir.SOCKET).unlink()

    # ---- starting servers

    def _start_somewhere(self) -> None:
        """Start on free ports. A port is free when it is chosen, and bound a JVM's start later; if other programs took
        it in between, start on other ports. Ports given as options are not replaced: SiteError says that they are
        taken."""
        for left in reversed(range(PLACINGS)):
            try:
                self._start(list(SERVERS))
                return
            except SiteError as e:
                stop_all(list(self.servers.values()), 0)
                if self.ending or not left or not self._is_displaced():
                    raise
                _log(f"a port was taken meanwhile, starting on others: {e.message}")
                self._place()

    def _is_displaced(self) -> bool:
        """Has another program taken one of our ports?"""
        own, host = self.ports, self.launch.host
        chosen = ((own.kafka, host), (own.zookeeper, host), (own.controller, LOOPBACK))
        return not all(ports.is_free(port, where) for port, where in chosen)

    def _start(self, names: list[ServerName], since: float | None = None) -> None:
        """Spawn them in parallel and wait until each has answered. SiteError if one ends or never answers."""
        chosen = [self.servers[n] for n in names]
        for server in chosen:
            server.spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._all_ready(chosen, self.launch.since if since is None else since):
            self._look(0)
            if self.ending:
                raise SiteError("stopped while starting")
            if time.monotonic() > deadline:
                raise SiteError(f"{_names(chosen)} did not answer in {START_TIMEOUT_S:.0f} s; see {self.root}/logs")
            time.sleep(POLL_S)

    def _all_ready(self, servers: list[Server], since: float) -> bool:
        ready = True
        for server in servers:
            if not server.alive():
                raise SiteError(
                    f"{server.name} ended while starting: {server.last_words()}; see {self.root}/logs/{server.name}.log"
                )
            ready = server.note_ready(since) and ready
        return ready

    def _publish(self) -> SiteInfo:
        """Write what runs now to site.json; if the disk is full, this is tried again later, and the servers live on."""
        info = SiteInfo(
            bootstrap=f"{self.launch.host}:{self.ports.kafka}",
            zookeeper=f"{self.launch.host}:{self.ports.zookeeper}",
            data_dir=str(self.root),
            pids={"supervisor": os.getpid(), **{n: s.pid for n, s in self.servers.items() if s.alive()}},
            cached=self.launch.cached,
            kafka_ms=self.servers["kafka"].ready_ms,
            zookeeper_ms=self.servers["zookeeper"].ready_ms,
            **self._sealed_doors(),
        )
        try:
            datadir.write_private(self.root / datadir.STATE, info.to_dict())
            self.published = True
        except OSError as e:
            self.published = False
            _log(f"{datadir.STATE} could not be written, going on trying: {e.strerror}")
        return info

    def _sealed_doors(self) -> dict[str, str]:
        found, kafka, zookeeper = dict[str, str](), self.launch.secure, self.launch.zookeeper_tls
        if kafka is not None:
            found |= {"kafka_ssl": f"{kafka.host}:{kafka.ssl}", "kafka_sasl_ssl": f"{kafka.host}:{kafka.sasl_ssl}"}
        if zookeeper is not None:
            found["zookeeper_tls"] = f"{self.launch.host}:{zookeeper.port}"
        return found

    # ---- the loop

    def _serve(self) -> None:
        while not self.ending:
            self._look(1000, self.control)
            if datadir.is_deleted(self.lock_fd):
                _log("the data directory was deleted")
                self.ending = self.orphaned = True
                return
            if not self.published:
                self._publish()
            for server in self.servers.values():
                if server.wanted and not server.alive():
                    server.wanted = False
                    _log(f"{server.name} (pid {server.pid}) ended: {server.last_words()}")
                    self._publish()

    def _look(self, wait_ms: int, control: socket.socket | None = None) -> None:
        """Look once at the parent and, if given, at the control socket."""
        poller = select.poll()
        for fd in (self.wake_fd, self.parent_fd, control.fileno() if control else -1):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(wait_ms):
            if fd == self.wake_fd:
                os.read(fd, 4096)  # a signal came; its handler has run
            elif fd == self.parent_fd:
                _log("the process that started this site has ended")
                self.ending = self.orphaned = True
            elif control:
                self._answer(control)

    def _answer(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection, suppress(OSError):
            connection.settimeout(2)  # a caller that says nothing must not hold the supervisor
            reply: dict[str, Any]
            try:
                request = json.loads(connection.makefile().readline(4096))
                reply = {"ok": self._perform(str(request["op"]), request.get("server")).to_dict()}
            except HalogError as e:
                reply = error_to(e)
            except (ValueError, KeyError, TypeError):
                reply = {"error": "not a request of the supervisor's"}
            connection.sendall(json.dumps(reply).encode() + b"\n")

    # ---- what it can be told

    def _perform(self, op: str, name: ServerName | None) -> SiteInfo:
        if op == "down":
            self.ending = True
        elif op != "status":
            if name not in self.servers:
                raise SiteError(f"there is no server {name!r}: kafka, zookeeper")
            self._perform_on(op, self.servers[name])
        return self._publish()

    def _perform_on(self, op: str, server: Server) -> None:
        match op:
            case "kill":
                server.kill()
            case "stop":
                stop_all([server], STOP_GRACE_S)
            case "pause":
                server.pause()
            case "resume":
                server.signal(signal.SIGCONT)
            case "start" if server.alive():
                raise SiteError(f"{server.name} is running already")
            case "start":
                self._start_again(server)
            case _:
                raise SiteError(f"unknown operation {op!r}")

    def _start_again(self, server: Server) -> None:
        try:
            self._start([server.name], boot_clock())
        except SiteError:
            server.kill()  # half-started is not a state to leave behind
            raise

    def on_signal(self, *_: object) -> None:
        """End in order, at SIGTERM or SIGINT."""
        self.ending = True


def _watch(parent: int) -> int:
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        raise SystemExit(1) from None
    if os.getppid() != parent:  # it ended before we looked, and its number may be another process's
        raise SystemExit(1)
    return fd


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable at any signal, so that the loop need not poll for them."""
    out, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    return out


def _listen(address: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(address)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(address)
    os.chmod(address, 0o600)
    s.listen(8)
    return s


def _names(servers: list[Server]) -> str:
    return " and ".join(s.name for s in servers if not s.ready_ms)


def _say(message: dict[str, Any]) -> None:
    """Write the one line for the parent; then close stdout, since a daemon must not hold its parent's pipe."""
    with suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)


def _log(text: str) -> None:
    with suppress(OSError):  # a full disk is no reason to end the servers
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n".encode())


def _log_to(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    os.close(fd)


def main() -> int:
    """Run the process."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent may have blocked some; the servers would inherit that
    supervisor = Supervisor(Launch.from_json(sys.argv[1]))
    signal.signal(signal.SIGTERM, supervisor.on_signal)
    signal.signal(signal.SIGINT, supervisor.on_signal)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the loop
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal's end is not the site's
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
