"""Golden vectors from a typed key to its partition: key → bytes → hash → slot → partition (P6).

They are data: on disks and in logs objects lie where these numbers say. A test that fails here says that objects of
every cluster there is would be looked for elsewhere; the code is to be mended, not the numbers.
"""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from halog.config import load_config
from halog.runtime.keys.key_owners import Places
from halog.schema import managed
from halog.schema.registry import Registry
from mappers import ConsistentHash, stable_hash

pytestmark = pytest.mark.feature("P6")

REGISTRY = Registry()


class Cabin(enum.Enum):
    ECONOMY = "Y"
    BUSINESS = "C"


@managed(key="key", name="ByText", registry=REGISTRY)
class ByText:
    key: str


@managed(key="key", name="ByNumber", registry=REGISTRY)
class ByNumber:
    key: int


@managed(key="key", name="ByBytes", registry=REGISTRY)
class ByBytes:
    key: bytes


@managed(key="key", name="ByFlag", registry=REGISTRY)
class ByFlag:
    key: bool


@managed(key="key", name="ByMoment", registry=REGISTRY)
class ByMoment:
    key: dt.datetime


@managed(key="key", name="ByDate", registry=REGISTRY)
class ByDate:
    key: dt.date


@managed(key="key", name="ByUuid", registry=REGISTRY)
class ByUuid:
    key: UUID


@managed(key="key", name="ByEnum", registry=REGISTRY)
class ByEnum:
    key: Cabin


@managed(key="key", name="ByDecimal", registry=REGISTRY)
class ByDecimal:
    key: Decimal


@managed(key=("airport", "day", "number"), name="ByAll", registry=REGISTRY)
class ByAll:
    airport: str
    day: dt.date
    number: int


@managed(key=("airport", "day", "number"), partition_by=("number", "airport"), name="BySome", registry=REGISTRY)
class BySome:
    """Routed by two of three, in another order than they are written in."""

    airport: str
    day: dt.date
    number: int


class Vector(NamedTuple):
    """`small`, `large`: slot and partition of six by a ring of 1,000, and of the default's 65,536. `routed`: the bytes
    that are hashed, where they are not the whole key."""

    type_name: str
    key: tuple[Any, ...]
    key_bytes: str
    hash: int
    small: tuple[int, str]
    large: tuple[int, str]
    routed: str = ""


