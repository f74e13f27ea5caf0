"""A copied data directory gets an identity of its own; what it says of another node's runs goes (N1)."""

from __future__ import annotations

import msgspec
import pytest

from halog.adapters.memory import MemoryStore
from halog.config import Config
from halog.core import effects as fx
from halog.core.ids import EpochId
from halog.errors import RefusedError
from halog.runtime.node import cluster_identity
from halog.runtime.node.identity_renewal import renew
from halog.runtime.node.node_run import begin_run
from halog.runtime.store import replaced_mark
from halog.runtime.store.pushed_records import PushedRecords
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("N1")

PREFIXES = (b"12345678", b"\xffabcdefg", b"hallogie")


@pytest.fixture
def config() -> Config:
    """Of two nodes that do not run."""
    return Cluster(nodes=2, partitions=1, registry=Registry()).config


def used(config: Config) -> MemoryStore:
    """Node A's, with objects, and pushed records for which it stands."""
    store = MemoryStore()
    cluster_identity.remember(store, config, "id", "A")
    begin_run(config, "A", store)
    for prefix in PREFIXES:
        pushed = PushedRecords(store, prefix)
        store.write([(prefix + b"kkey", b"value"), (prefix + b"p", b"position")])
        pushed.store(fx.StorePushed(EpochId(1, "w", 1), 7, (b"six", b"seven"), anew=True, flush=True))
        pushed.stand(fx.Stand((77,), flush=True))
    return store


def test_its_objects_stay_and_it_stands_for_nobody(config: Config) -> None:
    store = used(config)
    before = begin_run(config, "A", store)
    renewed = renew(store, config, "B")
    assert (renewed.was, renewed.partitions) == ("A", len(PREFIXES))
    after = begin_run(config, "B", store)
    assert after.installation == renewed.installation != before.installation
    for prefix in PREFIXES:
        assert store.get(prefix + b"kkey") == b"value"
        assert store.get(prefix + b"p") == b"position"
        assert PushedRecords(store, prefix).stood() == ()
        assert list(store.scan(prefix + b"h")) == []
    mark = replaced_mark.found(store)
    assert mark is not None
    assert (mark.why, mark.told, mark.runs) == ("it is a copy of node A's", True, (after.member.incarnation,))
    assert cluster_identity.remembered(store) == cluster_identity.DirectoryOwner(config.cluster.name, "id", "B")


def test_another_node_starts_on_it_only_then(config: Config) -> None:
    """Whether the one that it was copied from runs just now or not."""
    store = used(config)
    kept = dict(store.scan(b""))
    with pytest.raises(RefusedError, match=r"is node A's, or a copy .* `halog node new-identity --name B` makes it"):
        begin_run(config, "B", store)
    assert dict(store.scan(b"")) == kept
    renew(store, config, "B")
    assert begin_run(config, "B", store).name == "B"


def test_nothing_else_is_renewed(config: Config) -> None:
    """Its own directory, one that was never used, and one of another cluster."""
    store = used(config)
    kept = dict(store.scan(b""))
    with pytest.raises(RefusedError, match="is node A's own; nothing was changed"):
        renew(store, config, "A")
    with pytest.raises(RefusedError, match="was never used: node B can start on it as it is"):
        renew(MemoryStore(), config, "B")
    store.write([(b"halog:cluster", msgspec.json.encode({"cluster": "another"}))])
    with pytest.raises(RefusedError, match="belongs to cluster another"):
        renew(store, config, "B")
    assert {k: v for k, v in store.scan(b"") if k != b"halog:cluster"} == {
        k: v for k, v in kept.items() if k != b"halog:cluster"
    }
