"""The schemas topic: publishing, reading again on a miss, and refusing a class that cannot read what is stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.errors import LaterRecordError, RecordFormatError, SchemaChangedError, UnknownTypeError
from halog.ports import TopicPartition
from halog.runtime.topics.schema_publication import publish
from halog.runtime.topics.schemas import Definitions, bring
from halog.schema import Definition, Registry, managed

TOPIC = "c.schemas"
TP = TopicPartition(TOPIC, 0)


def flights() -> Registry:
    registry = Registry()

    @managed(key="tail", registry=registry)
    class Aircraft:
        tail: str
        miles: int = 0

    return registry


def flights_with(annotation: Any, default: Any) -> Registry:
    """The same type with one more field."""
    registry = Registry()

    class Aircraft:
        tail: str
        miles: int = 0
        extra = default

    Aircraft.__annotations__ = {"tail": str, "miles": int, "extra": annotation}
    managed(key="tail", registry=registry)(Aircraft)
    return registry


def renamed() -> Registry:
    """A definition of the same name that cannot read the first one."""
    registry = Registry()

    @managed(key="tail", registry=registry)
    class Aircraft:
        tail: str
        miles: str = ""

    return registry


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(MemoryBroker())
    log.ensure_topic(TOPIC, 1, compacted=True)
    return log


def stored(log: MemoryLog) -> dict[bytes, bytes | None]:
    return dict(log.read_keyed(TP))


@pytest.mark.feature("U2")
def test_a_declared_type_is_published_once_under_its_type_id(log: MemoryLog) -> None:
    """Publishing writes the canonical JSON under the type id, and a second node adds nothing."""
    registry = flights()
    info = registry.info("Aircraft")
    publish(log, TOPIC, registry)
    publish(log, TOPIC, flights())
    assert stored(log) == {info.type_id: info.definition.encode()}
    assert len(list(log.read_keyed(TP))) == 1


@pytest.mark.feature("U2", "U3")
def test_a_newer_definition_stands_beside_the_older(log: MemoryLog) -> None:
    """A class with one more defaulted field starts, and both definitions stay readable, the newest being current."""
    publish(log, TOPIC, flights())
    newer = flights_with(int, 7)
    definitions = publish(log, TOPIC, newer)
    assert [d.type_id for d in definitions.named("Aircraft")] == [
        flights().info("Aircraft").type_id,
        newer.info("Aircraft").type_id,
    ]
    assert definitions.current("Aircraft").type_id == newer.info("Aircraft").type_id


@pytest.mark.feature("U3")
def test_a_class_that_cannot_read_a_stored_definition_is_refused_and_writes_nothing(log: MemoryLog) -> None:
    """SchemaChangedError names type and field, and the topic stays as it was."""
    publish(log, TOPIC, flights())
    with pytest.raises(SchemaChangedError, match=r"Aircraft\.miles") as caught:
        publish(log, TOPIC, renamed())
    assert caught.value.evidence["stored"]
    assert caught.value.evidence["declared"]
    assert len(list(log.read_keyed(TP))) == 1


def test_a_miss_reads_the_topic_again(log: MemoryLog) -> None:
    """A definition published after the cache was filled is found."""
    definitions = Definitions(log, TOPIC)
    assert definitions.all() == ()
    publish(log, TOPIC, flights())
    type_id = flights().info("Aircraft").type_id
    assert definitions.find(type_id).name == "Aircraft"
    assert definitions.of(type_id + b"rest").type_id == type_id


def test_a_miss_without_news_does_not_read_the_topic_again(log: MemoryLog) -> None:
    """A log full of values of an unknown type costs one look at the topic's end each, not a read of the topic."""
    publish(log, TOPIC, flights())
    reads = 0

    class Counting(MemoryLog):
        def read_keyed(self, tp: TopicPartition, start: int = 0) -> Any:
            nonlocal reads
            reads += 1
            return super().read_keyed(tp, start)

    definitions = Definitions(Counting(log.broker), TOPIC)
    for _ in range(3):
        with pytest.raises(UnknownTypeError, match="0011"):
            definitions.find(bytes.fromhex("0011223344556677"))
    assert reads == 1


def test_a_type_nobody_published_is_named_with_the_nearest_known_one(log: MemoryLog) -> None:
    """A misspelt type name is answered with the one probably meant."""
    definitions = publish(log, TOPIC, flights())
    with pytest.raises(UnknownTypeError, match="did you mean Aircraft"):
        definitions.named("Aircaft")


@dataclass
class Damage:
    key: bytes
    value: bytes


@pytest.mark.parametrize(
    "damage",
    [
        Damage(b"12345678", b"no json"),
        Damage(b"12345678", flights().info("Aircraft").definition.encode()),
        Damage(b"short", b"{}"),
    ],
    ids=["no definition", "another's key", "short key"],
)
def test_a_damaged_entry_is_an_error_for_its_own_type_only(log: MemoryLog, damage: Damage) -> None:
    """One bad entry is named when its type is asked for; every other type stays readable."""
    publish(log, TOPIC, flights())
    log.put(TP, damage.key, damage.value)
    definitions = Definitions(log, TOPIC)
    assert definitions.current("Aircraft").name == "Aircraft"
    with pytest.raises(RecordFormatError, match=damage.key.hex()):
        definitions.find(damage.key)


@pytest.mark.feature("U1", "U2")
@pytest.mark.parametrize("change", [b'"unit":"km",', b'"version":"2.1",'], ids=["a field", "a value"])
def test_a_definition_of_a_later_version_is_told_as_such_and_brought_as_it_is(log: MemoryLog, change: bytes) -> None:
    """It is not damaged: its key is the hash of its bytes. A site that mirrors has it for who can read it."""
    publish(log, TOPIC, flights())
    text = flights().info("Aircraft").definition.encode()
    later = text.replace(b'"version":null,', b"" if b"version" in change else b'"version":null,')
    later = b"{" + change + later[1:]
    key = hashlib.sha256(later).digest()[:8]
    log.put(TP, key, later)
    definitions = Definitions(log, TOPIC)
    assert definitions.current("Aircraft").name == "Aircraft"
    with pytest.raises(LaterRecordError, match=f"key {key.hex()}: a definition that a later version of halog wrote"):
        definitions.find(key)
    with pytest.raises(UnknownTypeError, match=r"no type named Route .*; 1 definition that halog .* may be of it"):
        definitions.named("Route")
    here = MemoryLog(MemoryBroker())
    here.ensure_topic(TOPIC, 1, compacted=True)
    bring(log, here, TP)
    assert stored(here)[key] == later


def test_types_of_a_family_are_found_by_their_base(log: MemoryLog) -> None:
    """A base's family holds the types derived from it."""
    registry = flights()
    base: type[Any] = registry.info("Aircraft").cls

    @managed(registry=registry)
    class Seaplane(base):  # type: ignore[misc]
        floats: int = 2

    definitions = publish(log, TOPIC, registry)
    assert definitions.family("Aircraft") == ("Aircraft", "Seaplane")
    assert definitions.foreign(registry.info("Seaplane").type_id).name == "Seaplane"
    assert isinstance(definitions.find(registry.info("Seaplane").type_id), Definition)
