"""What a process remembers of an object that has moved to another partition (T8)."""

from __future__ import annotations

import time

import pytest

from halog.backend import Found, Mapped
from halog.errors import ConflictError, DeadlineError, RemappedError
from halog.schema import Registry, managed
from halog.testing.memory import MemoryBackend
from halog.transactions.families import entry_at
from halog.transactions.node import Node as MemoryNode
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


def test_what_was_read_before_the_mapping_changed_is_a_conflict_where_it_belongs_now() -> None:
    """Not the error of classes that are bound to different policies: running the transaction again helps."""
    backend = MemoryBackend()
    with MemoryNode(backend, TYPES) as node:
        with node.transaction():
            node.create(Thing("t"))
        with pytest.raises(ConflictError, match="by now; run the transaction again"), node.transaction() as tx:
            node.get(Thing, "t")
            entry = tx.entries[TYPES.info(Thing).index_key(("t",))]
            assert entry_at(tx, entry.key, entry.partition) is entry
            backend.mapped = Mapped()
            entry_at(tx, entry.key, "elsewhere")


def test_what_is_refused_again_and_again_ends_in_time() -> None:
    backend = MemoryBackend()
    backend.deadline_s = 0.02
    space = Space(backend, TYPES)
    error = RemappedError("routed by an older mapping", partition="p-3", mapping=1)
    since = space.relearn(error)
    assert space.relearn(error, since) == since
    time.sleep(0.03)
    with pytest.raises(DeadlineError, match="partition p-3 serves mapping version 1 and has refused"):
        space.relearn(error, since)
    space.relearn(error)  # somebody else begins
