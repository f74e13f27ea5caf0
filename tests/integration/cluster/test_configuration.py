"""What a cluster agrees on: where its servers are may be said in two ways, all else must be the same everywhere."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import halog
from halog.embedded import EmbeddedSite
from halog.errors import ConfigError, DuplicateNodeError, HalogError, RefusedError
from tests.integration.cluster.checker import history
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import partition_of, tails
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_kill import whole_again

pytestmark = pytest.mark.timeout(600)


def changed(cluster: Cluster, old: str, new: str) -> Path:
    text = cluster.toml.read_text()
    assert old in text
    path = cluster.directory / "changed.toml"
    path.write_text(text.replace(old, new))
    return path


def embedded(cluster: Cluster) -> Path:
    """The same cluster, its servers found by the data directory of the embedded site."""
    site = cluster.site
    if not isinstance(site, EmbeddedSite):
        pytest.skip("only an embedded site has a data directory")
    info = site.info
    servers = f'bootstrap = "{info.bootstrap}"\nzookeeper = "{info.zookeeper}"'
    return changed(cluster, servers, f'embedded = "{site.data_dir}"')


@pytest.mark.feature("O3", "R5")
def test_the_same_site_embedded_or_as_existing_servers(cluster: Cluster) -> None:
    """The same code on both: what is written through one is read through the other, and a node may use either."""
    toml = embedded(cluster)
    tail = tails(cluster.client(), "site-")["p-0"][0]
    with halog.node(toml, name="other-way") as other, other.transaction():
        other.create(Aircraft(tail=tail, miles=3))
    with cluster.client().transaction():
        assert cluster.client().get(Aircraft, tail).miles == 3
    assert cluster.processes["C"].terminate() == 0
    cluster.launch("C", toml).ready()
    whole_again(cluster)


@pytest.mark.feature("P2", "P6", "P1")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("partitions = 6", "partitions = 7"),
        ("partitions = 6", "partitions = 5"),
        ("sync_replicas = 1", "sync_replicas = 2\nring_size = 65536"),
        ("async_replicas = 1", "async_replicas = 1\nring_size = 1000"),
        ("async_replicas = 1", 'async_replicas = 1\nmapper = "round_robin"'),
        ("async_replicas = 1", "async_replicas = 0"),
    ],
)
def test_another_number_of_partitions_or_copies_or_another_mapper_is_refused(
    cluster: Cluster, old: str, new: str
) -> None:
    """Objects would be looked for where they are not: the error names what differs, and the cluster is as it was."""
    cluster.in_place()
    before = cluster.tables()
    toml = changed(cluster, old, new)
    if "sync_replicas = 2" in new:
        toml.write_text(toml.read_text().replace("async_replicas = 1", "async_replicas = 0"))
    threads = threading.active_count()
    with pytest.raises((ConfigError, RefusedError)) as refused:
        halog.node(toml, name="different")
    assert str(refused.value).count("\n") == 0
    wait(lambda: threading.active_count() <= threads + 1, "nothing is left running")
    assert cluster.tables() == before


@pytest.mark.feature("P6", "P2", "P1")
def test_keys_spread_over_all_partitions_and_every_process_finds_them_alike(cluster: Cluster) -> None:
    """Each object is in the partition its key maps to, and in no other, in the stores of all nodes."""
    node = cluster.client()
    wanted = {f"spread-{n}": partition_of(node, f"spread-{n}") for n in range(300)}
    node.load(Aircraft(tail=t) for t in wanted)
    cluster.whole()
    found: dict[str, set[str]] = {t: set() for t in wanted}
    for partition in cluster.partitions():
        leader = cluster.table(partition).node_list[0]
        for stored in cluster.stored(leader, partition):
            aircraft = node.space.decoded(stored, partition).values
            if aircraft["tail"] in found and "landings" in aircraft:
                found[aircraft["tail"]].add(partition)
    assert found == {t: {p} for t, p in wanted.items()}
    shares = [list(wanted.values()).count(p) for p in cluster.partitions()]
    assert min(shares) > 20, "an even share is 50"


@pytest.mark.feature("P1", "O3")
def test_a_node_name_is_taken_once(cluster: Cluster) -> None:
    """A second client and a second hosting node of a name are refused; the first goes on."""
    first = cluster.client("only-once")
    with pytest.raises(DuplicateNodeError, match="only-once"):
        halog.node(cluster.toml, name="only-once")
    with pytest.raises(DuplicateNodeError, match=f"pid {cluster.processes['A'].pid}"):
        halog.node(changed(cluster, 'data_dir = "A"', 'data_dir = "elsewhere"'), name="A")
    with first.transaction():
        first.create(Aircraft(tail=tails(first, "once-")["p-0"][0]))
    wait(lambda: sorted(cluster.registered()) == ["A", "B", "C"], "all are there")


@pytest.mark.feature("R8")
def test_a_commit_over_the_limit_is_refused_and_one_below_it_passes(cluster: Cluster) -> None:
    """4.9 MB reach every copy; 5.1 MB are refused naming the largest objects, and change nothing."""
    node = cluster.client()
    small, other, large = tails(node, "size-", each=3)["p-0"]
    with node.transaction():
        node.create(Aircraft(tail=small, blob=os.urandom(2_450_000)))
        node.create(Aircraft(tail=other, blob=os.urandom(2_450_000)))
    happened = history(cluster, "p-0").ids.keys()
    with pytest.raises(halog.errors.RecordTooLargeError, match=large), node.transaction():
        node.create(Aircraft(tail=large, blob=os.urandom(5_100_000)))
    with node.transaction():
        assert node.find(Aircraft, large) is None
        assert len(node.get(Aircraft, small).blob) == len(node.get(Aircraft, other).blob) == 2_450_000
    assert history(cluster, "p-0").ids.keys() == happened
    with node.transaction():
        node.delete(node.get(Aircraft, small))
        node.delete(node.get(Aircraft, other))


def test_an_unreachable_site_is_one_error_and_nothing_is_left(cluster: Cluster) -> None:
    """A configuration whose servers nobody runs: an error of the tree, in time."""
    info = cluster.site.info
    threads = threading.active_count()
    with pytest.raises(HalogError, match=r"127\.0\.0\.1:1"):
        halog.node(changed(cluster, f'zookeeper = "{info.zookeeper}"', 'zookeeper = "127.0.0.1:1"'), name="lost")
    wait(lambda: threading.active_count() <= threads + 1, "nothing is left running")
