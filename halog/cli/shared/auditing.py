"""This module writes into the audit what commands change of a cluster, however they end (O4, Q5).

The theory: whatever command reaches a cluster comes by `connect`, and whatever command ends comes by the group `halog`.
So no command need do anything for it. One that is named nowhere here counts as one that changes something. Its entry is
what it says of itself; ZooKeeper's and Kafka's access lists guard what it may do. What is done is done, whether or not
the audit takes it; if it does not, the command says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from halog.cli.shared.messages import say
from halog.errors import AvailabilityError, HalogError, NothingToDoError
from halog.signals import INTERRUPTED

if TYPE_CHECKING:
    from halog.audit import AuditEntry
    from halog.cli.shared.connection import ClusterConnection

READING: Final = frozenset(
    {
        "audit",
        "certs check",
        "certs list",
        "certs rotate-ca status",
        "config check",
        "config diff",
        "config history",
        "config show",
        "conflicts export",
        "conflicts list",
        "conflicts show",
        "doctor",
        "events",
        "export",
        "get",
        "history",
        "list",
        "log holds",
        "log tail",
        "mapper explain",
        "mapper list",
        "node list",
        "partition lag",
        "partition list",
        "partition show",
        "plan list",
        "plan show",
        "plan status",
        "rebalance status",
        "safe-to-stop",
        "site lag",
        "site list",
        "site metrics",
        "status",
        "txn list",
        "txn show",
        "type list",
        "upgrade can-rollback",
        "upgrade plan",
        "upgrade status",
        "version",
        "zone list",
        "zone show",
    }
)
"""Commands that change nothing of a cluster."""

LOOKS_WITHOUT: Final = {"acl kafka": "applies", "acl zookeeper": "applies", "zone quorum": "off"}
"""Commands that only look where this option is not given."""

NOT_TOLD: Final = frozenset({"config_path", "format_", "timeout_s"})
"""Options that say how a command is given, not what it does."""

HIDDEN: Final = frozenset({"fields", "hook"})
"""Arguments that may hold contents of objects, or whatever a script needs. It is told that they were given."""

_REFUSED: Final = (2, 5, 7, 8)
_DONE: Final = (0, 4)
_KEY: Final = "halog.audit"


class Ending(NamedTuple):
    """Says how a command ended."""

    outcome: str
    exit_code: int
    reason: str = ""


class AuditedCommand:
    """An `AuditedCommand` is one call of the command line. It has an entry once it has reached a cluster."""

    def __init__(self) -> None:
        self._connection: ClusterConnection | None = None
        self._command = ""
        self._arguments: dict[str, Any] = {}

    def reached(self, ctx: click.Context, connection: ClusterConnection) -> None:
        """Note that the command reaches a cluster. The last one counts, if there are several."""
        command = _words(ctx)
        if command in READING or not ctx.params.get(LOOKS_WITHOUT.get(command, ""), True):
            return
        self._connection, self._command, self._arguments = connection, command, _arguments(ctx)

    def ended(self, error: BaseException | None) -> None:
        """Write the entry, if there is one to write. A command that ends because servers are away, or the cluster is
        none, says that itself."""
        if self._connection is None:
            return
        try:
            why = _written(self._connection, self._entry(self._connection, _ending(error)))
        except Exception as wrong:  # the command is done, and its result stands
            why = f"{type(wrong).__name__}: {wrong}"
        if why and not (isinstance(error, AvailabilityError) and error.exit_code == AvailabilityError.exit_code):
            say(f"the audit does not have this command: {why}")

    def _entry(self, connection: ClusterConnection, ending: Ending) -> AuditEntry:
        from halog.audit import COMMAND, AuditEntry
        from halog.config.security import ROLES
        from halog.metadata.identity import who

        config, by, now_ns = connection.config, who(), time.time_ns()
        shown = connection.adapters.channel.principal
        role = "" if shown is None else ROLES[-1] if shown.kind == "node" else config.security.roles.get(shown.name, "")
        return AuditEntry(
            id=f"{connection.name}/audit/{now_ns}",
            time_ms=now_ns // 1_000_000,
            cluster=config.cluster.name,
            by=connection.name,
            kind=COMMAND,
            principal=by if shown is None else str(shown),
            proven=False,
            role=role,
            process=connection.name,
            address=by,
            command=self._command,
            outcome=ending.outcome,
            arguments=self._arguments,
            dry_run=bool(self._arguments.get("dry_run")),
            exit_code=ending.exit_code,
            reason=ending.reason,
        )


def _written(connection: ClusterConnection, entry: AuditEntry) -> str:
    """Write an entry. Return why the audit does not have it; "": it does."""
    from halog.ports import TopicPartition
    from halog.runtime.topics.topic_names import audit_topic

    topic = TopicPartition(audit_topic(connection.config.cluster.name), 0)
    with closing(connection.adapters.log.journal(topic)) as journal:
        noted = journal.note([entry.to_bytes()])
    return f"topic {topic.topic} does not take it" if noted.left or noted.refused else ""


@contextmanager
def audited(ctx: click.Context) -> Iterator[None]:
    """Have a call of the command line audited, if it changes something of a cluster."""
    call = ctx.meta[_KEY] = AuditedCommand()
    try:
        yield
    except BaseException as error:
        call.ended(error)
        raise
    call.ended(None)


def reached(connection: ClusterConnection) -> None:
    """Note that the command which runs has reached a cluster."""
    ctx = click.get_current_context(silent=True)
    call = None if ctx is None else ctx.meta.get(_KEY)
    if ctx is not None and call is not None:
        call.reached(ctx, connection)


def _ending(error: BaseException | None) -> Ending:
    from halog.audit import DONE, FAILED

    if error is None:
        return Ending(DONE, 0)
    if isinstance(error, click.exceptions.Exit):
        return _by_code(error.exit_code, "")
    if isinstance(error, NothingToDoError):
        return Ending(DONE, error.exit_code, error.message)
    if isinstance(error, HalogError):
        return _by_code(error.exit_code, error.message)
    if isinstance(error, click.ClickException):
        return _by_code(error.exit_code, error.format_message())
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return Ending(FAILED, INTERRUPTED, "interrupted")
    if isinstance(error, BrokenPipeError):  # nobody reads what the command says; what it did is done
        return Ending(DONE, 0)
    return Ending(FAILED, 1, f"{type(error).__name__}: {error}")


def _by_code(code: int, reason: str) -> Ending:
    from halog.audit import DONE, FAILED, REFUSED

    return Ending(DONE if code in _DONE else REFUSED if code in _REFUSED else FAILED, code, reason)


def _words(ctx: click.Context) -> str:
    """Return the words of a command, without `halog` and without its arguments."""
    words: list[str] = []
    at: click.Context | None = ctx
    while at is not None and at.parent is not None:
        words.append(at.info_name or "")
        at = at.parent
    return " ".join(reversed(words))


def _arguments(ctx: click.Context) -> dict[str, Any]:
    """Return the arguments and options that were given."""
    given: Mapping[str, Any] = {
        name: value
        for name, value in ctx.params.items()
        if name not in NOT_TOLD and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    return {name: "given" if name in HIDDEN else value for name, value in given.items()}
