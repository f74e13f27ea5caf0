"""A value comes back with the same type and `repr`, or is refused by name when it is given: whatever it is."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import fastavro
import pytest
from hypothesis import example, given, settings, strategies as st

from halog.errors import DeclarationError, FieldTypeError, RecordFormatError
from halog.schema import Decimals, Definition, ForeignType, Ref
from tests.unit.schema.anything import AUTUMN, CASES, DECIMALS, KEYS, Level, Loose, Moment, Text, Word, same
from tests.unit.schema.shapes_strategy import Point, Target, declare

FAR = dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))
EARLY = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=9)))


def or_refused(named: str, encode: Callable[[], bytes]) -> bytes | None:
    """None: it was refused, by name."""
    try:
        return encode()
    except FieldTypeError as error:
        found = str(error)
    assert found.startswith(named)
    return None


@pytest.mark.feature("D1")
@given(CASES)
@example((dt.datetime, FAR))
@example((dt.datetime, EARLY))
@example((list[dt.datetime], [dt.datetime.max.replace(tzinfo=dt.UTC)]))
@example((Decimal, Decimal("1000.50")))
@example((Decimal, Decimal("-0.00")))
@example((Decimal, Decimal("1E+3")))
@example((dt.time, dt.time(2, 30, fold=1)))
@settings(max_examples=1_500, deadline=None)
def test_a_value_comes_back_as_it_was_given_or_is_refused(case: tuple[Any, Any]) -> None:
    """As a field, from the bytes, and through the JSON of an export."""
    annotation, value = case
    info = declare({"k": int, "f": annotation})
    data = or_refused("Probe.f", lambda: info.encode(info.cls(1, value)))
    if data is None:
        return
    assert same(value, info.decode(data)["f"])
    assert info.encode(info.instance(info.decode(data))) == data
    foreign = ForeignType(Definition.parse(info.definition))
    plain = json.loads(json.dumps(foreign.decode(data), ensure_ascii=False, allow_nan=False))
    assert same(value, info.decode(foreign.encode(plain))["f"])


@pytest.mark.feature("D1")
@given(CASES)
@settings(max_examples=400, deadline=None)
def test_arguments_and_results_too(case: tuple[Any, Any]) -> None:
    """Of methods that run elsewhere."""
    annotation, value = case

    def call(self: Any, x: Any) -> Any: ...

    call.__annotations__ = {"x": annotation, "return": annotation}
    method = declare({"k": int}, body={"call": call}).methods["call"]
    data = or_refused("Probe.call x", lambda: method.encode_args((value,), {}))
    if data is None:
        with pytest.raises(FieldTypeError, match=r"Probe\.call"):
            method.encode_result(value)
        return
    (back,), _ = method.decode_args(data)
    assert same(value, back)
    assert same(value, method.decode_result(method.encode_result(value)))


@given(st.sampled_from(KEYS).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1], pair[1])))
@settings(max_examples=600, deadline=None)
def test_keys_are_one_when_they_are_equal_and_of_one_type(case: tuple[Any, Any, Any]) -> None:
    """Equal numbers and instants are one key; `fold` makes two. What is refused as a field is refused as a key."""
    annotation, one, other = case
    info = declare({"k": annotation}, key="k")
    foreign = ForeignType(Definition.parse(info.definition))
    keys = [or_refused("Probe.k", partial(info.index_key, (k,))) for k in (one, other)]
    if keys[0] is None or keys[1] is None:
        return

    def compared(k: Any) -> Any:
        return k.astimezone(dt.UTC).replace(fold=0) if isinstance(k, dt.datetime) else k

    assert (keys[0] == keys[1]) == (compared(one) == compared(other))
    assert compared(info.decode_index_key(keys[0])[0]) == compared(one)
    text = json.loads(json.dumps(foreign.decode_index_key(keys[0])))["k"]
    words = [str(text)]
    assert foreign.index_key(foreign.key_from_text(words)) == keys[0]


def test_two_half_past_two() -> None:
    """Equal to Python, which looks at the clock's face only; an hour apart."""
    info = declare({"k": dt.datetime}, key="k")
    first, second = AUTUMN, AUTUMN.replace(fold=1)
    assert first == second
    assert info.index_key((first,)) != info.index_key((second,))


