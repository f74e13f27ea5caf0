"""JSON of a later halog is read, kept and written back (U1)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from halog.core import tolerant
from halog.core.ids import EpochId
from halog.core.table.table import (
    OUT,
    PartitionDefinition,
    PartitionTable,
    Replica,
    Resync,
    Target,
)
from halog.core.tolerant import TolerantDecoder, TolerantStruct

NEW = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != tolerant.UNKNOWN).map(lambda name: f"new {name}"),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


class Leaf(TolerantStruct, frozen=True, omit_defaults=True):
    size: int
    kind: str = "plain"


class Root(TolerantStruct, frozen=True):
    name: str
    leaves: tuple[Leaf, ...] = ()
    first: Leaf | None = None
    named: dict[str, Leaf] = msgspec.field(default_factory=dict)


ROOT = TolerantDecoder(Root)
TABLE = PartitionTable(
    "p-0",
    "00" * 16,
    "c.p",
    0,
    "p",
    ("A", "B"),
    1,
    epoch=EpochId(3, "east", 1),
    replicas=(Replica("B", 7, "sync"),),
    target=Target(("B", "C"), 1),
    definitions={"A": PartitionDefinition(("A",), 0, "enabled")},
    resync=Resync(("B",)),
)


@pytest.mark.feature("U1")
@given(NEW, NEW, NEW, NEW)
def test_what_is_not_known_stands_where_it_was(
    top: dict[str, Any], item: dict[str, Any], single: dict[str, Any], named: dict[str, Any]
) -> None:
    data = json.dumps(
        {
            "name": "x",
            "leaves": [{"size": 1, **item}, {"size": 2}],
            "first": {"size": 3, **single},
            "named": {"n": {"size": 4, **named}},
            **top,
        }
    ).encode()
    read = ROOT.decode(data)
    assert (read.name, read.leaves[1], read.first is None) == ("x", Leaf(2), False)
    assert json.loads(tolerant.encode(read)) == json.loads(data)
    renamed = msgspec.structs.replace(read, name="y")
    assert json.loads(tolerant.encode(renamed)) == {**json.loads(data), "name": "y"}
    assert tolerant.plain(read) == json.loads(data)


@pytest.mark.feature("U1")
def test_without_anything_new_the_bytes_are_those_of_the_fields() -> None:
    value = Root("~unknown", (Leaf(1),), named={"~x": Leaf(2)})
    assert tolerant.encode(value) == b'{"name":"~unknown","leaves":[{"size":1}],"first":null,"named":{"~x":{"size":2}}}'
    assert ROOT.decode(tolerant.encode(value)) == value


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"name": 1, "new": 2}', r"Expected `str`, got `int` - at `\$\.name`"),
        (b'{"new": 2}', "missing required field `name`"),
        (b'{"name": "x", "first": {"size": "s", "new": 1}}', r"at `\$\.first\.size`"),
        (b'["name"]', "Expected `object`, got `array`"),
        (b'{"name": "x"', "truncated"),
    ],
)
def test_what_is_wrong_is_told_by_its_place_whatever_else_is_new(data: bytes, says: str) -> None:
    with pytest.raises(msgspec.MsgspecError, match=says):
        ROOT.decode(data)


@pytest.mark.feature("U1")
def test_a_table_keeps_the_fields_of_a_later_version() -> None:
    fields = json.loads(TABLE.to_bytes())
    fields["later"] = {"a": [1, None]}
    fields["group"]["later"] = 1
    fields["target"]["later"] = "t"
    fields["replicas"][0]["later"] = 2.5
    fields["definitions"]["A"]["later"] = True
    fields["resync"]["later"] = []
    read = PartitionTable.from_bytes(json.dumps(fields).encode())
    assert (read.name, read.target is None, read.replicas[0].node) == ("p-0", False, "B")
    assert json.loads(read.to_bytes()) == fields
    assert read.resync is not None
    changed = msgspec.structs.replace(
        read,
        group=msgspec.structs.replace(read.group, required=1),
        replicas=tuple(r.as_async for r in read.replicas),
        resync=msgspec.structs.replace(read.resync, phase=OUT),
    )
    fields["group"] |= {"required": 1}
    fields["replicas"][0]["kind"] = "async"
    fields["resync"]["phase"] = OUT
    assert json.loads(changed.to_bytes()) == fields
    assert PartitionTable.from_bytes(TABLE.to_bytes()) == TABLE
