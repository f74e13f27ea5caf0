"""Values as Arrow columns: every type there is, and definitions that changed. No Spark session."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark.errors import PySparkException

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.backend import CommittedObject
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.errors import LaterRecordError, RecordFormatError, SchemaChangedError
from halog.ports import TopicPartition
from halog.runtime.rpc.pages import pieces
from halog.runtime.topics.schemas import Definitions
from halog.schema import Definition, Ref, Registry, managed
from halog.schema.definition import ID_BYTES
from halog.schema.shapes import ListShape, MapShape, OptionalShape, RecordShape, RefShape, Scalar, Shape
from spark_jobs import reader
from spark_jobs.columns import arrow_schema, batch, struct_of
from spark_jobs.command import run
from spark_jobs.history import Step
from spark_jobs.rows import Changes, Values, change_schema, object_rows, object_schema
from spark_jobs.site import Family
from spark_jobs.snapshot import NOW
from tests.unit.schema.shapes_strategy import ANNOTATED, declare


def family(name: str, *types: Any) -> Family:
    """Of classes; the last one of a name is the newest."""
    parsed = [t.__halog__.parsed for t in types]
    current = {d.name: d.text for d in parsed}
    return Family(name, parsed[0].family_id, current, {d.type_id: d.text for d in parsed}, (), KafkaAccess(""), "")


def said(shape: Shape, value: Any) -> Any:
    """What a value of the application is to be in Arrow, told apart from the converters."""
    match shape:
        case OptionalShape(of):
            return None if value is None else said(of, value)
        case ListShape(of):
            return [said(of, v) for v in value]
        case MapShape(of):
            return [(k, said(of, v)) for k, v in value.items()]
        case RecordShape(fields=fields):
            return {f.name: said(f.shape, getattr(value, f.name)) for f in fields}
        case RefShape():
            return {"reference": value.raw, "type": value.type_name, "key": value.key}
        case Scalar("time"):
            return dt.timedelta(0, (value.hour * 60 + value.minute) * 60 + value.second, value.microsecond)
        case Scalar("float"):
            return float(value)
        case Scalar("uuid"):
            return str(value)
        case _:
            return value.name if isinstance(value, enum.Enum) else value


@pytest.mark.feature("S2")
@settings(max_examples=60)
@given(st.data())
def test_every_value_of_every_type_has_its_column(data: st.DataObject) -> None:
    annotation, values = data.draw(ANNOTATED)
    info = declare({"k": int, "x": annotation})
    shape = info.parsed.shape("x")
    given_ = data.draw(st.lists(values, min_size=1, max_size=3))
    read = Values(family(info.name, info.cls)).read
    rows = []
    for i, value in enumerate(given_):
        obj = info.instance({"k": i, "x": value})
        found = read(info.encode(obj))
        assert found is not None
        assert found.fields is not None
        rows.append(tuple(found.fields.values()))
    schema = arrow_schema(struct_of(info.parsed.record.fields))
    assert schema.field("x").nullable is isinstance(shape, OptionalShape)
    made = batch(schema, rows)
    made.validate(full=True)
    assert made.column(1).to_pylist() == [said(shape, v) for v in given_]


class Kind(enum.Enum):
    JET = 1


OLD, NEW = Registry(), Registry()


@managed(key="tail", name="Craft", registry=OLD)
class Before:
    tail: str
    weight: int = 0
    gone: str = "x"


@managed(key="tail", name="Craft", registry=NEW)
class After:
    tail: str
    weight: float = 0.0
    seats: int = 7
    kind: Kind = Kind.JET
    tags: list[str] = dataclasses.field(default_factory=list)
    by: Ref[Before] | None = None


@pytest.mark.feature("S2", "U2")
def test_older_values_have_the_columns_of_the_newest_definition() -> None:
    """A field added since has its default, a removed one is gone, an int is a float now."""
    both = family("Craft", Before, After)
    assert [f.name for f in object_schema(both).fields][:6] == ["tail", "weight", "seats", "kind", "tags", "by"]
    read = Values(both).read
    old = read(Before.__halog__.encode(Before("N1", 3)))  # type: ignore[attr-defined]
    assert old is not None
    assert old.fields == {"tail": "N1", "weight": 3.0, "seats": 7, "kind": "JET", "tags": [], "by": None}
    new = read(After.__halog__.encode(After("N2", seats=1)))  # type: ignore[attr-defined]
    assert new is not None
    assert new.fields is not None
    assert (new.fields["tail"], new.fields["seats"]) == ("N2", 1)


FAMILY = Registry()


@managed(key=("line", "number"), partition_by="line", registry=FAMILY)
class Base:
    line: str
    number: int
    note: str | None = None


@managed(registry=FAMILY)
class Derived(Base):
    more: int = 0


@managed(registry=FAMILY)
class Changed(Base):
    note: str = ""  # type: ignore[assignment]


@pytest.mark.feature("S2")
def test_a_subclass_that_changed_a_field_of_its_base_is_refused_by_name() -> None:
    object_schema(family("Base", Base, Derived))
    with pytest.raises(SchemaChangedError, match=r"Changed\.note: is not what Base declares"):
        object_schema(family("Base", Base, Derived, Changed))


def change(op: int, key: tuple[Any, ...], after: Any, before: Any, replaced: int) -> Change:
    def encoded(obj: Any) -> bytes | None:
        return None if obj is None else type(obj).__halog__.encode(obj)

    index_key: Callable[..., bytes] = Base.__halog__.index_key  # type: ignore[attr-defined]
    return Change(op, b"r" * 24, index_key(key), encoded(after), replaced, encoded(before))


@pytest.mark.feature("S2")
def test_changes_are_rows_of_the_types_that_were_asked_for() -> None:
    """A type that was not asked for has none; a deletion without a before-image has no type, and is told."""
    asked = family("Base", Base)
    derived, base = Derived("a", 1, more=2), Base("a", 2, "n")
    steps = (
        change(CREATE, ("a", 1), derived, None, -1),
        change(CREATE, ("a", 2), base, None, -1),
        change(UPDATE, ("a", 2), Base("a", 2), base, 5),
        change(DELETE, ("a", 2), None, None, 6),
        change(DELETE, ("a", 1), None, derived, 5),
    )
    stored = {t.__halog__.type_id: t.__halog__.definition for t in (Base, Derived)}  # type: ignore[attr-defined]
    whole = Family("Base", asked.family_id, asked.current, stored, (), KafkaAccess(""), "", subtypes=False)
    newer = Family("Base", asked.family_id, asked.current, stored, (), KafkaAccess(""), "")
    with pytest.raises(SchemaChangedError, match="type Derived, derived from Base, is newer than this query"):
        list(Changes(newer, "p-0").rows(Step(7, 2, 70, 1_000, b"t" * 16, steps)))
    rows = list(Changes(whole, "p-0").rows(Step(7, 2, 70, 1_000, b"t" * 16, steps)))
    made = batch(arrow_schema(change_schema(whole)), rows).to_pylist()
    assert [(r["op"], r["type"], r["key"], r["replaced"]) for r in made] == [
        ("create", "Base", {"line": "a", "number": 2}, None),
        ("update", "Base", {"line": "a", "number": 2}, 5),
        ("delete", None, {"line": "a", "number": 2}, 6),
    ]
    assert made[1]["before"] == {"line": "a", "number": 2, "note": "n"}
    assert made[1]["after"]["note"] is None
    assert (made[0]["lsn"], made[0]["epoch"], made[0]["offset"]) == (7, 2, 70)
    assert made[0]["time"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert isinstance(made[0]["tx"], bytes)
    assert Definition.parse(whole.current["Base"]).key == ("line", "number")
    assert pa.types.is_struct(arrow_schema(change_schema(whole)).field("key").type)


@pytest.mark.feature("S2")
def test_what_cannot_be_read_is_named_and_stops_no_history() -> None:
    """Of objects it is an error that says which one; a change that is in the log for good has a row without fields."""
    asked, type_id = family("Base", Base), Base.__halog__.type_id  # type: ignore[attr-defined]
    key = Base.__halog__.index_key(("a", 1))  # type: ignore[attr-defined]
    spoilt = type_id + b"\x02a" + b"\x80" * 20
    good = CommittedObject(b"s" * 24, 7, Base.__halog__.encode(Base("a", 2)), Base.__halog__.index_key(("a", 2)))  # type: ignore[attr-defined]
    with pytest.raises(RecordFormatError, match=f"partition p-0, key bytes {key[8:].hex()}: .*halog delete"):
        list(object_rows(Values(asked), "p-0", 9, [good, CommittedObject(b"r" * 24, 7, spoilt, key)]))
    steps = (Change(CREATE, b"r" * 24, key, spoilt, -1, None), change(CREATE, ("a", 2), Base("a", 2), None, -1))
    rows = list(Changes(asked, "p-0").rows(Step(7, 2, 70, 1_000, b"t" * 16, steps)))
    made = batch(arrow_schema(change_schema(asked)), rows).to_pylist()
    assert [(r["type"], r["key"]["number"], r["after"] is None) for r in made] == [
        ("Base", 1, True),
        ("Base", 2, False),
    ]


LATER = b'{"unit":"km",' + Base.__halog__.definition.encode()[1:]  # type: ignore[attr-defined]
LATER_ID = hashlib.sha256(LATER).digest()[:ID_BYTES]


class OfLater(Family, frozen=True):
    """A family with objects of a definition that a later halog has published since."""

    def stored_as(self, value: bytes) -> Definition:
        log = MemoryLog(MemoryBroker())
        log.ensure_topic("c.schemas", 1, compacted=True)
        log.put(TopicPartition("c.schemas", 0), LATER_ID, LATER)
        return Definitions(log, "c.schemas").find(value[:ID_BYTES])


@pytest.mark.feature("U1", "S2")
def test_an_object_of_a_later_versions_definition_is_told_as_such() -> None:
    """By objects and by changes: it is not damaged, so it has no row without fields, and nobody deletes it."""
    of = family("Base", Base)
    asked = OfLater("Base", of.family_id, of.current, of.stored, (), KafkaAccess(""), "")
    key = Base.__halog__.index_key(("a", 1))  # type: ignore[attr-defined]
    value = LATER_ID + b"whatever it says"
    with pytest.raises(LaterRecordError, match=f"^partition p-0, key bytes {key[8:].hex()}: .*Upgrade") as caught:
        list(object_rows(Values(asked), "p-0", 9, [CommittedObject(b"r" * 24, 7, value, key)]))
    assert (caught.value.evidence["partition"], "halog delete" in str(caught.value)) == ("p-0", False)
    step = Step(7, 2, 70, 1_000, b"t" * 16, (Change(CREATE, b"r" * 24, key, value, -1),))
    with pytest.raises(LaterRecordError, match=r"^partition p-0: .*Upgrade"):
        list(Changes(asked, "p-0").rows(step))


@pytest.mark.feature("U1", "S2")
@pytest.mark.parametrize(
    ("told", "code"),
    [("LaterRecordError: partition p-0: a record of kind 12", 7), ("RecordFormatError: bytes that are no record", 1)],
)
def test_a_job_ends_as_its_executor_says(told: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark hands on what an executor raised as text."""

    @click.command
    def job() -> None:
        raise PySparkException(f"Traceback …\n  File rows.py\nhalog.errors.{told}\n\n\tat org.apache.spark …")

    assert run(job, "job", []) == code
    assert capsys.readouterr().err == f"halog: {told.split(': ', 1)[1]}\n"


