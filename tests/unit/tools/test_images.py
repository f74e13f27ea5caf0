"""What the images of compose/ are told: the embedded servers' settings, but for what three of each need."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.config import load_config
from halog.embedded import jars, settings
from tools import images

ROOT = Path(__file__).resolve().parents[3]


def read(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.feature("O3", "R1")
def test_three_brokers_are_told_what_one_is_and_to_keep_copies() -> None:
    """Three copies, two of them in sync, of every topic; who a broker is, its entrypoint says."""
    told, alone = read(images.server_properties()), settings.kafka_properties(images.INSIDE)
    assert not told.keys() & set(images.NODES_OWN)
    assert {k for k, v in told.items() if k.endswith("replication.factor") and v != "3"} == set()
    assert {k for k, v in told.items() if k.endswith(("min.isr", "min.insync.replicas")) and v != "2"} == set()
    same = alone.keys() - images.BROKERS.keys() - set(images.NODES_OWN)
    assert {k: told[k] for k in same} == {k: str(alone[k]) for k in same}
    said = (images.COMPOSE / "kafka/entrypoint.sh").read_text()
    assert all(f'echo "{key}=' in said for key in images.NODES_OWN)


@pytest.mark.feature("O3")
def test_a_servers_context_is_all_its_build_needs(tmp_path: Path) -> None:
    """Every file a Dockerfile copies is there, and the command names nothing of this machine."""
    source = tmp_path / "from"
    source.mkdir()
    for server in ("kafka", "zookeeper"):
        for path in jars.classpath(source, server).split(":"):
            Path(path).touch()
        target = tmp_path / server
        images.write_server(server, source, target)
        copies = [ln.split() for ln in (target / "Dockerfile").read_text().splitlines() if ln.startswith("COPY ")]
        copied = [name for words in copies for name in words[1:-1]]
        assert copied
        assert all((target / name).exists() for name in copied)
        assert str(Path.home()) not in (target / "command").read_text()


@pytest.mark.feature("O3")
def test_the_example_cluster_is_a_valid_configuration(tmp_path: Path) -> None:
    """One sync and one async replica, three copies of every topic, addresses other containers reach."""
    shutil.copy(ROOT / "compose/halog.toml", tmp_path)
    config = load_config(tmp_path / "halog.toml")
    assert (config.policies["default"].sync_replicas, config.policies["default"].async_replicas) == (1, 1)
    assert (config.site.replication_factor, config.site.min_insync_replicas) == (3, 2)
    compose = (ROOT / "compose/compose.yaml").read_text()
    for name, node in config.nodes.items():
        assert f"hostname: {node.reached[0].partition(':')[0]}" in compose
        assert f"NODE: {name}" in compose


@pytest.mark.feature("O3")
@pytest.mark.parametrize(
    ("write", "stamp"), [(images.write_node, "wheels.of"), (images.write_spark, "spark-wheels.of")]
)
def test_wheels_that_were_not_all_fetched_are_those_of_no_lock_file(
    tmp_path: Path, write: Callable[..., None], stamp: str
) -> None:
    """Killed in the middle, with another lock file than the time before: neither of the two finds its wheels here."""

    def killed(*words: str) -> None:
        raise KeyboardInterrupt

    (tmp_path / stamp).write_text("the lock file before")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "image", killed)
    assert not (tmp_path / stamp).exists()
