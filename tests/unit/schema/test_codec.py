"""Encoding and decoding: a value that encodes decodes to an equal one, in fastavro's bytes; bad bytes are refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import uuid
from decimal import Decimal, localcontext
from typing import Annotated, Any

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

from halog.errors import FieldTypeError, RecordFormatError
from halog.schema import Decimals, Ref, TypeInfo, managed
from tests.unit.schema.shapes_strategy import LONG, Colour, Point, Slotted, Target, declare, objects

Typed = tuple[TypeInfo, Any]


def to_fastavro(value: Any) -> Any:
    """A bound value as fastavro wants it."""
    match value:
        case enum.Enum():
            return value.name
        case Ref():
            return {"ref": value.raw, "type": value.type_name, "key": value.key}
        case list():
            return [to_fastavro(v) for v in value]
        case dict():
            return {k: to_fastavro(v) for k, v in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {f.name: to_fastavro(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            return value


@given(objects())
@settings(max_examples=150, deadline=None)
def test_round_trip(case: Typed) -> None:
    """Whatever fits the annotations comes back equal, as an object of the class."""
    info, obj = case
    assert info.instance(info.decode(info.encode(obj))) == obj


@given(objects())
@settings(max_examples=150, deadline=None)
def test_bytes_are_fastavros(case: Typed) -> None:
    """Behind the type id stands plain Avro: fastavro writes the very same bytes from the schema we publish."""
    info, obj = case
    out = io.BytesIO()
    values = dict(zip(info.fields, info.values_of(obj), strict=True))
    fastavro.schemaless_writer(out, info.schema, to_fastavro(values))
    assert info.encode(obj) == info.type_id + out.getvalue()


@given(objects(), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_never_do_more_than_raise(case: Typed, data: st.DataObject) -> None:
    """Cut, extended, flipped: RecordFormatError, or values that fit the class as well as any others. Nothing else."""
    info, obj = case
    good = bytearray(info.encode(obj))
    at = data.draw(st.integers(8, len(good) - 1))
    bad = bytes(
        data.draw(
            st.sampled_from(
                [
                    good[:at],
                    good + b"\0",
                    good[:at] + bytes([good[at] ^ 1 << data.draw(st.integers(0, 7))]) + good[at + 1 :],
                    good[:at] + data.draw(st.binary(max_size=12)),
                ]
            )
        )
    )
    try:
        values = info.decode(bad)
    except RecordFormatError:
        return
    again = info.encode_values(tuple(values.values()))
    assert repr(info.decode(again)) == repr(values)


@given(objects())
@settings(max_examples=100, deadline=None)
def test_fresh_copies_what_can_change(case: Typed) -> None:
    """A fresh copy is equal; its lists, dicts and dataclasses are other ones at every level."""
    info, obj = case
    values = info.decode(info.encode(obj))
    copy = info.fresh(values)
    assert copy == values
    assert copy is not values
    assert not shared_mutables(list(copy.values())) & shared_mutables(list(values.values()))


def shared_mutables(value: Any) -> set[int]:
    if isinstance(value, list | dict):
        inside = list(value.values()) if isinstance(value, dict) else value
        return {id(value)}.union(*map(shared_mutables, inside)) if inside else {id(value)}
    if isinstance(value, Point | Slotted):
        inside = [getattr(value, f.name) for f in dataclasses.fields(value)]
        return {id(value)}.union(*map(shared_mutables, inside))
    return set()


WRONG: list[tuple[Any, Any, str]] = [
    (int, "1", "expected int, got str"),
    (int, True, "expected int, got bool"),
    (int, 1.0, "expected int, got float"),
    (int, 1 << 63, "at most 64 bits, got int"),
    (int, -(1 << 63) - 1, "at most 64 bits, got int"),
    (bool, 1, "expected bool, got int"),
    (float, "1", "expected float, got str"),
    (float, True, "expected float, got bool"),
    (float, (1 << 53) + 1, "expected float, got int"),
    (str, b"", "expected str, got bytes"),
    (str, "\ud800", "surrogates"),
    (bytes, bytearray(), "expected bytes, got bytearray"),
    (int, None, "expected int, got NoneType"),
    (int | None, "", "expected int or None, got str"),
    (dt.datetime, dt.datetime(2013, 1, 1), "datetime with a time zone"),  # noqa: DTZ001
    (dt.datetime, dt.date(2013, 1, 1), "datetime with a time zone, got date"),
    (dt.date, dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "expected date, got datetime"),
    (dt.time, dt.time(1, tzinfo=dt.UTC), "without a time zone"),
    (uuid.UUID, "a", "expected UUID, got str"),
    (Decimal, 1, "expected Decimal, got int"),
    (Annotated[Decimal, Decimals(4, 2)], Decimal("1.001"), "4 digits, 2 of them"),
    (Annotated[Decimal, Decimals(4, 2)], Decimal(100), "4 digits, 2 of them"),
    (Annotated[Decimal, Decimals(4, 2)], Decimal("NaN"), "4 digits, 2 of them"),
    (Annotated[Decimal, Decimals(4, 2)], Decimal("-Infinity"), "4 digits, 2 of them"),
    (Annotated[Decimal, Decimals(4, 2)], Decimal("1E+999999"), "4 digits, 2 of them"),
    (Colour, "RED", "expected Colour, got str"),
    (list[int], (1,), "expected list, got tuple"),
    (list[int], [1, "2"], r"f\[1\]: expected int, got str"),
    (dict[str, int], {"a": 1, "b": "x"}, r"f\['b'\]: expected int, got str"),
    (dict[str, int], {1: 1}, "f key 1: expected str, got int"),
    (Point, Point("x"), r"f\.x: expected float, got str"),  # type: ignore[arg-type]
    (list[Point | None], [None, Point(1.0, b"")], r"f\[1\]\.label: expected str or None, got bytes"),  # type: ignore[arg-type]
    (Point, {"x": 1.0}, "expected Point, got dict"),
    (Ref[Target], Ref(1, 2, 3, "Probe", b""), r"expected Ref\[Target\]"),
    (Ref[Target], Ref(-1, 2, 3, "Target", b""), "unsigned 64-bit"),
    (Ref[Target], 7, r"expected Ref\[Target\], got int"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), WRONG, ids=str)
def test_a_value_that_does_not_fit_is_named(annotation: Any, value: Any, why: str) -> None:
    """FieldTypeError names type, field, the value's type and what was expected, and never shows the value."""
    info = declare({"k": int, "f": annotation})
    with pytest.raises(FieldTypeError, match=why) as caught:
        info.encode(info.cls(1, value))
    assert str(caught.value).startswith("Probe.f")
    assert caught.value.evidence["type"] == "Probe"


