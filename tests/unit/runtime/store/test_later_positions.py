"""A position that a later version of halog stored: what it says beyond what is known here is not passed over (U1)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core.log.chain import ChainState
from halog.errors import StoreError
from halog.release import LEVEL
from halog.runtime.store.encoding import StoredPosition, unpack_position

pytestmark = pytest.mark.feature("U1")

POSITION = StoredPosition(ChainState(bytes(16), "here", lsn=3), 5, 4, b"")


@pytest.mark.parametrize("where", [(), ("state",)], ids=["beside", "of the chain"])
def test_a_field_that_is_not_known_makes_the_store_a_later_versions(where: tuple[str, ...]) -> None:
    """Its objects may stand on it, so the store is set aside and made anew from the log."""
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(POSITION))
    at = raw
    for name in where:
        at = at[name]
    at["tier"] = 2
    with pytest.raises(
        StoreError, match="not readable by this version: its position has 'tier', which a later"
    ) as told:
        unpack_position(msgspec.msgpack.encode(raw))
    assert (told.value.evidence["rebuild"], told.value.evidence["later"]) == (True, True)


def test_a_level_that_is_not_known_does_so_too() -> None:
    """Objects of that level may stand beside it."""
    at_level = msgspec.structs.replace(POSITION.state, level=LEVEL + 1)
    said = f"its history states level {LEVEL + 1}, and halog .* knows up to {LEVEL}"
    with pytest.raises(StoreError, match=said) as told:
        unpack_position(msgspec.msgpack.encode(msgspec.structs.replace(POSITION, state=at_level)))
    assert told.value.evidence["rebuild"] is True


def test_a_position_of_this_version_is_read() -> None:
    assert unpack_position(msgspec.msgpack.encode(POSITION)) == POSITION
