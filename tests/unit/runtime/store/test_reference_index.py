"""Which key a reference is under: what the store holds is looked through a little at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.adapters.memory import MemoryStore
from halog.core.ids import REF_BYTES
from halog.runtime.store.reference_index import EACH, EACH_BYTES, References

pytestmark = pytest.mark.feature("R2")

PREFIX = b"log"


class Counted(MemoryStore):
    """Tells how many bytes were read of it."""

    read = 0

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, data in super().scan(prefix, after):
            self.read += len(data)
            yield key, data


def ref(i: int) -> bytes:
    return i.to_bytes(REF_BYTES, "big")


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 3_000_000), (7, 600_000), (EACH, 0), (EACH + 1, 10)])
def test_a_question_reads_little_however_large_objects_are(count: int, size: int) -> None:
    """Commits may wait for it. In the end all of them are known, and the store says so."""
    store = Counted()
    store.write([(PREFIX + b"k" + b"%06d" % i, bytes(8) + ref(i) + bytes(size)) for i in range(count)])
    asked = References(store, PREFIX)
    asked.begin()
    turns = 0
    while store.get(PREFIX + b"r") is None:
        before, turns = store.read, turns + 1
        asked.look_on()
        assert store.read - before <= EACH_BYTES + size + 8 + REF_BYTES
        assert turns <= count + 1
    found = asked.keys_of({ref(i) for i in range(count + 1)}, {})
    assert found == {ref(i): b"%06d" % i for i in range(count)}
