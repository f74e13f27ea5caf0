"""Copies are compared at an lsn that both know, and the one that differs is named (U1)."""

from __future__ import annotations

import pytest

from halog.cli.cluster.doctor_copies import findings
from halog.cli.shared.copy_hashes import CopyDifference, compared
from halog.errors import HalogError, UnreachableError
from halog.runtime.rpc.frames import StateHashesReply

pytestmark = pytest.mark.feature("U1")


def copy(lsn: int, hash_: bytes, scanned: bytes = b"", **marks: bytes) -> StateHashesReply:
    return StateHashesReply(lsn, hash_, tuple((int(at[1:]), h) for at, h in marks.items()), scanned)


def rows(*said: tuple[str, StateHashesReply | HalogError], deep: bool = False) -> list[tuple[str, str, str]]:
    return [(f.result, f.detail, f.advice) for f in findings([compared("p-3", dict(said))], deep=deep)]


def test_copies_under_traffic_are_compared_at_the_highest_lsn_that_both_remember() -> None:
    active = copy(200, b"now", m64=b"one", m128=b"two", m192=b"three")
    assert compared("p", {"A": active, "B": copy(195, b"else", m64=b"one", m128=b"two", m192=b"three")}).equal
    behind = copy(130, b"else", m64=b"one", m128=b"other")
    assert compared("p", {"A": active, "B": behind}).differing == (CopyDifference("B", "A", 128),)
    assert compared("p", {"A": active, "B": copy(192, b"three")}).equal, "where it is now counts as well"
    assert compared("p", {"A": copy(64, b"one"), "B": active}).equal


def test_where_most_agree_the_other_one_is_named_whichever_is_active() -> None:
    said = {"A": copy(5, b"wrong"), "B": copy(5, b"right"), "C": copy(5, b"right")}
    assert compared("p", said).differing == (CopyDifference("A", "B", 5),)


def test_of_two_the_active_one_counts() -> None:
    assert compared("p", {"A": copy(5, b"a"), "B": copy(5, b"b")}).differing == (CopyDifference("B", "A", 5),)


def test_a_copy_without_a_common_lsn_is_no_difference() -> None:
    found = compared("p", {"A": copy(500, b"a", m448=b"x"), "B": copy(5, b"b"), "C": copy(500, b"other")})
    assert (found.unmatched, found.differing) == (("B",), (CopyDifference("C", "A", 500),))
    assert not found.equal


def test_nobody_who_answers_is_no_difference_either() -> None:
    assert compared("p", {}).equal
    assert not compared("p", {"A": UnreachableError("gone")}).equal


def test_the_doctor_says_what_to_do() -> None:
    anew = "move its data_dir aside, start it: it makes its copies anew from the log"
    assert rows(("A", copy(12352, b"a")), ("B", copy(12352, b"b"))) == [
        ("fail", "copy of p-3 on B differs from A's at lsn 12352", f"stop B, {anew}")
    ]
    assert rows(("A", copy(7, b"a", b"a")), ("B", copy(7, b"a", b"c")), deep=True) == [
        ("fail", "the store of B does not hold what was written to it of p-3, at lsn 7", f"stop B, {anew}")
    ]
    assert rows(("A", copy(7, b"a")), ("B", copy(8, b"b"))) == [
        (
            "warn",
            "copy of p-3 on B is at lsn 8, and has none in common with others",
            "see its lag in `halog status`, and ask again once it has caught up",
        )
    ]
    assert rows(("A", copy(7, b"a")), ("B", UnreachableError("node B is silent"))) == [
        ("warn", "B says nothing of one copy: node B is silent", "see `halog status`")
    ]
    assert rows(("A", copy(7, b"a")), ("B", copy(7, b"a"))) == [
        ("ok", "2 copies of 1 partition, equal at the lsns they have in common", "")
    ]
