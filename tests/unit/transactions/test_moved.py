"""What a process remembers of an object that has moved to another partition (T8)."""

from __future__ import annotations

import pytest

from halog.backend import Found
from halog.schema import Registry, managed
from halog.testing.memory import MemoryBackend
from halog.transactions.space import Space

pytestmark = pytest.mark.feature("P6")

TYPES = Registry()


@managed(key="name", registry=TYPES)
class Thing:
    name: str
    text: str = ""


def test_a_version_of_another_partition_is_another_value() -> None:
    """Versions count positions in a log: the same number elsewhere says nothing."""
    info, space = TYPES.info(Thing), Space(MemoryBackend(), TYPES)
    key = info.index_key(("t",))
    there = Found(b"r" * 24, 17, info.encode(Thing("t", "before it moved")), key)
    here = Found(b"r" * 24, 17, info.encode(Thing("t", "since")), key)
    assert space.image(there, "p-0").values["text"] == "before it moved"
    image = space.image(here, "p-1")
    assert (image.partition, image.values["text"]) == ("p-1", "since")
    assert space.image(here, "p-1") is image
