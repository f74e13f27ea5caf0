"""`halog txn list|show|commit|abort` shows and decides transactions over several partitions (D5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.options import number_of
from halog.cli.shared.output import emit, emit_json, emit_table
from halog.errors import NotFoundError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.shared.txn_views import TxnView

ID_BYTES = 16


class Txn(click.ParamType[str]):
    """Takes a transaction id, as `halog txn list` and `halog log tail` show it."""

    name = "txn"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            if len(bytes.fromhex(text)) == ID_BYTES:
                return text.lower()
        except ValueError:
            pass
        return self.fail(f"{text!a} is no transaction id: that is 32 hexadecimal digits", param, ctx)


@click.group()
def txn() -> None:
    """Show which transactions over several partitions are in doubt, and why; decide them.

    They decide themselves: if the initiator died, a transaction is aborted after timing.doubt_timeout_ms, unless it was
    decided.

    \b
    Examples:
      halog txn list
      halog txn show 17a2f3c4d5e6f708a1b2c3d4e5f60718
    """


@txn.command("list")
@click.option("--outcomes", type=number_of(), default=0, metavar="N", help="The last N decisions of each, too.")
@cluster_options
def list_(outcomes: int, options: ClusterOptions) -> None:
    """List transactions that are in doubt: how long, in which partitions, and where each is stuck.

    \b
    Examples:
      halog txn list
      halog txn list --outcomes 20 --format json
    """
    from halog.cli.shared.txn_views import gather, in_doubt

    with options.connect() as connection:
        views, silent = in_doubt(connection)
        told = gather(connection, [], outcomes).by_partition if outcomes else {}
    decided = [
        {"partition": p, "txn": tx.hex(), "outcome": "committed" if commit else "aborted", "lsn": lsn}
        for p, said in told.items()
        for tx, commit, lsn in ([] if said is None else said.decided)
    ]
    if silent:
        say(f"halog: nobody answers for {', '.join(silent)}")
    if options.format == "json":
        shown = {"in_doubt": [_document(v) for v in views], "silent": silent}
        emit_json({**shown, "decided": decided} if outcomes else shown)
        return
    rows = [(v.txn, f"{v.age_s:.1f} s", v.node or "?", v.objects, v.why) for v in views]
    emit_table(("transaction", "age", "begun by", "objects", "where it is stuck"), rows)
    if outcomes:
        click.echo()
        emit_table(("partition", "transaction", "outcome", "lsn"), [tuple(d.values()) for d in decided])


@txn.command("show")
@click.argument("txn_id", metavar="TXN", type=Txn())
@cluster_options
def show_(txn_id: str, options: ClusterOptions) -> None:
    """Show how one transaction stands in each partition that remembers it.

    \b
    Examples:
      halog txn show 17a2f3c4d5e6f708a1b2c3d4e5f60718
    """
    from halog.cli.shared.txn_views import UNSEEN, gather, stands as how

    with options.connect() as connection:
        tx = bytes.fromhex(txn_id)
        said = gather(connection, [tx]).by_partition
        stands = {p: s for p, votes in said.items() if (s := how(votes, tx)) != UNSEEN}
    if not stands:
        raise NotFoundError(f"no partition remembers transaction {txn_id}: it never prepared, or is long over")
    began = datetime.fromtimestamp(int.from_bytes(tx[:8], "big") / 1e9, UTC).isoformat(timespec="milliseconds")
    emit(options.format, {"txn": txn_id, "began": began, "partitions": stands}, ("partition", "state"), stands.items())


@txn.command("abort")
@click.argument("txn_id", metavar="TXN", type=Txn())
@cluster_options
def abort_(txn_id: str, options: ClusterOptions) -> None:
    """Ask the first partition to abort a transaction; refused (exit 5) if it has committed it.

    \b
    Examples:
      halog txn abort 17a2f3c4d5e6f708a1b2c3d4e5f60718
    """
    _decide(txn_id, options, commit=False)


@txn.command("commit")
@click.argument("txn_id", metavar="TXN", type=Txn())
@cluster_options
def commit_(txn_id: str, options: ClusterOptions) -> None:
    """Ask the first partition to commit a transaction that all participants have voted for; else refused (exit 5).

    Its application may have been told that it did not happen, if it gave up before it asked for the decision.

    \b
    Examples:
      halog txn commit 17a2f3c4d5e6f708a1b2c3d4e5f60718
    """
    _decide(txn_id, options, commit=True)


def _decide(txn_id: str, options: ClusterOptions, *, commit: bool) -> None:
    from halog.runtime.rpc import frames

    wanted = "committed" if commit else "aborted"
    with options.connect() as connection:
        found = _found(connection, txn_id)
        if commit:
            _check_votes(found)
        request = frames.Decide(found.first, bytes.fromhex(txn_id), commit, True, tuple(found.participants))
        outcome = connection.ask(found.first, request, frames.OutcomeReply).outcome
    if outcome == "unknown":
        raise UnreachableError(f"{found.first} has not decided transaction {txn_id} yet; try again")
    if outcome != wanted:
        raise RefusedError(f"transaction {txn_id} is {outcome}: that cannot be undone")
    emit(options.format, {"txn": txn_id, "outcome": outcome}, ("transaction", "outcome"), [(txn_id, outcome)])


def _found(connection: ClusterConnection, txn_id: str) -> TxnView:
    from halog.cli.shared.txn_views import in_doubt

    views, silent = in_doubt(connection)
    for found in views:
        if found.txn == txn_id:
            return found
    if silent:
        who = ", ".join(silent)
        raise UnreachableError(f"nobody answers for {who}, and transaction {txn_id} is in doubt in no other partition")
    raise NotFoundError(f"transaction {txn_id} is in doubt nowhere; see `halog txn show {txn_id}`")


def _check_votes(found: TxnView) -> None:
    """Raise RefusedError unless every participant has voted for the same transaction."""
    from halog.cli.shared.txn_views import COMMITTED, IN_DOUBT

    missing = [p for p, s in found.participants.items() if s not in (IN_DOUBT, COMMITTED)]
    if found.state == COMMITTED:
        return
    if missing or len(found.digests) != 1:
        who = ", ".join(missing) or "its participants"
        raise RefusedError(f"{found.txn} cannot be committed: {who} did not vote for it", missing=missing)


def _document(v: TxnView) -> dict[str, object]:
    return {
        "txn": v.txn,
        "age_s": round(v.age_s, 3),
        "node": v.node,
        "first": v.first,
        "state": v.state,
        "participants": v.participants,
        "objects": v.objects,
        "why": v.why,
    }
