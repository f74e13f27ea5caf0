"""Objects of several definitions are brought to the newest of them, or are not, and then nobody compares them so."""

from __future__ import annotations

from typing import Any

import pytest

from halog.schema import Definition
from halog.schema.versions import Even, bringing, several
from tests.unit.schema.shapes_strategy import declare
from tests.unit.schema.test_evolution import P1, P2, READ, RGB, RGBX, colour

pytestmark = pytest.mark.feature("U3", "M3")


def parsed(*infos: Any) -> list[Definition]:
    """As they are published, without their classes."""
    return [Definition.parse(info.definition) for info in infos]


def even_of(*infos: Any) -> Even:
    found = bringing(parsed(*infos))
    assert found is not None
    return found


@pytest.mark.parametrize(("old", "new", "written", "read"), [r[1:] for r in READ[1:]], ids=[r[0] for r in READ[1:]])
def test_what_the_newest_has_read_is_as_it_would_have_written_it(old: Any, new: Any, written: Any, read: Any) -> None:
    before, after = declare({"k": int, "f": old}), declare({"k": int, "f": new})
    value = before.encode(before.cls(1, written))
    expected = after.encode(after.instance(after.reader(before.definition)(value)))
    assert even_of(before, after)([value, expected]) == [expected, expected]


def test_a_field_that_was_added_has_its_default() -> None:
    before = declare({"k": int, "f": int})
    after = declare({"k": int, "f": int, "g": int}, body={"g": 7})
    old, same, other = (
        before.encode(before.cls(1, 2)),
        after.encode(after.cls(1, 2, 7)),
        after.encode(after.cls(1, 2, 8)),
    )
    assert even_of(before, after)([old, same, other]) == [same, same, other]


def test_a_field_that_was_removed_is_passed_over_unless_somebody_has_changed_it() -> None:
    """In two states of the old definition: what the newest does not have may be what one of them was written for."""
    before, after = declare({"k": int, "f": int, "g": int}), declare({"k": int, "f": int})
    old, changed, new = (
        before.encode(before.cls(1, 2, 3)),
        before.encode(before.cls(1, 2, 4)),
        after.encode(after.cls(1, 2)),
    )
    even = even_of(before, after)
    assert even([old, old, new]) == [new, new, new]
    assert even([old, changed, new]) is None


def test_what_two_older_definitions_have_and_the_newest_has_not_is_not_passed_over_either() -> None:
    """One site changed it and was upgraded once, the other one was upgraded twice."""
    first = declare({"k": int, "f": int, "g": int})
    second = declare({"k": int, "f": int, "g": int, "h": int}, body={"h": 7})
    newest = declare({"k": int, "f": int, "h": int}, body={"h": 7})
    base, same, changed, new = (
        first.encode(first.cls(1, 2, 3)),
        second.encode(second.cls(1, 2, 3, 7)),
        second.encode(second.cls(1, 2, 4, 7)),
        newest.encode(newest.cls(1, 2, 7)),
    )
    even = even_of(first, second, newest)
    assert even([base, same, new]) == [new, new, new]
    assert even([base, changed, new]) is None
    assert even([changed, base, new]) is None


def test_the_newest_is_the_largest_version_and_of_equal_ones_the_last_published() -> None:
    one, two = declare({"k": int, "f": int}, version=2), declare({"k": int, "f": float}, version=3)
    values = [one.encode(one.cls(1, 2)), two.encode(two.cls(1, 2.0))]
    for order in ((one, two), (two, one)):
        assert even_of(*order)(values) == [values[1], values[1]]
    first, last = declare({"k": int, "f": int}), declare({"k": int, "f": float})
    values = [first.encode(first.cls(1, 2)), last.encode(last.cls(1, 2.0))]
    assert even_of(first, last)(values) == [values[1], values[1]]
    assert even_of(last, first)(values) is None, "the newest one has an int, and cannot read the other"


def test_what_one_definition_wrote_or_nobody_knows_or_cannot_be_read_is_not_brought_anywhere() -> None:
    before, after = declare({"k": int, "f": int}), declare({"k": int, "f": str})
    old, new = before.encode(before.cls(1, 2)), after.encode(after.cls(1, "2"))
    even = even_of(before, after)
    assert even([]) is None
    assert even([old, old]) is None
    assert even([old, new]) is None
    assert even([old, b"\0" * 8 + old[8:]]) is None
    longer = declare({"k": int, "f": float})
    assert even_of(before, longer)([old[:-1] + b"\x80", longer.encode(longer.cls(1, 2.0))]) is None


def test_where_no_type_has_several_nothing_need_be_looked_at() -> None:
    one, other = declare({"k": int, "f": int}), declare({"k": int, "f": float})
    assert bringing(parsed(one)) is None
    assert bringing([]) is None
    assert several(parsed(one, other)) == tuple(parsed(one, other))


def test_enums_and_nested_classes_need_no_class() -> None:
    before = declare({"k": int, "f": RGB, "g": list[P1]})
    after = declare({"k": int, "f": RGBX, "g": list[P2]})
    value = before.encode(before.cls(1, RGB.B, [P1(4)]))
    expected = after.encode(after.cls(1, RGBX.B, [P2(x=4.0, y=9)]))
    assert even_of(before, after)([value, expected]) == [expected, expected]
    fewer = declare({"k": int, "f": colour("R", "G"), "g": list[P2]})
    assert even_of(before, fewer)([value, fewer.encode(fewer.cls(1, fewer.cls.__annotations__["f"].R, []))]) is None