UTC = dt.UTC
VECTORS = [
    Vector(
        "ByText",
        ("D-AIBL",),
        "0c442d4149424c",
        13355726544651695881,
        (881, "p-4"),
        (14089, "p-4"),
    ),
    Vector(
        "ByText",
        ("",),
        "00",
        15268953707587100349,
        (349, "p-2"),
        (57021, "p-4"),
    ),
    Vector(
        "ByText",
        ("Zürich 東京 🛫",),
        "265ac3bc7269636820e69db1e4baac20f09f9bab",
        14820519992583184568,
        (568, "p-1"),
        (57528, "p-4"),
    ),
    Vector(
        "ByNumber",
        (0,),
        "00",
        15268953707587100349,
        (349, "p-2"),
        (57021, "p-4"),
    ),
    Vector(
        "ByNumber",
        (42,),
        "54",
        3657388850649807824,
        (824, "p-3"),
        (48080, "p-4"),
    ),
    Vector(
        "ByNumber",
        (-1,),
        "01",
        9265227769592608801,
        (801, "p-3"),
        (63521, "p-5"),
    ),
    Vector(
        "ByNumber",
        (9223372036854775807,),
        "feffffffffffffffff01",
        5655509965521452411,
        (411, "p-2"),
        (32123, "p-2"),
    ),
    Vector(
        "ByNumber",
        (-9223372036854775808,),
        "ffffffffffffffffff01",
        3976222039045989430,
        (430, "p-2"),
        (25654, "p-2"),
    ),
    Vector(
        "ByBytes",
        (b"",),
        "00",
        15268953707587100349,
        (349, "p-2"),
        (57021, "p-4"),
    ),
    Vector(
        "ByBytes",
        (b"\x00\xff42",),
        "0800ff3432",
        9856334822164583480,
        (480, "p-2"),
        (54328, "p-3"),
    ),
    Vector(
        "ByFlag",
        (False,),
        "00",
        15268953707587100349,
        (349, "p-2"),
        (57021, "p-4"),
    ),
    Vector(
        "ByFlag",
        (True,),
        "01",
        9265227769592608801,
        (801, "p-3"),
        (63521, "p-5"),
    ),
    Vector(
        "ByMoment",
        (dt.datetime(2026, 11, 23, 12, 0, 0, 1, tzinfo=UTC),),
        "82c081d58abcb006",
        7814732114924669455,
        (455, "p-2"),
        (2575, "p-0"),
    ),
    Vector(
        "ByMoment",
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),),
        "01",
        9265227769592608801,
        (801, "p-3"),
        (63521, "p-5"),
    ),
    Vector(
        "ByDate",
        (dt.date(2026, 11, 23),),
        "d8c402",
        12388603157835281746,
        (746, "p-4"),
        (62802, "p-4"),
    ),
    Vector(
        "ByDate",
        (dt.date(1969, 12, 31),),
        "01",
        9265227769592608801,
        (801, "p-3"),
        (63521, "p-5"),
    ),
    Vector(
        "ByUuid",
        (UUID("12345678-9abc-def0-1234-56789abcdef0"),),
        "4831323334353637382d396162632d646566302d313233342d353637383961626364656630",
        16017504118208140499,
        (499, "p-2"),
        (5331, "p-0"),
    ),
    Vector(
        "ByEnum",
        (Cabin.ECONOMY,),
        "00",
        15268953707587100349,
        (349, "p-2"),
        (57021, "p-4"),
    ),
    Vector(
        "ByEnum",
        (Cabin.BUSINESS,),
        "02",
        5222910275101508645,
        (645, "p-1"),
        (50213, "p-3"),
    ),
    Vector(
        "ByDecimal",
        (Decimal("-1.5"),),
        "08a697d100",
        14823765726798394123,
        (123, "p-0"),
        (45835, "p-5"),
    ),
    Vector(
        "ByDecimal",
        (Decimal("12345678901234567890.123456789"),),
        "1827e41b3246bec9b16e398115",
        5811935731972548479,
        (479, "p-2"),
        (42879, "p-1"),
    ),
    Vector(
        "ByAll",
        ("FRA", dt.date(2026, 11, 23), 400),
        "06465241d8c402a006",
        18037198464366127711,
        (711, "p-4"),
        (43615, "p-1"),
    ),
    Vector(
        "ByAll",
        ("", dt.date(1970, 1, 1), -3),
        "000005",
        6200518565324639377,
        (377, "p-2"),
        (52369, "p-3"),
    ),
    Vector(
        "BySome",
        ("FRA", dt.date(2026, 11, 23), 400),
        "06465241d8c402a006",
        17844761626873263673,
        (673, "p-5"),
        (30265, "p-2"),
        "a00606465241",
    ),
    Vector(
        "BySome",
        ("FRA", dt.date(2026, 11, 24), 400),
        "06465241dac402a006",
        17844761626873263673,
        (673, "p-5"),
        (30265, "p-2"),
        "a00606465241",
    ),
]
FAMILIES = {
    "ByText": "31c660f136e2f459",
    "ByNumber": "67e4336280b3ba69",
    "ByBytes": "c8fa912328e86d49",
    "ByFlag": "7edaa7b8fdac8114",
    "ByMoment": "dc1e480d640acb68",
    "ByDate": "3ebbc1c93b69f2eb",
    "ByUuid": "d87f82b3f7a7ef9b",
    "ByEnum": "3b56461fd3c319ce",
    "ByDecimal": "385d8cff578c0448",
    "ByAll": "db4c94d1347c45b3",
    "BySome": "86acc6882ce2e6da",
}

CONFIG = """
[cluster]
name = "golden"
[site]
bootstrap = "localhost:1"
zookeeper = "localhost:2"
[zones.zone]
nodes = ["A", "B"]
[policies.p]
zone = "zone"
partitions = 6
{ring}
[bindings]
"*" = "p"
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
"""


@pytest.fixture(params=["small", "large"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int, Places]:
    """As a node finds out from its file."""
    ring = {"small": "ring_size = 1000", "large": ""}[request.param]
    file = tmp_path / "halog.toml"
    file.write_text(CONFIG.format(ring=ring))
    size = {"small": 1_000, "large": 65_536}[request.param]
    return request.param, size, Places(load_config(file), lambda name: REGISTRY.info(name).parsed)


def test_a_familys_bytes_are_the_same_for_ever() -> None:
    """They stand before the key in every store and every log."""
    assert {name: info.family_id.hex() for name, info in REGISTRY.by_name.items()} == FAMILIES


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_a_keys_bytes_are_the_same_for_ever(vector: Vector) -> None:
    info = REGISTRY.info(vector.type_name)
    assert info.encode_key(vector.key).hex() == vector.key_bytes
    assert info.index_key(vector.key).hex() == FAMILIES[vector.type_name] + vector.key_bytes
    assert info.decode_index_key(info.index_key(vector.key)) == vector.key
    assert info.routing_key(vector.key).hex() == (vector.routed or vector.key_bytes)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_a_key_is_in_the_same_partition_for_ever(vector: Vector, places: tuple[str, int, Places]) -> None:
    which, size, known = places
    routing = REGISTRY.info(vector.type_name).routing_key(vector.key)
    slot, partition = getattr(vector, which)
    assert stable_hash(routing) == vector.hash
    assert ConsistentHash(6, size).slot(routing) == slot
    assert known.owner(vector.type_name).partition(vector.type_name, routing) == partition
