"""This module makes errors of the one tree, with their evidence, of the core's results."""

from __future__ import annotations

from halog import errors
from halog.core import results as res
from halog.core.ids import ABSENT
from halog.core.log.provisional import lsn_of
from halog.runtime.rpc import frames


def to_error(result: res.Result, partition: str) -> errors.HalogError:
    """Return the error that says what `result` says. `Happened` has none."""
    match result:
        case res.VersionConflict(key=key, expected=expected, found=found, settled=settled):
            return _conflict(partition, key, expected, found, settled)
        case res.LockConflict() | res.OppositeDecision() | res.StaleMapping():
            return _not_now(partition, result)
        case res.DuplicateKey(key=key):
            return errors.DuplicateKeyError(f"an object with this key exists in {partition}", key=key)
        case res.OversizedRecord():
            return _too_large(result)
        case res.InactiveCopy(active=active, epoch=epoch, elected=elected):
            said = f"{partition} is in epoch {epoch} by now" if epoch else f"this node is not active for {partition}"
            return errors.NotActiveError(said, partition=partition, active=active, epoch=epoch, elected=elected)
        case res.Busy(limit=limit, of=of):
            setting = "limits.max_in_flight" + ("" if of == "commits" else f"_{of}")
            return errors.OverloadedError(
                f"{limit:,} {of} are in flight in {partition} ({setting}); nothing happened; try again later, or raise "
                "the limit",
                limit=limit,
            )
        case res.Shortage():
            return _too_few(partition, result)
        case res.Refusal(why=why):
            return errors.RefusedError(why, partition=partition)
        case res.ExpiredId(horizon=horizon):
            return errors.OutcomeUnknownError(
                f"the transaction id is older than what {partition} remembers",
                partition=partition,
                expired=True,
                horizon=int.from_bytes(horizon, "big"),
            )
        case _:
            why = result.why if isinstance(result, res.Unknown) else f"unexpected result {result!r}"
            return errors.OutcomeUnknownError(f"commit in {partition} unsettled: {why}", partition=partition)


def _too_large(result: res.OversizedRecord) -> errors.RecordTooLargeError:
    size, limit, key = result.size, result.limit, result.key
    if key is not None:
        return errors.RecordTooLargeError(object_too_large("an object", size, limit), size=size, limit=limit, key=key)
    return errors.RecordTooLargeError(
        f"the commit record has {size:,} bytes, the limit is {limit:,} (limits.max_record_bytes); "
        "split the transaction",
        size=size,
        limit=limit,
    )


def object_too_large(name: str, size: int, limit: int) -> str:
    """Return what is said of an object that could not be changed at its size."""
    return (
        f"{name} would have {size:,} bytes, the limit is {limit:,}: the record of a change (limits.max_record_bytes) "
        "must have room for it, and for what it replaces where the policy keeps before-images; nothing was done; make "
        "it smaller"
    )


def _not_now(
    partition: str, result: res.LockConflict | res.OppositeDecision | res.StaleMapping
) -> errors.ConflictError:
    if isinstance(result, res.StaleMapping):
        return errors.RemappedError(
            f"partition {partition} serves mapping version {result.now}; nothing was done; run the transaction again",
            partition=partition,
            mapping=result.now,
            settled_lsn=0,
        )
    if isinstance(result, res.OppositeDecision):
        return errors.ConflictError(
            f"the transaction took too long, and was given up in {partition}; nothing happened; run it again",
            partition=partition,
            given_up=True,
            settled_lsn=0,
        )
    return errors.LockedError(
        f"an object in {partition} is held by transaction {result.tx.hex()}, which is not decided yet; run the "
        "transaction again (`halog txn list`)",
        key=result.key,
        tx=result.tx.hex(),
        settled_lsn=0,
    )


def no_quorum(node: str, why: str) -> errors.ZoneQuorumError:
    """Return the error of a node that is offline; `why` names the zone and what it lacks."""
    return errors.ZoneQuorumError(f"node {node} is offline: {why}; nothing was done", node=node, why=why)


def perhaps_done(partition: str, error: errors.HalogError) -> errors.OutcomeUnknownError:
    """An earlier attempt went out, and the node that is asked now does nothing. Of `error` what was met: behind that
    it says that nothing was done, and to do it again, which is true of the last request alone."""
    met, *_ = error.message.split("; ")
    return errors.OutcomeUnknownError(
        f"commit in {partition} unsettled: it was under way before, and may have happened or may yet; the last request "
        f"of it met: {met}",
        partition=partition,
    )


def closed_meanwhile(partition: str) -> errors.OutcomeUnknownError:
    """An earlier attempt went out, and there will be no other."""
    return errors.OutcomeUnknownError(
        f"commit in {partition} unsettled: the node was closed while it was under way", partition=partition
    )


def clock_behind(error: errors.OutcomeUnknownError) -> errors.ConflictError:
    """A new id refused as expired: it was never sent before, so nothing happened. Ids grow from the horizon on now."""
    return errors.ConflictError(
        f"this node's clock is behind that of others: {error.message}; run the transaction again", settled_lsn=0
    )


def _too_few(partition: str, result: res.Shortage) -> errors.QuorumError:
    have, needed = result.have, result.needed
    if result.of == "sync replicas":
        return errors.ReplicasError(
            f"{partition}: {have} sync replicas are there, {needed} are to flush this transaction; nothing was done; "
            "try again when they are back (`halog partition show`), or ask for fewer",
            partition=partition,
            have=have,
            needed=needed,
        )
    if result.of == "votes":
        names = ", ".join(result.away)
        return errors.SitesError(
            f"{partition}: this site has {have} votes of sites, and needs {needed} to go on (takeover): those of "
            f"{names} are missing; nothing was done; see `halog site list`",
            partition=partition,
            sites=list(result.away),
        )
    if result.of == "sites":
        names = ", ".join(result.away)
        return errors.SitesError(
            f"{partition}: the log of site {names} must have a commit (sync_sites), and nothing arrives there; nothing "
            "was done; see `halog site list`, or say `halog site let-go` to go on without it until it is back",
            partition=partition,
            sites=list(result.away),
        )
    return errors.QuorumError(
        f"{partition}: {have} nodes are there, a commit needs {needed} (quorum); nothing was done",
        partition=partition,
        have=have,
        needed=needed,
    )


def _conflict(partition: str, key: bytes, expected: int, found: int, settled: int) -> errors.ConflictError:
    was = "absent" if expected == ABSENT else f"version {lsn_of(expected)}"
    now = "absent" if found == ABSENT else f"version {lsn_of(found)}"
    return errors.ConflictError(
        f"an object in {partition} was read as {was} and is now {now}; run the transaction again",
        key=key,
        expected=expected,
        found=found,
        settled_lsn=settled,
    )


def settled(result: res.Result) -> frames.Reply:
    """Return the reply that says what became of a transaction."""
    match result:
        case res.Success(lsn=lsn):
            return frames.OutcomeReply("happened", lsn)
        case res.Abort():
            return frames.OutcomeReply("did not happen", 0)
        case res.ExpiredId():
            return frames.OutcomeReply("expired", 0)
        case _:
            return frames.OutcomeReply("unknown", 0)