@given(DECIMALS, st.sampled_from([(38, 9), (10, 2), (38, 38), (1, 0)]))
@settings(max_examples=500, deadline=None)
def test_every_reader_of_avro_has_a_decimals_number(value: Decimal, digits: tuple[int, int]) -> None:
    """What says how it was written changes nothing about what it is."""
    info = declare({"k": int, "f": Annotated[Decimal, Decimals(*digits)]})
    try:
        data = info.encode(info.cls(1, value))
    except FieldTypeError:
        return
    read: Any = fastavro.schemaless_reader(io.BytesIO(data[8:]), info.schema, None)
    assert read["f"] == value


@pytest.mark.parametrize("scale", range(39))
def test_a_zero_is_never_refused(scale: int) -> None:
    """Most values are 0 or have few digits; a test of what may be refused would not notice."""
    info = declare({"k": int, "f": Annotated[Decimal, Decimals(38, scale)]}, body={"f": Decimal("0")})
    for text in ("0", "-0", f"0E-{scale}", f"-0E-{scale}", *(["0.0"] if scale else []), *(["1"] if scale < 38 else [])):
        value = Decimal(text)
        assert same(value, info.decode(info.encode(info.cls(1, value)))["f"])


def test_decimals_that_were_stored_before_are_read_as_they_were() -> None:
    """The shortest form has all digits of the scale, and its bytes are those of ever."""
    info = declare({"k": int, "f": Decimal})
    data = info.encode(info.cls(1, Decimal("1000.500000000")))
    assert data[9:] == b"\x0c" + (1_000_500_000_000).to_bytes(6, "big")
    assert repr(info.decode(data)["f"]) == "Decimal('1000.500000000')"
    longer = info.encode(info.cls(1, Decimal("1000.5")))
    assert longer[9:] == b"\x1c" + bytes(8) + (1_000_500_000_000).to_bytes(6, "big")
    keyed = declare({"k": Decimal}, key="k")
    assert keyed.index_key((Decimal("1.50"),))[8:] == b"\x08" + (1_500_000_000).to_bytes(4, "big")


@pytest.mark.parametrize(
    "body", [b"\x06\x00\x00\x01", b"\x06\xff\xff\xfb", b"\x04\x00\x05"], ids=["1", "-5", "one digit too many"]
)
def test_a_decimal_that_says_more_than_it_is_is_refused(body: bytes) -> None:
    """So each value has one form."""
    info = declare({"k": int, "f": Annotated[Decimal, Decimals(5, 2)]})
    with pytest.raises(RecordFormatError, match="more digits behind the point"):
        info.decode(info.type_id + b"\x02" + body)


def test_the_default_of_a_decimal_does_not_change_a_types_id() -> None:
    """However it is written: two processes that mean the same have the same definition."""
    one = declare({"k": int, "f": Decimal}, body={"f": Decimal("0")})
    other = declare({"k": int, "f": Decimal}, body={"f": Decimal("0.00")})
    assert one.type_id == other.type_id
    assert '"value":"0.000000000"' in one.definition


REFUSED: list[tuple[Any, Any, str]] = [
    (dt.datetime, FAR, "within year 1 to 9999 in UTC, got datetime"),
    (dt.datetime, EARLY, "within year 1 to 9999 in UTC"),
    (dt.datetime, Moment(2024, 1, 1, tzinfo=dt.UTC), "expected datetime with a time zone, got Moment"),
    (dt.time, dt.time(2, 30, fold=1), "expected time with fold=0"),
    (float, 1, "expected float, got int"),
    (int, Level.LOW, "expected int, got Level"),
    (str, Word.A, "expected str, got Word"),
    (str, Text("a"), "expected str, got Text"),
    (Decimal, Decimal("1.0000000000"), "38 digits, 9 of them"),
    (Decimal, Decimal("0E-10"), "38 digits, 9 of them"),
    (Decimal, Decimal("sNaN"), "38 digits, 9 of them"),
    (uuid.UUID, type("Id", (uuid.UUID,), {})(int=1), "expected UUID, got Id"),
    (Ref[Target], Ref(True, 2, 3, "Target", b""), "unsigned 64-bit ints"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), REFUSED, ids=str)
