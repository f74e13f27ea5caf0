"""Who has come or gone for good."""

from __future__ import annotations

import pytest

from halog.core.placement.turnover import NodeTurnover, Turnover

pytestmark = pytest.mark.feature("P13", "P2")

KNOWN = frozenset("ABC")
SETTLE, REPLACE = 10, 100


@pytest.fixture
def turnover() -> Turnover:
    return Turnover(SETTLE, REPLACE)


def test_nothing_changes_while_all_are_there(turnover: Turnover) -> None:
    assert [turnover.look(KNOWN, "ABC", "", now) for now in (0, 1_000)] == [None, None]


def test_who_comes_is_told_once_nobody_else_has_come_for_a_while(turnover: Turnover) -> None:
    assert turnover.look(KNOWN, "ABCD", "", 0) is None
    assert turnover.look(KNOWN, "ABCDE", "", 9) is None
    assert turnover.look(KNOWN, "ABCDE", "", 18) is None
    assert turnover.look(KNOWN, "ABCDE", "", 19) == NodeTurnover(("D", "E"), ())


def test_who_comes_and_goes_has_not_come(turnover: Turnover) -> None:
    assert turnover.look(KNOWN, "ABCD", "", 0) is None
    assert turnover.look(KNOWN, "ABC", "D", 5) is None
    assert turnover.look(KNOWN, "ABCD", "", 12) is None
    assert turnover.look(KNOWN, "ABCD", "", 22) == NodeTurnover(("D",), ())


def test_who_is_back_in_time_has_not_gone(turnover: Turnover) -> None:
    assert turnover.look(KNOWN, "AB", "C", 0) is None
    assert turnover.look(KNOWN, "ABC", "", 99) is None
    assert turnover.look(KNOWN, "AB", "C", 150) is None
    assert turnover.look(KNOWN, "AB", "C", 249) is None
    assert turnover.look(KNOWN, "AB", "C", 250) == NodeTurnover((), ("C",))


def test_who_is_not_known_to_be_down_has_not_gone(turnover: Turnover) -> None:
    """It is registered, and does not answer: frozen, or on the other side of a cut."""
    assert [turnover.look(KNOWN, "AB", "", now) for now in (0, 1_000)] == [None, None]


def test_who_comes_late_does_not_hold_up_who_has_gone(turnover: Turnover) -> None:
    assert turnover.look(KNOWN, "AB", "C", 0) is None
    assert turnover.look(KNOWN, "ABD", "C", 95) is None
    assert turnover.look(KNOWN, "ABD", "C", 100) == NodeTurnover((), ("C",))
    assert turnover.look(frozenset("AB"), "ABD", "C", 105) == NodeTurnover(("D",), ())


def test_who_looks_again_after_others_have_begins_anew(turnover: Turnover) -> None:
    """A node that is back in the meantime was seen by others."""
    assert turnover.look(KNOWN, "AB", "C", 0) is None
    turnover.forget()
    assert turnover.look(KNOWN, "AB", "C", 500) is None
    assert turnover.look(KNOWN, "AB", "C", 600) == NodeTurnover((), ("C",))
