"""`halog txn list|show|commit|abort`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halog.runtime.rpc import frames
from halog.transactions import commit as commits
from tests.unit.cli.conftest import wait_until

pytestmark = pytest.mark.feature("O1", "D5")


def half_done(cluster: Any, *, skip: int = 0) -> tuple[str, tuple[str, ...]]:
    """An initiator that asked all but `skip` participants for their votes, and died."""
    node = cluster.nodes["A"]
    tx = node.transaction()
    tx.begin()
    homes: dict[str, str] = {}
    stamp = time.monotonic_ns()
    for n in range(99):
        obj = cluster.Aircraft(f"N{stamp}-{n}")
        home = cluster.partition_of(obj)
        if home not in homes and len(homes) < 3:
            homes[home] = obj.tail
            tx.create(obj)
    presented = commits.prepare(tx)
    assert presented is not None
    assert presented.works is not None
    parts = tuple(sorted(presented.works))
    for part in parts[: len(parts) - skip]:
        vote = frames.PrepareRequest(part, tx.id, parts[0], parts, b"digest", presented.works[part])
        node.runtime.ballots.prepare(vote, time.monotonic() + 5)
    return tx.id.hex(), parts


def listed(halog: Any, txn: str) -> Any:
    said = halog("txn", "list", "--format", "json").json
    return next((d for d in said["in_doubt"] if d["txn"] == txn), None)


def test_what_is_in_doubt_is_listed_with_where_it_is_stuck(cluster: Any, halog: Any) -> None:
    txn, parts = half_done(cluster, skip=1)
    one = listed(halog, txn)
    assert one["participants"] == {parts[0]: "in doubt", parts[1]: "in doubt", parts[2]: "nothing"}
    assert (one["first"], one["node"], one["objects"]) == (parts[0], "A", 2)
    assert one["why"] == f"not voted, as far as is known: {parts[2]}"
    assert 0 <= one["age_s"] < 60
    shown = halog("txn", "list").out
    assert txn in shown
    refused = halog("txn", "commit", txn)
    assert refused.code == 5
    assert f"{parts[2]} did not vote" in refused.err
    assert halog("txn", "abort", txn, "--format", "json").json == {"txn": txn, "outcome": "aborted"}
    wait_until(lambda: listed(halog, txn) is None)
    said = halog("txn", "show", txn, "--format", "json").json
    assert said["partitions"][parts[0]] == "aborted"
    outcomes = halog("txn", "list", "--outcomes", "5", "--format", "json").json["decided"]
    assert {"partition": parts[0], "txn": txn, "outcome": "aborted"}.items() <= next(
        d for d in outcomes if d["txn"] == txn and d["partition"] == parts[0]
    ).items()


def test_what_all_have_voted_for_may_be_committed_and_then_not_aborted(cluster: Any, halog: Any) -> None:
    txn, parts = half_done(cluster)
    assert listed(halog, txn)["why"] == f"all have voted, and {parts[0]} has not decided"
    assert halog("txn", "commit", txn, "--format", "json").json["outcome"] == "committed"
    wait_until(lambda: listed(halog, txn) is None)
    assert halog("txn", "show", txn, "--format", "json").json["partitions"] == dict.fromkeys(parts, "committed")
    over = halog("txn", "abort", txn)
    assert over.code == 2
    assert "in doubt nowhere" in over.err


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        (("show", "xyz"), 2, "no transaction id"),
        (("show", "00" * 16), 2, "no partition remembers"),
        (("abort", "00" * 16), 2, "in doubt nowhere"),
        (("commit", "00" * 16), 2, "in doubt nowhere"),
    ],
)
def test_what_makes_no_sense_is_one_line(cluster: Any, halog: Any, said: tuple[str, ...], code: int, why: str) -> None:
    ran = halog("txn", *said)
    assert (ran.code, ran.out) == (code, "")
    assert why in ran.err


@pytest.mark.parametrize("command", ["abort", "commit"])
def test_where_nobody_answers_it_is_not_said_to_be_in_doubt_nowhere(cluster: Any, halog: Any, command: str) -> None:
    for name in "ABC":
        cluster.stop(name)
    ran = halog("txn", command, "00" * 16, "--timeout", "1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1), ran
    assert "nobody answers for p-0" in ran.err
    assert "nowhere" not in ran.err