def test_what_would_come_back_as_something_else_is_refused(annotation: Any, value: Any, why: str) -> None:
    """By class and field."""
    info = declare({"k": int, "f": annotation})
    with pytest.raises(FieldTypeError, match=rf"Probe\.f: .*{why}"):
        info.encode(info.cls(1, value))


def test_an_attribute_of_a_nested_object_that_is_no_field_is_refused() -> None:
    """As one of the object itself: it would be lost."""
    info = declare({"k": int, "f": list[Point]})
    point = Point(1.0)
    point.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(FieldTypeError, match=r"Probe\.f\[0\]: .*attribute 'colour', which is no field"):
        info.encode(info.cls(1, [point]))
    del point.colour  # type: ignore[attr-defined]
    point._noted = "mine"  # type: ignore[attr-defined]
    info.encode(info.cls(1, [point]))


def test_a_class_whose_content_is_no_field_cannot_be_declared() -> None:
    """A list that is a dataclass could be written, and not made again."""

    @dataclasses.dataclass
    class Crew(list[str]):
        plane: str = ""

    with pytest.raises(DeclarationError, match=r"Probe\.f: .*built-in type"):
        declare({"k": int, "f": Crew})
    with pytest.raises(DeclarationError, match=r"Probe: derives from a built-in type"):
        declare({"k": int}, body={}, cls_name="Probe", bases=(dict,))


IMPORTED: list[tuple[Any, Any, str]] = [
    (float, True, "expected float, got bool"),
    (float, 2**53 + 1, "expected float, got int"),
    (int, 1.0, "expected int, got float"),
    (bool, 1, "expected bool, got int"),
    (list[str], "ab", "expected an array, got str"),
    (list[str], {"a": 1}, "expected an array, got dict"),
    (Point, {"x": 1.0, "label": None, "y": 2.0}, "unknown field 'y'"),
    (dt.datetime, "2024-01-01T00:00:00.1234567+00:00", "finer than a microsecond"),
    (dt.time, "00:00:00.1234567", "finer than a microsecond"),
    (dt.datetime, "9999-12-31T23:59:59-05:00", "within year 1 to 9999 in UTC"),
    (dt.datetime, "2024-01-01T00:00:00", "datetime with a time zone"),
]


@pytest.mark.parametrize(("annotation", "plain", "why"), IMPORTED, ids=str)
def test_an_import_takes_a_value_whole_or_refuses_it(annotation: Any, plain: Any, why: str) -> None:
    """No digit, field or type of it is passed over."""
    foreign = ForeignType(Definition.parse(declare({"k": int, "f": annotation}).definition))
    with pytest.raises(FieldTypeError, match=rf"Probe\.f.*{why}"):
        foreign.encode({"k": 1, "f": plain})


def test_numbers_of_json_that_no_float_holds_are_refused() -> None:
    """Python reads them as infinite."""
    foreign = ForeignType(Definition.parse(declare({"k": int, "f": float}).definition))
    with pytest.raises(FieldTypeError, match="beyond those that a float can hold"):
        foreign.encode({"k": 1, "f": json.loads("1e400")})
    assert repr(foreign.decode(foreign.encode({"k": 1, "f": json.loads("-0.0")}))["f"]) == "-0.0"
    assert foreign.decode(foreign.encode({"k": 1, "f": 1}))["f"] == 1.0


def test_a_str_that_says_it_equals_another_is_no_key() -> None:
    """Nothing is asked of a class of the application."""
    info = declare({"k": str}, key="k")
    with pytest.raises(FieldTypeError, match=r"Probe\.k: expected str, got Loose"):
        info.check_key([Loose("A")])
