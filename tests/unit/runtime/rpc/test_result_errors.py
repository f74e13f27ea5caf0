"""What the core's results say as errors: of a commit whose outcome is unknown nothing that contradicts it (R5)."""

from __future__ import annotations

import re

import pytest

from halog.core import results as res
from halog.errors import HalogError, OutcomeUnknownError
from halog.runtime.rpc.remote_sites import mirrored
from halog.runtime.rpc.request import switched
from halog.runtime.rpc.result_errors import no_quorum, perhaps_done, to_error

pytestmark = pytest.mark.feature("R5")

REFUSALS: list[tuple[HalogError, str]] = [
    (to_error(res.Busy(64), "p"), "64 commits are in flight in p (limits.max_in_flight)"),
    (to_error(res.Shortage(1, 2), "p"), "p: 1 nodes are there, a commit needs 2 (quorum)"),
    (
        to_error(res.Shortage(0, 1, "sync replicas"), "p"),
        "p: 0 sync replicas are there, 1 are to flush this transaction",
    ),
    (to_error(res.StaleMapping(3), "p"), "partition p serves mapping version 3"),
    (to_error(res.OppositeDecision(0), "p"), "the transaction took too long, and was given up in p"),
    (to_error(res.LockConflict(b"k", b"t"), "p"), "an object in p is held by transaction 74, which is not decided yet"),
    (to_error(res.VersionConflict(b"k", 1, 2), "p"), "an object in p was read as version 1 and is now version 2"),
    (to_error(res.Refusal("p is disabled on A"), "p"), "p is disabled on A"),
    (no_quorum("A", "zone home: 1 of 3"), "node A is offline: zone home: 1 of 3"),
    (mirrored("p", "west"), "partition p is served by site west, and only mirrored here"),
    (
        switched("p", "east", "west"),
        "partition p was served by site east when the transaction began, and is by site west",
    ),
]


@pytest.mark.parametrize(("refusal", "met"), REFUSALS, ids=[type(e).__name__ for e, _ in REFUSALS])
def test_what_is_unknown_is_not_said_to_have_done_nothing_nor_to_be_run_again(refusal: HalogError, met: str) -> None:
    """It would be done twice. What stands in the way now is named."""
    unknown = perhaps_done("p", refusal)
    assert isinstance(unknown, OutcomeUnknownError)
    assert unknown.message == (
        "commit in p unsettled: it was under way before, and may have happened or may yet; the last request of it met: "
        f"{met}"
    )
    assert not re.search(r"nothing (was done|happened)|again", unknown.message)