def test_an_incomplete_object_is_named() -> None:
    """A field that was deleted is reported as missing, at the top and inside."""
    info = declare({"k": int, "p": Point})
    obj = info.cls(1, Point(1.0))
    del obj.p.x
    with pytest.raises(FieldTypeError, match=r"Probe\.p: expected a complete Point"):
        info.encode(obj)
    del obj.p
    with pytest.raises(FieldTypeError, match=r"Probe: .*'p'"):
        info.encode(obj)


def test_a_reference_to_a_type_unknown_here_stays_writable() -> None:
    """In a rolling upgrade it may be a newer node's subtype: what was read can be written back."""
    info = declare({"k": int, "f": Ref[Target]})
    obj = info.cls(1, Ref(1, 2, 3, "NewerTarget", b""))
    assert info.instance(info.decode(info.encode(obj))) == obj


def test_a_reference_to_a_subtype_fits() -> None:
    """Ref[Base] takes a reference to a declared subtype."""
    info = declare({"k": int, "f": Ref["Probe"]}, cls_name="Probe")  # type: ignore[name-defined]
    registry: Any = info.cls.__halog_registry__
    managed(registry=registry)(type("Sub", (info.cls,), {"__module__": __name__}))
    obj = info.cls(1, Ref(1, 2, 3, "Sub", b"\x02"))
    assert info.decode(info.encode(obj))["f"] == obj.f


