"""A commit that met several nodes: what may be in the log is never said not to have happened (R5)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from halog.backend import Work
from halog.core import results as res
from halog.errors import (
    FrameError,
    HalogError,
    LockedError,
    NotActiveError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    QuorumError,
    RecordTooLargeError,
    VersionMismatchError,
)
from halog.runtime.client.commits import Commits, says_nothing
from halog.runtime.replica.delivery_reports import DeliveryReports
from halog.runtime.rpc import frames
from halog.runtime.rpc.frame_limit import too_large
from halog.runtime.rpc.request import OpenCommit
from tests.unit.core.kit import epoch
from tests.unit.interrupts import interrupted_at

pytestmark = pytest.mark.feature("R5", "D1")

WORK = Work((), ())


def core_of(led: int) -> SimpleNamespace:
    """That has read epoch `led` in its log."""
    return SimpleNamespace(state=SimpleNamespace(chain=SimpleNamespace(state=SimpleNamespace(epoch=epoch(led)))))


class Node:
    """An asker whose own copy is active for the first rounds, and then nobody is."""

    closed = False
    core = core_of(1)

    def __init__(self, *rounds: res.Result) -> None:
        self.rounds = list(rounds)
        self.router: Any = self

    def check_open(self) -> None:
        pass

    def check_level(self) -> None:
        """It is known."""

    def missing(self, partition: str) -> str:
        """No server is."""
        return ""

    def call_of(self, partition: str) -> float:
        return 5.0

    def locked_of(self, partition: str) -> float:
        return 0.1

    def serving(self, partition: str) -> Any:
        return self if self.rounds else None

    name = "p"

    def epoch(self, partition: str) -> int:
        return 1

    def submit(self, tx: bytes, work: Work, answer: Callable[[res.Result], None], epoch: int) -> int:
        answer(self.rounds.pop(0))
        return 0

    def ask(self, partition: str, frame: object, until: float, open_: OpenCommit) -> None:
        raise PartitionUnavailableError("no node is active", partition=partition)


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        ((), PartitionUnavailableError),
        ((res.InactiveCopy(None),), PartitionUnavailableError),
        ((res.Unknown("its epoch ended"),), OutcomeUnknownError),
        ((res.Unknown("its epoch ended"), res.InactiveCopy(None)), OutcomeUnknownError),
    ],
)
def test_what_may_be_in_the_log_is_unknown_whatever_comes_next(
    rounds: tuple[res.Result, ...], told: type[HalogError]
) -> None:
    node: Any = Node(*rounds)
    commits = Commits(node, 7, lambda partition: False)
    with pytest.raises(told) as caught:
        commits.commit("p", commits.new_id(), WORK)
    assert not isinstance(caught.value, NotActiveError)


class Outdated(Node):
    """It does not know the cluster's level."""

    def check_level(self) -> None:
        raise VersionMismatchError("a higher level")


@pytest.mark.feature("U1")
def test_a_commit_is_begun_at_no_level_that_is_not_known_and_settled_at_any() -> None:
    node: Any = Outdated()
    commits = Commits(node, 7, lambda partition: False)
    new, begun = commits.new_id(), commits.new_id()
    commits.sent(begun)
    with pytest.raises(VersionMismatchError):
        commits.commit("p", new, WORK)
    assert commits.unsent(new)
    with pytest.raises(OutcomeUnknownError):
        commits.commit("p", begun, WORK)


class Outsized(Node):
    """Once nobody is active here, the commit fits no frame."""

    def __init__(self, *rounds: res.Result, **evidence: Any) -> None:
        super().__init__(*rounds)
        self.evidence = evidence

    def ask(self, partition: str, frame: Any, until: float, open_: OpenCommit) -> None:
        raise too_large(frame, FrameError("a frame", size=9, limit=8, sent=False, **self.evidence))


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (Outsized(), RecordTooLargeError),
        (Outsized(res.InactiveCopy(None)), RecordTooLargeError),
        (Outsized(res.Unknown("its epoch ended")), OutcomeUnknownError),
        (Outsized(asked_before=True), OutcomeUnknownError),
        (Outsized(may_arrive=True), OutcomeUnknownError),
    ],
)
def test_a_request_that_was_not_sent_says_nothing_of_one_that_was(node: Any, told: type[HalogError]) -> None:
    """Its own node takes a commit that no frame would; then that is active no more."""
    commits = Commits(node, 7, lambda partition: False)
    with pytest.raises(told):
        commits.commit("p", commits.new_id(), WORK)


