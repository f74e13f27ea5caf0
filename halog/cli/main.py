"""The command `halog` is the group of all commands. This module turns an error into one line on stderr and an exit
code.

A command is imported when it is called or helped with; `halog --help` imports none. Exit codes: 0 ok, 1 failed, 2
usage, 3 unreachable, 4 degraded, 5 refused as unsafe, 6 timeout, 7 another version, 8 not allowed
(`HalogError.exit_code`), 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from halog.cli.shared.auditing import audited
from halog.cli.shared.messages import say
from halog.cli.shared.output import emit_nothing
from halog.errors import HalogError, NothingToDoError
from halog.release import RELEASE
from halog.signals import INTERRUPTED, interrupt_the_work, relay

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""A write to stdout that fails with one of these is nobody's mistake here. A write to a file that has a name is told by
the command itself."""

# To add a command: its name, "module:attribute", and the line `halog --help` shows.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("halog.cli.cluster.embedded:up", "Start an embedded Kafka and ZooKeeper and leave them running."),
    "down": ("halog.cli.cluster.embedded:down", "Stop the embedded Kafka and ZooKeeper."),
    "demo": ("halog.cli.cluster.demo:demo", "Replay real flights while nodes are killed; check that nothing is lost."),
    "config": ("halog.cli.cluster.config:config", "Check, compare and activate the configuration; see what is active."),
    "doctor": (
        "halog.cli.cluster.doctor:doctor",
        "Check what halog needs: Java, jars, disk, servers and their settings.",
    ),
    "node": ("halog.cli.cluster.node:node", "Run a hosting node; list the nodes."),
    "status": ("halog.cli.cluster.status:status", "Say whether the cluster is well: nodes, partitions, replicas, lag."),
    "partition": (
        "halog.cli.partition.define:partition",
        "Show where partitions live and how far copies are; move them.",
    ),
    "zone": ("halog.cli.cluster.zone:zone", "Show which nodes give each other a quorum, and whether they have it."),
    "site": ("halog.cli.sites.group:site", "Show which site serves what and how far mirrors are; take over."),
    "conflicts": (
        "halog.cli.merge.settle:conflicts",
        "Show what contradicts after two sites have both gone on; settle it.",
    ),
    "restore": ("halog.cli.merge.restore:restore", "Make one history of what two sites did by themselves; undo that."),
    "mapper": (
        "halog.cli.partition.mapper:mapper",
        "Say which partition a key belongs to and why, and how evenly keys spread.",
    ),
    "get": ("halog.cli.objects.get:get", "Show one object, by type and key."),
    "type": (
        "halog.cli.objects.type_:type_",
        "List the definitions of types; take one back that no object uses.",
    ),
    "list": ("halog.cli.objects.list_:list_", "List the objects of a type."),
    "delete": ("halog.cli.objects.delete:delete", "Delete one object, also one that cannot be read."),
    "log": ("halog.cli.log.holds:log", "Show a partition's log, decoded and judged; keep it from being trimmed."),
    "txn": (
        "halog.cli.log.txn:txn",
        "Show which transactions over several partitions are in doubt, and why; decide them.",
    ),
    "events": ("halog.cli.log.events:events", "Show what happened in the cluster, and because of what."),
    "audit": ("halog.cli.log.audit:audit", "Show who asked for what, and what came of it."),
    "history": (
        "halog.cli.log.history:history",
        "Show who was active for a partition, when and why, and what was discarded.",
    ),
    "export": ("halog.cli.objects.export:export", "Write objects to a file of JSON lines."),
    "import": ("halog.cli.objects.import_:import_", "Create the objects of an exported file."),
    "failover": ("halog.cli.partition.failover:failover", "Make another node active for a partition, without loss."),
    "plan": (
        "halog.cli.partition.plan_rollback:plan",
        "Spread partitions evenly over the nodes: plan it, look, do it, undo it.",
    ),
    "rebalance": (
        "halog.cli.partition.rebalance:rebalance",
        "Change where keys belong, and move the objects under traffic.",
    ),
    "drain": ("halog.cli.partition.drain:drain", "Move every copy off a node, under traffic."),
    "safe-to-stop": (
        "halog.cli.partition.safe_to_stop:safe_to_stop",
        "Prove that nodes may stop without stopping a partition.",
    ),
    "upgrade": (
        "halog.cli.upgrade.commands:upgrade",
        "Bring the nodes to another release, one after the other, or back; raise the level.",
    ),
    "certs": (
        "halog.cli.certs.commands:certs",
        "Make and check certificates, renew them, replace the authority that signs them.",
    ),
    "acl": ("halog.cli.acl.commands:acl", "Say who may use Kafka and ZooKeeper, and see to it."),
    "recover": (
        "halog.cli.cluster.recover:recover",
        "Make ZooKeeper's tables anew from the logs, after it lost its data.",
    ),
    "version": ("halog.cli.cluster.version:version", "Print the versions of halog and of what it runs on."),
}