@pytest.mark.feature("S2")
def test_large_objects_are_handed_to_spark_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow takes 2 GB in a column, and a batch is held in memory: a number of rows alone bounds neither."""
    both = family("Craft", Before, After)
    values = [After.__halog__.encode(After(f"N{i}" + "x" * 1_000_000)) for i in range(40)]  # type: ignore[attr-defined]
    found = {b"%d" % i: CommittedObject(bytes(24), i, value, b"%d" % i) for i, value in enumerate(values)}
    place: Any = SimpleNamespace(name="p-0")
    monkeypatch.setattr(reader, "partitions", lambda *_: [(None, place)])
    monkeypatch.setattr(reader, "objects_at", lambda *_: SimpleNamespace(lsn=9, found=found))
    schema = arrow_schema(object_schema(both))
    made = list(reader._Objects(both, {"p-0": NOW}, schema)([]))
    assert sum(b.num_rows for b in made) == 40
    assert max(b.nbytes for b in made) <= 17_000_000
    steps = [Step(i, 1, i, 0, bytes(16), (Change(CREATE, bytes(24), b"", v, -1, None),)) for i, v in enumerate(values)]
    assert [len(some) for some in pieces(steps, reader.step_size, reader.BATCH_BYTES)] == [15, 15, 10]
