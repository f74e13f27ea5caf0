"""`halog node start|list` runs a hosting node in this process, and lists the nodes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_line, say
from halog.cli.shared.options import Name, config_option
from halog.cli.shared.output import emit, format_option
from halog.signals import STOPPING

if TYPE_CHECKING:
    from halog.config import Config
    from halog.errors import VersionMismatchError
    from halog.runtime.membership.witness import Witness
    from halog.runtime.node.open import RunningNode

SETTLED_S = 3.0
"""The first line waits this long for the copies to be read, so that it can tell which have failed. Where a log takes
longer, the node reads on."""

LOOK_S = 0.25
"""It is looked this often whether the node has gone offline for good."""

NAMED = 3
"""The first line names so many failed partitions."""


@click.group()
def node() -> None:
    """Run a node, or list the nodes.

    \b
    Examples:
      halog node start --name A
      halog node list
    """


@node.command()
@config_option
@click.option("--name", type=Name(), help="The node's name in [nodes].  [default: this machine's host name]")
@click.option(
    "--switch-interval-us",
    type=click.IntRange(50, 100_000),
    help="How long Python lets one thread run while another waits, in µs. Lower answers sooner under load and does "
    "less work in all.  [default: Python's, 5000]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What the node says on stderr while it runs.",
)
@format_option
def start(config_path: Path, name: str | None, switch_interval_us: int | None, log_level: str, format_: str) -> None:
    """Run a hosting node until SIGTERM or Ctrl-C.

    Prints one line when the node is up: it has read what it hosts and takes part in elections. At the first SIGTERM or
    SIGINT the node hands over the partitions it is active for, then leaves with exit code 0. A second one ends it at
    once: what is committed is safe in the log, and the others take over as after a crash.

    When the cluster's level is raised above what its halog knows the node goes offline, so that others take over, and
    ends by itself with exit code 7: start it with a later halog.

    \b
    Examples:
      halog node start --name A
      halog node start --config /etc/halog.toml --name A --format json
      halog node start --name A --switch-interval-us 500 --log-level info
    """
    from halog.config import load_config

    began = time.monotonic()
    signals = Signals()
    click.get_current_context().call_on_close(signals.undo)
    _log_to_stderr(log_level)
    if switch_interval_us is not None:
        sys.setswitchinterval(switch_interval_us / 1_000_000)
    config = load_config(config_path)
    try:
        with redirect_stdout(sys.stderr):  # what application modules print is not the command's result
            running = _join(config, name or socket.gethostname())
    except Interrupted:
        with suppress(OSError):
            say("stopped before the node was up")
        return
    try:
        signals.joined()
        try:
            _say_ready(running, format_, began)
        except OSError as error:  # nobody reads stdout; the node serves all the same
            logging.getLogger("halog.node").warning("nobody reads that the node is up: %s", error.strerror)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        outdated = _until_the_end(running, signals)
        if not outdated:
            with suppress(OSError):  # nobody reads stderr either
                say(f"node {running.runtime.name} hands over and leaves")
    finally:
        running.close()
    if outdated:
        raise _outgrown(running.runtime.name, outdated)


def _until_the_end(running: RunningNode, signals: Signals) -> str:
    """Wait for the first signal, or until the cluster has outgrown the node and the node is offline: then return
    why."""
    while not signals.wait(LOOK_S):
        if why := running.runtime.why_outdated:
            return why
    return ""


def _outgrown(name: str, why: str) -> VersionMismatchError:
    from halog.errors import VersionMismatchError
    from halog.metadata.cluster_level import LEVEL
    from halog.release import RELEASE

    return VersionMismatchError(
        f"{why}; node {name} runs halog {RELEASE}, which knows levels up to {LEVEL}: it has gone offline and ended; "
        "start it with a later halog",
        node=name,
        known=LEVEL,
        release=RELEASE,
    )


@node.command("new-identity")
@config_option
@click.option("--name", type=Name(), required=True, help="The node that starts on the copied data directory.")
@format_option
def new_identity(config_path: Path, name: str, format_: str) -> None:
    """Give a data directory that was copied from another node's an identity of its own.

    Copy a stopped node's directory to where [nodes.NAME] data_dir of a new node is, and the new node need not read
    everything anew: it reads on where the copy ends. The copy has the other node's installation timestamp, which no two
    nodes may share; this gives it one of its own. The new node must not run.

    \b
    Examples:
      halog node new-identity --name C
      halog node new-identity --config /etc/halog.toml --name C --format json
    """
    from halog.adapters.rocksdb.store import RocksStore
    from halog.config import load_config
    from halog.errors import RefusedError, UnknownNameError
    from halog.runtime.node.identity_renewal import renew

    config = load_config(config_path)
    if config.is_client(name):
        raise UnknownNameError.of("node", name, config.nodes, f"{config.source}, --name")
    directory = config.nodes[name].data_dir
    if not (directory / "db").exists():
        raise RefusedError(f"there is no store in {directory}: copy another node's data directory there first")
    store = RocksStore(directory)
    try:
        renewed = renew(store, config, name)
    finally:
        store.close()
    if format_ == "json":
        echo_line({"node": name, "copied_from": renewed.was, "installation": renewed.installation})
    else:
        click.echo(
            f"data directory {directory} is node {name}'s now; it was copied from node "
            f"{renewed.was or '?'}, and brings {renewed.partitions} copies of partitions along"
        )


class Interrupted(BaseException):
    """A signal came while the node was joining: it closes everything and leaves."""


class Signals:
    """Waits for signals. The first one ends the wait, or the joining; the second does what it does by default: it ends
    the process.

    This is no Event. The main thread may hold an Event's lock just when the handler interrupts it; the handler would
    wait for ever.
    """

    def __init__(self) -> None:
        self._stop: SimpleQueue[int] = SimpleQueue()
        self._joining = True
        self._before = {each: signal.signal(each, self._stopping) for each in STOPPING}

    def undo(self) -> None:
        """Let others hear of signals again, if none came."""
        for each, handler in self._before.items():
            if signal.getsignal(each) == self._stopping:
                signal.signal(each, handler)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the first signal; return whether it came within this time."""
        try:
            self._stop.get(timeout=timeout_s)
        except Empty:
            return False
        return True

    def joined(self) -> None:
        """Note that the node has joined: a signal no longer interrupts the main thread."""
        self._joining = False

    def _stopping(self, number: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_DFL)
        self._stop.put(number)
        if self._joining:
            raise Interrupted


