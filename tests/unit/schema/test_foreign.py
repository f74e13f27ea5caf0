"""Tools that import no application code: plain values, keys from the command line's words."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

from halog.errors import FieldTypeError, RecordFormatError
from halog.schema import Ref, Registry, decode_foreign
from tests.unit.schema.fleet_example import FLEET, Flight, Leg, Status

HOUR = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
FLIGHT = Flight(
    HOUR,
    "UA",
    1545,
    "N14228",
    Status.CANCELLED,
    Decimal("7.5"),
    [Leg("EWR", 1400)],
    {"a": "b"},
    Ref(1, 2, 3, "Aircraft", b"\x0cN14228"),
)
PLAIN = {
    "time_hour": "2013-01-01T05:00:00+00:00",
    "carrier": "UA",
    "flight": 1545,
    "tail": "N14228",
    "status": "CANCELLED",
    "price": "7.5",
    "legs": [{"origin": "EWR", "miles": 1400}],
    "notes": {"a": "b"},
    "aircraft": {
        "ref": "000000000000000100000000000000020000000000000003",
        "type": "Aircraft",
        "key": "0c4e3134323238",
    },
    "raw": "00ff",
}


def test_plain_values() -> None:
    """Every kind of field as JSON can hold it."""
    info = FLEET.info(Flight)
    assert decode_foreign(info.definition, info.encode(FLIGHT)) == PLAIN
    assert json.loads(json.dumps(PLAIN)) == PLAIN


def test_a_foreign_type_finds_the_same_partition_and_object() -> None:
    """Index key and routing key from words are those of the class."""
    info = FLEET.info(Flight)
    foreign = Registry().schema_for_foreign(info.definition)
    key = foreign.key_from_text(["2013-01-01T05:00:00+00:00", "UA", "1545", "N14228"])
    assert key == info.key_of(FLIGHT)
    assert foreign.index_key(key) == info.index_key(key)
    assert foreign.routing_key(key) == info.routing_key(key)
    assert foreign.decode_index_key(info.index_key(key)) == {n: PLAIN[n] for n in info.key_fields}


def test_a_subclass_is_found_in_its_family() -> None:
    """The family is that of the topmost base, also without any class."""
    foreign = Registry().schema_for_foreign(FLEET.info("Jet").definition)
    assert foreign.index_key(("N1",)) == FLEET.info("Aircraft").index_key(("N1",))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["x", "UA", "1", "N"], r"Flight\.time_hour"),
        (["2013-01-01T05:00:00+00:00", "UA", "one", "N"], r"Flight\.flight: expected an int, got 'one'"),
        (["UA"], r"the key is \(time_hour, carrier, flight, tail\), got 1"),
    ],
)
def test_wrong_words_are_named(words: list[str], why: str) -> None:
    """The operator is told which part of the key is wrong."""
    with pytest.raises(FieldTypeError, match=why):
        Registry().schema_for_foreign(FLEET.info(Flight).definition).key_from_text(words)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"flight": "x"}, r"Flight\.flight: expected int, got str"),
        ({"price": "x"}, r"Flight\.price"),
        ({"legs": [{"origin": 1, "miles": 1}]}, r"Flight\.legs\[0\]\.origin: expected str"),
        ({"legs": [{}]}, r"Flight\.legs\[0\]"),
        ({"status": "LOST"}, r"Flight\.status: expected one of LANDED, CANCELLED"),
        ({"extra": 1}, "missing or unknown field 'extra'"),
        ({"aircraft": {"ref": "00", "type": "Aircraft", "key": ""}}, r"Flight\.aircraft"),
        ({"raw": "zz"}, r"Flight\.raw"),
    ],
)
def test_wrong_plain_values_are_named(change: dict[str, object], why: str) -> None:
    """An import is checked like an assignment."""
    with pytest.raises(FieldTypeError, match=why):
        Registry().schema_for_foreign(FLEET.info(Flight).definition).encode({**PLAIN, **change})


def test_definitions_are_parsed_once() -> None:
    """The same definition gives the same reader."""
    registry = Registry()
    text = FLEET.info(Flight).definition
    assert registry.schema_for_foreign(text) is registry.schema_for_foreign(json.loads(text))


def test_a_foreign_index_key_of_another_family_is_refused() -> None:
    """The family id in front is compared."""
    foreign = Registry().schema_for_foreign(FLEET.info("Aircraft").definition)
    with pytest.raises(RecordFormatError, match="another type"):
        foreign.decode_index_key(b"\0" * 8 + b"\x02a")