class _ReaderGone(Exception):
    """The reader of our output has closed it. This is no OSError: for one, click would end the process with 1."""


class LazyGroup(click.Group):
    """Knows its commands by name and imports one at a time."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _enough():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _enough(), audited(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@contextmanager
def _enough() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


def _debug(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        os.environ["HALOG_DEBUG"] = "1"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(RELEASE, message="halog %(version)s", help="Print halog's version.")
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=_debug, help="Show where an error came from (HALOG_DEBUG=1)."
)
def cli() -> None:
    """halog keeps a Python application's objects alive: partitions replicated through Kafka, failover within a blink.

    \b
    Examples:
      halog up                     a Kafka and a ZooKeeper on this machine
      halog doctor                 is everything there?
      halog COMMAND --help         more, with examples
    """


def main(args: list[str] | None = None, around: object = None) -> int:
    """Run a command line and return the exit code. (The installed script passes it to sys.exit.)

    `around`: the `Surroundings` of the command; by default this machine's. Without arguments it is the process's own
    command line. Then the process is halog's: no signal is lost.
    """
    if args is None:
        _open_standard_files()
        relay()
    try:
        return _run(args, around)
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        return _fault(e)


def _run(args: list[str] | None, around: object) -> int:
    """Run the command, and tell its errors. An exception comes out only if stdout takes nothing more, or if nobody
    expected it."""
    heard: list[int] = []
    try:
        with interrupt_the_work() as heard:
            result = cli.main(args=args, prog_name="halog", standalone_mode=False, obj=around)
        return result if isinstance(result, int) else 0
    except click.ClickException as e:
        with suppress(OSError):  # stderr may take nothing
            e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return INTERRUPTED
    except NothingToDoError as e:
        emit_nothing()
        _complain(e.message)
        return e.exit_code
    except HalogError as e:
        if os.environ.get("HALOG_DEBUG"):
            traceback.print_exc()
        _complain(e.message)
        return e.exit_code
    except Exception:
        if not heard:
            raise
        _complain("interrupted")
        return INTERRUPTED


def _open_standard_files() -> None:
    """Open the standard files that the process was started without. Else a connection would get the number of one, and
    what is said there would go over that connection."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(opened, True)  # a process that this one starts has it, too
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _fault(error: Exception) -> int:
    """Tell of an error that nobody expected, or of a stdout that takes nothing more."""
    if os.environ.get("HALOG_DEBUG"):
        raise error
    if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
        _complain(f"what the command says cannot be written: {error.strerror}")
        return 1
    _complain(f"{type(error).__name__}: {error} (this is a bug in halog; HALOG_DEBUG=1 shows where)")
    return 1


def _complain(text: str) -> None:
    say(f"halog: {' '.join(text.split())}")


if __name__ == "__main__":
    sys.exit(main())
