"""The writer's conflict check where one transaction changes a key more than once."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId
from halog.core.log.chain import Chain, ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.core.settings import Settings

OLD, NEW = b"o" * 24, b"n" * 24


def judge(*changes: Change, found: int = 7) -> res.Result | None:
    """What the writer says of a transaction on key k, which has version `found`; None: appended."""
    state = ChainState(b"x" * 16, "s", EpochId(1, "s", 0), opened=True, led=1)
    writer = Writer(Chain(state), Outcomes(), Settings(), 0, 0)
    out: list[fx.Effect] = []
    writer.submit(ev.Submitted(0, b"t" * 16, (), changes, {b"k": found} if found > 0 else {}), 0, out)
    if isinstance(out[0], fx.Append):
        assert writer.overlay == {b"k": 1 if changes[-1].value is not None else -1}
        return None
    assert isinstance(out[0], fx.Reply)
    return out[0].result


def change(op: int, ref: bytes, replaced: int) -> Change:
    return Change(op, ref, b"k", None if op == DELETE else b"v", replaced)


@pytest.mark.feature("D1")
def test_delete_then_create_of_one_key_is_accepted() -> None:
    """The create is judged by what the delete leaves, not by what was there before."""
    assert judge(change(DELETE, OLD, 7), change(CREATE, NEW, -1)) is None


def test_the_delete_is_still_judged_by_the_version_before() -> None:
    assert judge(change(DELETE, OLD, 6), change(CREATE, NEW, -1)) == res.VersionConflict(b"k", 6, 7)


def test_two_creates_of_one_key_are_a_duplicate() -> None:
    assert judge(change(CREATE, NEW, -1), change(CREATE, OLD, -1), found=-1) == res.DuplicateKey(b"k")


def test_a_change_of_what_this_transaction_has_changed_already_conflicts() -> None:
    assert isinstance(judge(change(UPDATE, OLD, 7), change(UPDATE, OLD, 7)), res.VersionConflict)
    assert isinstance(judge(change(DELETE, OLD, 7), change(UPDATE, OLD, 7)), res.VersionConflict)
