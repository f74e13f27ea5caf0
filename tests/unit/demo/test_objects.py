"""Objects are compared with the totals both ways."""

from __future__ import annotations

from halog.demo.verify_objects import ObjectCheck, compare


def test_missing_different_and_surplus_objects_are_told() -> None:
    check = ObjectCheck()
    compare("aircraft", {"N1": 1, "N2": 5, "N4": 4}, {"N1": 1, "N2": 2, "N3": 3}, check)
    assert (check.objects, check.wrong) == (3, 3)
    assert check.examples == [
        "aircraft N2 is 5, should be 2",
        "aircraft N3 is missing",
        "aircraft N4 should not exist",
    ]


def test_only_the_first_few_are_told_but_all_are_counted() -> None:
    check = ObjectCheck()
    compare("airport", {}, {n: n for n in range(20)}, check)
    assert (check.wrong, len(check.examples)) == (20, 5)
