"""`halog recover` and the data directories it reads: which node's each is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from halog.adapters.rocks_store import RocksStore
from halog.cli.recover import _opened
from halog.config import Config, parse_config
from halog.errors import RefusedError
from halog.runtime.belonging import remember

pytestmark = pytest.mark.feature("P10", "R6")

TEXT = """
[cluster]
name = "fleet"
[site]
bootstrap = "localhost:1"
zookeeper = "localhost:2"
[nodes.A]
address = "one:3"
data_dir = "{a}"
[nodes.B]
address = "two:4"
data_dir = "{b}"
"""


def config_of(a: Path, b: Path) -> Config:
    return parse_config(tomllib.loads(TEXT.format(a=a, b=b)), "halog.toml", Path())


def made(directory: Path, config: Config, node: str) -> Path:
    """A data directory that this node has used."""
    store = RocksStore(directory)
    remember(store, config, "ab" * 16, node)
    store.close()
    return directory


def found(config: Config, **places: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Where the stores are, by node, and why others are missing."""
    with _opened(config, places) as (stores, missing):
        return {node: Path(store.directory).name for node, store in stores.items()}, missing  # type: ignore[attr-defined]


@pytest.mark.parametrize("whose", ["A", "B"])
def test_nodes_of_several_machines_have_the_same_directory_in_the_file(whose: str, tmp_path: Path) -> None:
    """On one of these machines it is one node's; the other one's is missing, and may hold what nobody else has."""
    shared = tmp_path / "data"
    config = config_of(shared, shared)
    made(shared, config, whose)
    stores, missing = found(config)
    other = "B" if whose == "A" else "A"
    assert stores == {whose: "data"}
    assert missing == {other: f"{shared} on this machine is node {whose}'s"}
    brought = made(tmp_path / "brought", config, other)
    assert found(config, **{other: brought}) == (
        {"A": "data", "B": "brought"} if whose == "A" else {"A": "brought", "B": "data"},
        {},
    )


def test_a_directory_that_is_brought_for_the_wrong_node_stands_for_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a", tmp_path / "b")
    a, b = made(tmp_path / "a", config, "A"), made(tmp_path / "b", config, "B")
    assert found(config, A=b, B=a) == ({"A": "a", "B": "b"}, {})
    with pytest.raises(RefusedError, match="not node B's: it is node A's"):
        found(config, B=made(tmp_path / "copy", config, "A"))


def test_a_directory_of_before_directories_knew_their_node_is_whose_the_file_says(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a", tmp_path / "b")
    made(tmp_path / "a", config, "")
    stores, missing = found(config)
    assert stores == {"A": "a"}
    assert "there is no store" in missing["B"]