HOSTILE: list[tuple[str, Any, bytes]] = [
    ("a hundred million items in five bytes", list[int], b"\x80\x84\xaf\x5f"),
    ("a hundred million entries", dict[str, int], b"\x80\x84\xaf\x5f"),
    ("a negative count with a false size", list[int], b"\x01\x80\x84\xaf\x5f\x02\x00"),
    ("a block size smaller than its items", list[int], b"\x03\x02\x02\x02\x00"),
    ("the most negative count", list[int], b"\xff" * 9 + b"\x01\x00"),
    ("a varint of 51 bytes", int, b"\x80" * 50 + b"\x00"),
    ("a padded varint", int, b"\x80\x00"),
    ("a varint of more than 64 bits", int, b"\xff" * 9 + b"\x02"),
    ("a length beyond the data", str, b"\x08abc"),
    ("a length of two gigabytes", bytes, b"\xfe\xff\xff\xff\x0f"),
    ("a negative length", bytes, b"\x01"),
    ("a negative length of two bytes", bytes, b"\xff\x01"),
    ("no UTF-8", str, b"\x02\xff"),
    ("a union branch out of range", int | None, b"\x04\x02"),
    ("a negative union branch", int | None, b"\x01\x02"),
    ("a boolean of 2", bool, b"\x02"),
    ("an enum index out of range", Colour, b"\x04"),
    ("a negative enum index", Colour, b"\x01"),
    ("half a double", float, b"\0\0\0\0"),
    ("a date beyond the calendar", dt.date, b"\xfe\xff\xff\xff\x0f"),
    ("a time beyond the day", dt.time, b"\xfe\xff\xff\xff\xff\xff\xff\x0f"),
    ("a moment beyond the calendar", dt.datetime, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
    ("a UUID in braces", uuid.UUID, b"\x4c{12345678-1234-5678-1234-567812345678}"),
    ("a UUID that is none", uuid.UUID, b"\x02x"),
    ("a decimal without digits", Decimal, b"\x00"),
    ("a decimal of a thousand bytes", Decimal, b"\xd0\x0f" + b"\x7f" * 1000),
    ("a decimal beyond its precision", Annotated[Decimal, Decimals(2, 0)], b"\x02\x64"),
    ("half a reference", Ref[Target], b"\0" * 10),
    ("a key twice", dict[str, int], b"\x04\x02a\x02\x02a\x04\x00"),
    ("nothing", int, b""),
    ("trailing bytes", int, b"\x02\x02"),
]


@pytest.mark.parametrize(("annotation", "body"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_bytes(annotation: Any, body: bytes) -> None:
    """Bytes no honest writer makes are refused before anything is allocated for them."""
    info = declare({"k": int, "f": annotation})
    with pytest.raises(RecordFormatError, match="Probe"):
        info.decode(info.type_id + b"\x02" + body)


def test_bytes_of_another_type_are_refused() -> None:
    """The type id in front is compared first."""
    info, other = declare({"k": int}), declare({"k": str})
    with pytest.raises(RecordFormatError, match="type id"):
        info.decode(other.encode(other.cls("x")))
    with pytest.raises(RecordFormatError, match="type id"):
        info.decode(b"")


def test_blocks_with_sizes_are_read() -> None:
    """Avro allows several blocks, and a size with each; other writers make them."""
    info = declare({"k": int, "f": list[int]})
    assert info.decode(info.type_id + b"\x02" + b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00")["f"] == [1, 2, 3]


def test_decimals_ignore_the_threads_context() -> None:
    """38 digits survive although Python's default context has 28, whatever the thread set."""
    info = declare({"k": int, "f": Annotated[Decimal, Decimals(38, 19)]})
    value = Decimal("1234567890123456789.0123456789012345678")
    with localcontext() as ctx:
        ctx.prec = 3
        assert info.decode(info.encode(info.cls(1, value)))["f"] == value


def test_an_instant_is_kept_not_its_zone() -> None:
    """A datetime of any zone comes back as the same instant in UTC, and gives the same key."""
    info = declare({"k": dt.datetime})
    local = dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    back = info.decode(info.encode(info.cls(local)))["k"]
    assert back == local
    assert back.tzinfo is dt.UTC
    assert info.index_key((local,)) == info.index_key((back,))


@given(st.tuples(LONG, st.text(st.characters(exclude_categories=["Cs"]))), st.tuples(LONG, st.text(alphabet="ab")))
def test_index_keys_are_equal_exactly_when_keys_are(a: tuple[int, str], b: tuple[int, str]) -> None:
    """One key, one index key; it starts with the family id and reads back."""
    info = declare({"n": int, "s": str}, key=("n", "s"))
    assert (info.index_key(a) == info.index_key(b)) == (a == b)
    assert info.decode_index_key(info.index_key(a)) == a
    assert info.index_key(a) == info.family_id + info.encode_key(a)


def test_check_key() -> None:
    """Positional values or one tuple; a wrong number or type is named."""
    info = declare({"n": int, "s": str}, key=("s", "n"))
    assert info.check_key(["a", 1]) == info.check_key([("a", 1)]) == ("a", 1)
    with pytest.raises(FieldTypeError, match=r"Probe: the key is \(s, n\), got 1 values"):
        info.check_key(["a"])
    with pytest.raises(FieldTypeError, match=r"Probe\.n: expected int, got str"):
        info.check_key(["a", "1"])
    one = declare({"n": int}, key="n")
    with pytest.raises(FieldTypeError, match=r"the key is \(n\), got 2"):
        one.check_key([1, 2])
    with pytest.raises(FieldTypeError, match=r"Probe\.n: expected int, got tuple"):
        one.check_key([(1,)])


@pytest.mark.parametrize("damage", [lambda r: r[:-1], lambda r: r + b"\0", lambda r: b"x" + r[1:], lambda r: b""])
def test_a_damaged_index_key_is_refused(damage: Any) -> None:
    """Cut, extended, of another family."""
    info = declare({"n": str}, key="n")
    with pytest.raises(RecordFormatError, match="index key"):
        info.decode_index_key(damage(info.index_key(("abc",))))


@pytest.mark.feature("D1")
def test_references() -> None:
    """A reference is 24 bytes in creation order, carries type and key, and leads to the object's index key."""
    info = declare({"n": str}, key="n")
    ref = info.ref(Ref(1, 2, 3, "", b"").raw, ("N1",))
    assert (ref.location, ref.installation, ref.counter, ref.type_name) == (1, 2, 3, "Probe")
    assert ref.raw == bytes(7) + b"\1" + bytes(7) + b"\2" + bytes(7) + b"\3"
    assert info.index_key_of(ref) == info.index_key(("N1",))
    assert ref.raw < Ref(1, 2, 256, "", b"").raw
    assert len({ref, Ref.from_raw(ref.raw, "Probe", ref.key)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        ref.counter = 4  # type: ignore[misc]


def test_instance_does_not_run_init() -> None:
    """Reading an object back runs no application code: neither __init__ nor __post_init__."""

    def post_init(_self: Any) -> None:
        raise AssertionError("ran")

    info = declare({"k": int}, body={"__post_init__": post_init})
    assert info.instance({"k": 4}).k == 4
