"""Type ids are the same in every process and Python version, and differ where the stored bytes could."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest

from halog.schema import Decimals, Definition, Ref
from tests.unit.schema.fleet_example import FLEET
from tests.unit.schema.shapes_strategy import Target, declare

ROOT = Path(__file__).resolve().parents[3]
FIXED = {"Aircraft": "1ba1d3eefb90b72f", "Flight": "cfa913070134be04", "Jet": "bd3457f1746e4675"}


def test_fixed_ids() -> None:
    """These ids stand in logs. If this fails, every stored object became unreadable: fix the code, not the test."""
    assert {name: info.type_id.hex() for name, info in FLEET.by_name.items()} == FIXED
    assert FLEET.info("Jet").family_id.hex() == FLEET.info("Aircraft").family_id.hex() == "f57d67552b6f9f1b"


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_another_process_computes_the_same_ids(seed: str) -> None:
    """Neither hash randomisation nor import order reaches an id."""
    code = (
        "from tests.unit.schema.fleet_example import FLEET\n"
        "print({n: i.type_id.hex() for n, i in FLEET.by_name.items()})"
    )
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(FIXED)


def test_the_definition_is_canonical() -> None:
    """Parsing a definition gives the same text and id, so it does not matter who stores it."""
    for info in FLEET.by_name.values():
        parsed = Definition.parse(info.definition, info.type_id)
        assert (parsed.text, parsed.type_id, parsed.family_id) == (info.definition, info.type_id, info.family_id)
        assert (parsed.key, parsed.partition_by, parsed.version) == (
            info.key_fields,
            info.partition_fields,
            info.version,
        )


def colour(*names: str) -> Any:
    return enum.Enum("Colour", names, module=__name__, qualname="Colour")


def point(**fields: Any) -> Any:
    return dataclasses.make_dataclass("Point", list(fields.items()))


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"f": Annotated[Decimal, Decimals(10, 2)]}, {"f": Annotated[Decimal, Decimals(10, 4)]}),
    ({"f": int}, {"f": dt.datetime}),
    ({"f": int}, {"f": int | None}),
    ({"f": int}, {"g": int}),
    ({"f": int, "g": int}, {"g": int, "f": int}),
    ({"f": colour("A", "B")}, {"f": colour("B", "A")}),
    ({"f": list[int]}, {"f": dict[str, int]}),
    ({"f": point(x=int)}, {"f": point(x=float)}),
    ({"f": Ref[Target]}, {"f": Ref["Elsewhere"]}),  # type: ignore[name-defined]
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_what_changes_the_bytes_changes_the_id(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Avro's own fingerprint ignores logical types and defaults; ours must not."""
    assert declare({"k": int, **one}).type_id != declare({"k": int, **other}).type_id


def test_defaults_key_version_and_name_are_part_of_the_id() -> None:
    """Each of them changes how stored objects are read or found."""
    fields = {"k": int, "f": int}
    infos = [
        declare(fields),
        declare(fields, body={"f": 0}),
        declare(fields, body={"f": 1}),
        declare(fields, body={"f": dataclasses.field(default_factory=int)}),
        declare(fields, key=("k", "f")),
        declare(fields, key=("f", "k")),
        declare(fields, key=("k", "f"), partition_by="k"),
        declare(fields, version=1),
        declare(fields, name="Other"),
    ]
    assert len({i.type_id for i in infos}) == len(infos)


def test_an_enum_members_value_is_not_part_of_the_id() -> None:
    """Enums are stored by name, so their values are the application's own business."""
    one, two = enum.Enum("E", {"A": 1}), enum.Enum("E", {"A": 2})
    assert declare({"k": int, "f": one}).type_id == declare({"k": int, "f": two}).type_id
