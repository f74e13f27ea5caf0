"""Which merges are undone, by what the merges of a history say, in its order (M2)."""

from __future__ import annotations

import pytest

from halog.core.ids import EpochId
from halog.core.log.records import Branch, EpochMerged, Header
from restore.undoings import Undoings, undoing

pytestmark = pytest.mark.feature("M2")

M1, M2, M3 = b"first", b"second", b"third"
U1, U2 = undoing(M1), undoing(M2)


def made(name: bytes, *undoings: bytes) -> EpochMerged:
    """A merge, or an undoing, of a history, or two, in which these were undone before."""
    one = Branch(EpochId(1, "east", 1), 9, b"h" * 16, ())
    branches = (one,) if name.startswith(b"undo") else (one, one)
    head = Header(b"l" * 16, EpochId(2, "east", 1), 10, b"h" * 16)
    return EpochMerged(head, name, branches, (), undoings, 0, bytes(16), 0, 0)


def undone(*merges: EpochMerged) -> set[bytes]:
    found = Undoings(merges)
    return {name for name in (M1, M2, M3) if found.is_undone(name)}


def test_what_was_undone_here_is_until_that_is_undone() -> None:
    assert undone(made(M1)) == set()
    assert undone(made(M1), made(U1)) == {M1}
    assert undone(made(M1), made(U1), made(undoing(U1), U1)) == set()


def test_what_another_branch_undid_is_as_long_as_what_brought_that_stands() -> None:
    assert undone(made(M1), made(M2, U1)) == {M1}
    assert undone(made(M1), made(M2, U1), made(U2, U1)) == {M2}
    assert undone(made(M1), made(M2, U1), made(U2, U1), made(undoing(U2), U1, U2)) == {M1}


def test_a_merge_that_only_passes_it_on_did_not_bring_it() -> None:
    """Undoing the later one leaves it undone."""
    assert undone(made(M1), made(M2, U1), made(M3, U1), made(undoing(M3), U1)) == {M1, M3}


def test_undone_here_afterwards_it_is_undone_whatever_becomes_of_the_other_one() -> None:
    again = (made(M1), made(M2, U1), made(U2, U1), made(U1, U1, U2))
    assert undone(*again) == {M1, M2}
    assert undone(*again, made(undoing(U2), U1, U2)) == {M1}


def test_what_is_older_than_the_log_is_nobodys_gift() -> None:
    """An undoing has one branch: what it names was there before."""
    assert undone(made(U2, U1, U2)) == {M1, M2}