def _log_to_stderr(level: str) -> None:
    """Set up halog's logger only, as long as the command runs: the root logger is the application's."""
    logger = logging.getLogger("halog")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

    click.get_current_context().call_on_close(undo)


def _join(own: Config, name: str) -> RunningNode:
    from halog.cli.shared.connection import modules_beside
    from halog.config.multi_site import check_site
    from halog.errors import UnknownNameError
    from halog.runtime.node.open import node as join
    from halog.runtime.node.wiring import active_version

    activated = active_version(own, name)
    config = activated.config
    check_site(config, name)
    if config.is_client(name):
        raise UnknownNameError.of("node", name, config.nodes, f"{config.source}, --name")
    modules_beside(config)
    return join(own, name, activated=lambda *_: activated, witness=_witness(config))


def _witness(config: Config) -> Witness | None:
    """Start a witness that tells of this process's end, if other nodes would wait for that."""
    from halog.runtime.membership.witness import Witness

    if not any(policy.lease_ttl_ms for policy in config.policies.values()):
        return None
    witness = Witness()
    witness.start()
    return witness


def _say_ready(running: RunningNode, format_: str, began: float) -> None:
    from halog.runtime.node.status import settled

    ms = round((time.monotonic() - began) * 1000)
    failed = settled(running.runtime, SETTLED_S)
    described = running.runtime.status()
    copies, offline = len(running.runtime.copies), described["offline"]
    if format_ == "json":
        echo_line(
            {
                "node": described["node"],
                "address": described["address"],
                "pid": described["pid"],
                "partitions": copies,
                "ready_ms": ms,
                **({"offline": offline} if offline else {}),
                **({"degraded": failed} if failed else {}),
            }
        )
    else:
        click.echo(
            f"node {described['node']} is up at {described['address']} (pid {described['pid']}), hosting {copies} "
            f"partitions, after {ms} ms" + (f"; offline: {offline}" if offline else "") + _degraded(failed, copies)
        )
    sys.stdout.flush()


def _degraded(failed: dict[str, str], copies: int) -> str:
    """Return the part of the first line that names failed partitions with their reasons."""
    if not failed:
        return ""
    named = "; ".join(f"{partition}: {why}" for partition, why in list(failed.items())[:NAMED])
    more = f"; and {len(failed) - NAMED} more, see `halog status`" if len(failed) > NAMED else ""
    return f"; degraded: {len(failed)} of its {copies} partitions have failed here: {named}{more}"


@node.command("list")
@cluster_options
@click.option("--all", "clients", is_flag=True, help="Clients too: processes that use objects and host nothing.")
def list_(options: ClusterOptions, clients: bool) -> None:
    """List the configured and the registered nodes.

    A node is up (it answers), starting (with its phase) or leaving, offline (it answers, and has no quorum in one of
    its zones), silent (registered, but it does not answer) or down (not registered). Its config is the version of the
    configuration that it runs with, or "file". If it must be restarted for another version, that is shown, too. Beside
    that stands the state in which the other nodes see it, and since when (UTC); by name, where they differ. JSON has
    the cause, too.

    \b
    Examples:
      halog node list
      halog node list --all
      halog node list --format json
    """
    import msgspec

    from halog.cli.shared.survey import CLIENT, ask_nodes, node_views

    with options.connect() as connection:
        views = list(node_views(list(connection.config.nodes), connection.nodes, ask_nodes(connection)))
    shown = [v for v in views if clients or v.state != CLIENT]
    document: list[dict[str, Any]] = [msgspec.to_builtins(v) for v in shown]
    rows = [
        (
            v.node,
            v.state,
            v.addresses_text,
            v.pid,
            v.version,
            v.config_text,
            v.session,
            v.active,
            v.replicas,
            v.seen_text,
            v.why,
        )
        for v in shown
    ]
    emit(
        options.format,
        document,
        ["node", "state", "address", "pid", "version", "config", "session", "active for", "replica of", "seen as", ""],
        rows,
    )
