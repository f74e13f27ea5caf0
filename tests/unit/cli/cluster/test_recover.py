"""`halog recover` and the data directories it reads: which node's each is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from halog.adapters.rocksdb.store import RocksStore
from halog.cli.cluster.recover import _made, _opened
from halog.cli.main import main
from halog.config import Config, parse_config
from halog.errors import RefusedError
from halog.runtime.node.cluster_identity import remember

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


def test_a_directory_that_cannot_be_looked_at_is_missing(tmp_path: Path) -> None:
    """Such as another user's, or one of a name that no system takes."""
    config = config_of(tmp_path / "a", tmp_path / ("b" * 300))
    made(tmp_path / "a", config, "A")
    stores, missing = found(config)
    assert (stores, list(missing)) == ({"A": "a"}, ["B"])
    assert missing["B"].endswith(f"{'b' * 300} cannot be read: File name too long")


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "there is no such directory"),
        ("file", "cannot be read: Not a directory"),
        ("b" * 300, "cannot be read: File name too long"),
    ],
)
def test_a_store_that_is_not_there_is_told_before_any_server_is_asked(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / "halog.toml"
    path.write_text(TEXT.format(a=tmp_path / "a", b=tmp_path / "b"))
    given = f"B={tmp_path / name}"
    assert main(["recover", "--from-logs", "--store", given, "--config", str(path), "--timeout", "1"]) == 2
    assert f"--store {given}: {why}" in capsys.readouterr().err
    assert main(["recover", "--from-logs", "--accept-loss", "C", "--config", str(path), "--timeout", "1"]) == 2
    assert "there is no node C" in capsys.readouterr().err


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("tables", "znodes", "told"),
    [
        (0, ["policies/x"], "policies/x"),
        (0, [], "nothing"),
        (1, [], "the table of 1 partition"),
        (2, ["policies/x", "seats"], "the tables of 2 partitions, and policies/x, seats,"),
        (0, [f"z{n}" for n in range(7)], "z0, z1, z2, z3, z4 and 2 more"),
    ],
)
def test_what_was_made_anew_is_named_and_nothing_else(tables: int, znodes: list[str], told: str) -> None:
    assert _made(tables, znodes) == told
