"""Custom mappers as the configuration names them, and the bindings a cluster holds."""

from __future__ import annotations

import enum
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.config import Config, parse_config
from halog.config.changes import tree
from halog.errors import ConfigError, CoordinatorError, MapperError, UnknownTypeError
from halog.metadata import bindings
from halog.runtime.keys.key_owners import Places, function_of, import_module
from halog.runtime.keys.loads import PartitionLoads
from halog.runtime.keys.mapping_cache import MappingCache
from halog.runtime.keys.routing import Routing
from halog.schema import Registry, managed
from halog.testing.cluster import wait_until
from tests.unit.cli.partition import placing

pytestmark = pytest.mark.feature("P6")

MODULE = "tests.unit.cli.partition.placing"
TYPES = Registry()


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@managed(key=("region", "size", "number"), partition_by=("size", "region"), registry=TYPES)
class Order:
    region: str
    size: Size
    number: int


@managed(registry=TYPES)
class Gift(Order):
    text: str = ""


@managed(registry=TYPES)
class LateGift(Gift):
    days: int = 0


DEFINITIONS = {info.name: info.parsed for info in TYPES.by_name.values()}


def config(mapper: str = f"{MODULE}:by_region", modules: str = MODULE, **bound: str) -> Config:
    return parse_config(
        {
            "cluster": {"name": "t"},
            "site": {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:2"},
            "application": {"modules": [modules]},
            "zones": {"main": {"nodes": ["A"]}},
            "policies": {
                "p": {"zone": "main", "sync_replicas": 0},
                "own": {"zone": "main", "kind": "static", "mapper": mapper, "partitions": {"eu": ["A"], "us": ["A"]}},
            },
            "bindings": bound or {"*": "p", "Order": "own"},
            "nodes": {"A": {"data_dir": "A"}},
        },
        "halog.toml",
        Path("/tmp"),
    )


def agree(coordinator: MemoryCoordinator, settings: Config, *names: str, stored: tuple[str, ...] = ()) -> Any:
    return bindings.agree(coordinator, settings, [DEFINITIONS[n] for n in names or DEFINITIONS], lambda: stored)


def test_a_mapper_is_told_the_topmost_base_and_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of partition_by; enums by name, as tools have them."""
    asked: list[Any] = []

    def by(name: str, key: tuple[Any, ...]) -> str:
        asked.append((name, key))
        return "us"

    monkeypatch.setattr(placing, "by_region", by)
    owner = Places(config(), DEFINITIONS.get).owner("LateGift")
    routing = TYPES.info(LateGift).routing_key(("eu", Size.LARGE, 7))
    assert owner.partition("LateGift", routing) == "us"
    assert set(asked) == {("Order", ("LARGE", "eu"))}
    with pytest.raises(MapperError, match=r"malformed routing key ff; nothing was done"):
        owner.partition("LateGift", b"\xff")
    with pytest.raises(UnknownTypeError, match="cannot be given its key"):
        Places(config(Other="own"), DEFINITIONS.get).owner("Other")


@pytest.mark.parametrize(
    ("mapper", "modules", "why"),
    [
        (f"{MODULE}:nobody", MODULE, "has no attribute 'nobody'"),
        (f"{MODULE}:WORD", MODULE, "it is a str, which cannot be called"),
        (f"{MODULE}:versioned.nothing", MODULE, "has no attribute 'nothing'"),
        ("tests.unit.cli.conftest:json.dumps", "tests.unit.cli.conftest", "json is a module; name a callable of"),
        ("tests.unit.no_such:f", "tests.unit.no_such", "which cannot be imported: No module named"),
    ],
)
def test_a_mapper_that_is_not_there_is_named(mapper: str, modules: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        function_of(config(mapper, modules), "own")


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os\n1 / 0", r"ZeroDivisionError: division by zero \(.*failing\.py, line 2\)"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3 \(.*failing\.py, line 2\)"),
        ("import asyncio\nraise asyncio.CancelledError", r"CancelledError:  \(.*failing\.py, line 2\)"),
        ("def f(:", r"SyntaxError: invalid syntax \(failing\.py, line 1\)"),
        (
            "class Odd(Exception):\n    def __str__(self):\n        raise KeyError(1)\nraise Odd",
            r"Odd, whose own text fails with KeyError \(.*failing\.py, line 4\)",
        ),
        ("import nowhere", "cannot be imported: No module named 'nowhere'"),
    ],
)
def test_a_module_of_the_application_that_fails_is_its_own_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    """Whatever it does when it is imported is named with the place; it is no bug of halog's."""
    (tmp_path / "failing.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    with pytest.raises(ConfigError, match=f"modules names 'failing', which .*{why}"):
        import_module(config(), "failing")


def test_a_version_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing.by_region, "version", "3")
    with pytest.raises(ConfigError, match=r"policies\.own\.mapper: .*:by_region: its version must be a whole number"):
        function_of(config(), "own")


def test_a_binding_holds_for_subclasses_until_one_has_its_own() -> None:
    places = Places(config(), DEFINITIONS.get)
    assert [places.policy_of(n) for n in ("Order", "Gift", "LateGift", "Unknown")] == ["own", "own", "own", "p"]
    places = Places(config(**{"*": "p", "Order": "own", "Gift": "p"}), DEFINITIONS.get)
    assert [places.policy_of(n) for n in ("Order", "Gift", "LateGift")] == ["own", "p", "p"]
    assert Places(config(Gift="own"), DEFINITIONS.get).policy_of("Order") is None
    with pytest.raises(UnknownTypeError, match="Order is bound to no policy"):
        Places(config(Gift="own"), DEFINITIONS.get).owner("Order")


def test_a_partition_is_looked_for_among_relatives_that_are_bound(coordinator: MemoryCoordinator) -> None:
    """A base bound to nothing has none (T8: where work is routed anew, all relatives are asked)."""
    router: Any = None
    places = Places(config(Gift="own"), DEFINITIONS.get)
    routing = Routing(places, MappingCache(coordinator), router, PartitionLoads(router))
    first = routing.partitions_of("Gift")[0]
    assert (routing.had("Order", first), routing.had("Gift", first), routing.had("Gift", "p-0")) == (False, True, False)


def test_types_are_entered_once_and_stay(coordinator: MemoryCoordinator) -> None:
    """Another binding of a type that is entered is refused by name, and nothing changes; new types are entered."""
    assert agree(coordinator, config(), "Order") == {"Order": "own"}
    assert agree(coordinator, config()) == {"Gift": "own", "LateGift": "own", "Order": "own"}
    before = coordinator.get("bindings")
    with pytest.raises(ConfigError, match=r'bindings\."Order": is p, and the cluster keeps objects of Order under own'):
        agree(coordinator, config(**{"*": "p", "Gift": "own"}))
    with pytest.raises(ConfigError, match=r'bindings\."Gift": is p'):
        agree(coordinator, config(**{"*": "p", "Order": "own", "Gift": "p"}))
    assert coordinator.get("bindings") == before
    assert agree(coordinator, config()) == bindings.read(coordinator)
    assert coordinator.get("bindings") == before, "nothing new, nothing written"


def test_types_without_a_policy_are_not_entered(coordinator: MemoryCoordinator) -> None:
    assert agree(coordinator, config(Gift="own")) == {"Gift": "own", "LateGift": "own"}


def spread(**bound: str) -> Config:
    """A file of two sites, at one of which there is no policy `far`."""
    servers = {"bootstrap": "127.0.0.1:3", "zookeeper": "127.0.0.1:4"}
    return parse_config(
        {
            **tree(config(**{"*": "p"})),
            "sites": {"east": servers},
            "zones": {"main": {"nodes": ["A"]}, "east": {"nodes": ["D"]}},
            "policies": {name: {"zone": zone, "sync_replicas": 0} for name, zone in (("p", "main"), ("far", "east"))},
            "bindings": bound,
            "nodes": {"A": {"data_dir": "A", "site": "home"}, "D": {"data_dir": "D", "site": "east"}},
        },
        "halog.toml",
        Path("/tmp"),
    )


@pytest.mark.feature("P5", "P6")
def test_a_type_that_is_kept_here_is_not_bound_to_a_policy_of_another_site(coordinator: MemoryCoordinator) -> None:
    """Its objects would be looked for nowhere, or, under another name of the file, still here."""
    assert agree(coordinator, spread(**{"*": "p", "Gift": "far"})) == {"Order": "p"}
    for bound in ({"*": "p", "Order": "far"}, {"*": "far"}):
        with pytest.raises(ConfigError, match=r'"Order": is far, and the cluster keeps objects of Order under p'):
            agree(coordinator, spread(**bound))


@pytest.mark.feature("P5", "P6")
def test_a_type_that_is_used_elsewhere_says_by_which_policy() -> None:
    """What the cluster holds wins, for who asks, too."""
    places = Places(spread(**{"*": "far", "Order": "p"}), DEFINITIONS.get, {"Order": "far"})
    with pytest.raises(UnknownTypeError, match="Order is bound to policy far, whose nodes are at site east: it is"):
        places.owner("Order")


@pytest.mark.feature("P5", "P6")
def test_a_family_of_which_some_is_kept_elsewhere_is_not_read_as_if_it_were_whole() -> None:
    """By tools and Spark jobs; types that are bound to nothing have no objects anywhere."""
    places = Places(spread(Order="p", LateGift="far"), DEFINITIONS.get)
    assert places.policies_of(("Order", "Gift")) == ["p"]
    with pytest.raises(UnknownTypeError, match="type LateGift is bound to policy far"):
        places.policies_of(("Order", "Gift", "LateGift"))
    assert Places(config(Gift="own"), DEFINITIONS.get).policies_of(("Order", "Gift")) == ["own"]
    with pytest.raises(UnknownTypeError, match="type Order is bound to no policy"):
        Places(config(Gift="own"), DEFINITIONS.get).policies_of(("Order",))


def test_types_of_an_older_cluster_are_entered_as_they_were_placed(coordinator: MemoryCoordinator) -> None:
    """By their own name, else by "*"; types that are new since by their base's."""
    held = agree(coordinator, config(), stored=("Order", "Gift"))
    assert held == {"Order": "own", "Gift": "p", "LateGift": "own"}
    places = Places(config(), DEFINITIONS.get, held)
    assert [places.policy_of(n) for n in ("Order", "Gift", "LateGift")] == ["own", "p", "own"]
    assert places.bound("Gift") == ("p", "*")
    assert agree(coordinator, config()) == held, "and so it stays"


def test_nodes_that_start_together_enter_all_their_types(coordinator: MemoryCoordinator) -> None:
    """Whoever is second reads again what the first has entered."""
    original, others = coordinator.get, [("Order",), ("Gift",)]

    def get(path: str) -> Any:
        found = original(path)
        if others:
            names = others.pop()
            agree(coordinator, config(), *names)
        return found

    coordinator.get = get  # type: ignore[method-assign]
    assert agree(coordinator, config(), "LateGift") == {"Gift": "own", "LateGift": "own", "Order": "own"}


def test_a_znode_that_holds_no_bindings_is_an_error(coordinator: MemoryCoordinator) -> None:
    coordinator.create("bindings", b"[1]")
    with pytest.raises(CoordinatorError, match="znode bindings does not hold the bindings"):
        agree(coordinator, config())


def test_a_policy_that_is_gone_is_an_error(coordinator: MemoryCoordinator) -> None:
    agree(coordinator, config())
    without = replace(config(**{"*": "p"}), source="other.toml")
    with pytest.raises(ConfigError, match=r"^other\.toml: bindings"):
        agree(coordinator, without)


def test_what_the_cluster_holds_wins_over_a_file_and_is_refused_where_the_file_has_no_word_for_it() -> None:
    assert Places(config(), DEFINITIONS.get, {"Gift": "own"}).policy_of("Gift") == "own"
    with pytest.raises(ConfigError, match=r'bindings."Gift": .* keeps objects of Gift under gone; bind it to gone'):
        Places(config(), DEFINITIONS.get, {"Gift": "gone"}).owner("Gift")


@pytest.mark.feature("U1", "P13")
def test_a_mapping_that_cannot_be_read_is_told_and_the_one_that_is_known_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A later version of halog changes to a layout with more to it, or what stands there is no mapping."""
    layout = {"mapper": "consistent_hash", "partitions": 2, "ring_size": 1_000}
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    coordinator.create("policies/p", json.dumps(layout).encode())
    cache = MappingCache(coordinator)
    cache.watch({"p": None})
    known = cache.known["p"]
    changing = {**layout, "mapping": 1, "changing": {"to": {**layout, "partitions": 4, "weights": [1]}}}
    for data, said in ((json.dumps(changing).encode(), "`weights`"), (b"[]", "does not hold a policy's mapping")):
        found = coordinator.get("policies/p")
        assert found is not None
        coordinator.set("policies/p", data, found.version)
        wait_until(lambda: said in caplog.text, "it is told")  # noqa: B023
    assert cache.known["p"] == known
    assert all(record.exc_info is None for record in caplog.records)