@pytest.mark.parametrize("evidence", [{}, {"asked_before": True}, {"may_arrive": True}])
def test_a_tool_that_could_not_send_it_again_does_not_know_either(evidence: dict[str, bool]) -> None:
    error = too_large(frames.Submit("p", b"tx", WORK), FrameError("a frame", size=9, limit=8, sent=False, **evidence))
    assert isinstance(error, RecordTooLargeError)
    assert says_nothing(error) is bool(evidence)


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (frames.Submit("p", b"tx", WORK), "Submit"),
        (frames.PrepareRequest("p", b"tx", "p", ("p", "q"), b"", WORK), "Prepare"),
        (frames.Fetch("p", [b"key"], 0), "Fetch"),
    ],
)
def test_the_evidence_names_a_frame_as_the_wire_does(frame: frames.Request, name: str) -> None:
    """Programs go by this name: it stays when the class is renamed."""
    error = too_large(frame, FrameError("a frame", size=9, limit=8, sent=False))
    assert error.evidence["frame"] == name


@pytest.mark.parametrize("frame", [frames.Fetch("p", [b"k" * 17], 0), frames.LeasedFetch("p", [b"k" * 17])])
def test_a_read_of_a_key_that_fits_no_frame_says_that_no_object_has_it(
    frame: frames.Fetch | frames.LeasedFetch,
) -> None:
    error = too_large(frame, FrameError("a frame", size=19, limit=16, sent=False))
    assert isinstance(error, RecordTooLargeError)
    assert "a key of 17 bytes in partition p" in str(error)
    assert "there is no object with this key, since no record takes it" in str(error)


def test_what_fits_no_frame_is_named_as_on_the_wire() -> None:
    frame = frames.PrepareRequest("p", b"tx", "p", ("p", "q"), b"", WORK)
    error = too_large(frame, FrameError("a frame", size=19, limit=16, sent=False))
    assert error.evidence["frame"] == "Prepare"


def test_what_was_begun_without_waiting_and_fits_no_frame_later_is_unknown() -> None:
    node: Any = Outsized(res.Unknown("its epoch ended"))
    commits = Commits(node, 7, lambda partition: False, DeliveryReports(lambda: node, list))
    node.answers_early = lambda durability: False
    tx = commits.new_id()
    assert commits.begin("p", tx, WORK, lambda lsn: False)
    with pytest.raises(OutcomeUnknownError):
        commits.commit("p", tx, WORK)


class Comes(Node):
    """Another node leaves a request unanswered, in epoch 1, and meets a lock; then this one's own copy refuses it."""

    def __init__(self, led: int) -> None:
        super().__init__()
        self.core = core_of(led)

    def ask(self, partition: str, frame: object, until: float, open_: OpenCommit) -> None:
        open_.unanswered("", 1)
        self.rounds.append(res.Shortage(1, 2))
        raise LockedError("an object is held", may_arrive=True)


@pytest.mark.parametrize(("led", "told"), [(1, OutcomeUnknownError), (2, QuorumError)])
def test_its_own_copy_is_believed_in_a_later_epoch_than_that_of_a_late_request(
    led: int, told: type[HalogError]
) -> None:
    node: Any = Comes(led)
    commits = Commits(node, 7, lambda partition: False)
    with pytest.raises(told):
        commits.commit("p", commits.new_id(), WORK)


def test_what_was_begun_without_waiting_is_unknown_too() -> None:
    """An event loop's commit: begun here, then nobody is active. A site that only mirrors says so at once."""
    node: Any = Node(res.Unknown("its epoch ended"))
    commits = Commits(node, 7, lambda partition: False, DeliveryReports(lambda: node, list))
    node.answers_early = lambda durability: False
    tx, told = commits.new_id(), []
    assert commits.begin("p", tx, WORK, lambda lsn: bool(told.append(lsn)))
    assert told == [None]
    with pytest.raises(OutcomeUnknownError):
        commits.commit("p", tx, WORK)


class Interrupted(BaseException):
    """As Ctrl-C is."""


@pytest.mark.parametrize("begun", [True, False])
def test_what_was_begun_is_never_taken_for_unsent_wherever_its_commit_is_interrupted(begun: bool) -> None:
    """It may be in the log. What was not is unsent until it is presented."""
    lines, unsent = 0, set()
    while True:
        commits, tx = _given(begun)
        try:
            with interrupted_at(lines, Interrupted, Commits.__module__):
                commits.commit("p", tx, WORK)
        except Interrupted:
            unsent.add(commits.unsent(tx))
        except (OutcomeUnknownError, PartitionUnavailableError):
            break
        lines += 1
        assert lines < 500
    assert unsent == ({False} if begun else {True, False})


def _given(begun: bool) -> tuple[Commits, bytes]:
    node: Any = Node(res.Unknown("its epoch ended"))
    commits = Commits(node, 7, lambda partition: False, DeliveryReports(lambda: node, list))
    node.answers_early = lambda durability: False
    tx = commits.new_id()
    assert not begun or commits.begin("p", tx, WORK, lambda lsn: False)
    return commits, tx
