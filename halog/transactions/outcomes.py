"""This module asks what became of a transaction whose caller got no answer (R4, R5, T7). The partition that decides has
the last word.

A transaction that ended with an answer is settled without asking any node. Else the transaction, or the error that said
"unknown", names the partition, the epoch and the participants to ask by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from halog.backend import Backend, Outcome
from halog.errors import HalogError, NoTransactionError, OutcomeUnknownError

if TYPE_CHECKING:
    from halog.transactions.commit import CommitRequest

_ENDED: Final[dict[str, Outcome]] = {"committed": "happened", "rolled back": "did not happen"}


class UnknownOutcome(NamedTuple):
    """Holds what is needed to ask for an outcome."""

    partition: str
    """The partition that decides."""
    epoch: int | None
    """The highest epoch that a request was sent for; None: not known, since the caller was interrupted."""
    participants: tuple[str, ...]


def unsettled(presented: CommitRequest) -> UnknownOutcome:
    """Return how to ask for the outcome of a commit that was interrupted."""
    return UnknownOutcome(presented.partition, None, () if presented.works is None else tuple(sorted(presented.works)))


def told_by(evidence: dict[str, Any]) -> UnknownOutcome | None:
    """Return how to ask, by an error's evidence; None if the error is not about a commit."""
    partition, epoch, participants = (evidence.get(n) for n in ("partition", "epoch", "participants"))
    if not isinstance(partition, str) or not isinstance(epoch, int):
        return None
    return UnknownOutcome(partition, epoch, tuple(participants or ()))


def outcome(backend: Backend, of: Any) -> Outcome:
    """See `Node.outcome`."""
    if isinstance(of, HalogError) and of.happened is not None:
        return "happened" if of.happened else "did not happen"
    if isinstance(of, OutcomeUnknownError):
        tx, asked = of.evidence.get("tx"), told_by(of.evidence)
        if not isinstance(tx, str) or asked is None:
            raise NoTransactionError("this error names no transaction: what it is about was no commit")
        return _ask(backend, bytes.fromhex(tx), asked)
    if not hasattr(of, "unsettled"):
        raise TypeError(f"outcome() takes a transaction, or the error that its commit raised, not {type(of).__name__}")
    if (said := _ENDED.get(of.outcome)) is not None:
        return said
    if of.id is None or of.unsettled is None:
        raise NoTransactionError(f"this transaction has no outcome yet: it is {of.outcome}")
    said = _ask(backend, of.id, of.unsettled)
    of.settled_as(said)
    return said


def _ask(backend: Backend, tx: bytes, asked: UnknownOutcome) -> Outcome:
    """Ask the partition that decides. If the epoch is not known, ask under a higher one than any request was sent
    for."""
    epoch = backend.epoch_of(asked.partition) + 1 if asked.epoch is None else asked.epoch
    return backend.outcome(asked.partition, tx, epoch, asked.participants)
