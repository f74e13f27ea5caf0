"""A mapper that is asked at create, on real processes and the real log: its answers hold (P6)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from halog.config import load_config
from halog.errors import DuplicateKeyError, MapperError
from tests.integration.cluster.fleet import NOWHERE, Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_remapping import check_places, mapping, undecided
from tests.integration.cluster.test_rounds import listed

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P6")]

PATIENCE_S = 90.0
FLOWN, NEW = 60, 120
MAPPER = "at_create:tests.integration.cluster.fleet:by_miles"


def asked(path: Path) -> Path:
    path.write_text(path.read_text().replace("[policies.p]\n", f'[policies.p]\nmapper = "{MAPPER}"\n'))
    return path


def homes(cluster: Cluster) -> dict[str, str]:
    """Tail → partition; nothing is in doubt, and every entry says what is."""
    wait(lambda: undecided(cluster) == 0, "something is in doubt", PATIENCE_S)
    return listed(cluster, cluster.toml)


def counted(cluster: Cluster) -> bool:
    """Has a client that creates now heard from every active node since all that is there was?"""
    names = cluster.partitions()
    states = cluster.client().runtime.routing.loads.states(names)
    there = Counter(homes(cluster).values())
    return all(states[name].objects == there[name] and not states[name].placed for name in names)


def test_objects_are_where_the_mapper_said_survive_a_failover_and_are_found_by_key(make: Make) -> None:
    """By what they are, and by how full partitions are; and at last where their keys hash to."""
    cluster = make(every=2_000, keep=500)
    asked(cluster.toml)
    cluster.start()
    names, client = cluster.partitions(), cluster.client()
    for i in range(FLOWN):
        with client.transaction():
            client.create(Aircraft(f"flown{i}", miles=i + 1))
    wait(lambda: counted(cluster), "figures do not come", PATIENCE_S)
    client.load([Aircraft(f"new{i}", landings=1) for i in range(NEW)], batch=25)
    said = {f"flown{i}": f"p-{(i + 1) % len(names)}" for i in range(FLOWN)}
    before = homes(cluster)
    assert {tail: at for tail, at in before.items() if tail in said} == said
    assert len(before) == FLOWN + NEW
    assert max(Counter(before.values()).values()) <= 1.25 * len(before) / len(names), "the fewest objects"

    victim = cluster.table("p-0").active
    assert victim is not None
    cluster.kill(victim.node)
    other = cluster.client("other")
    for tail in before:
        with other.transaction():
            assert other.get(Aircraft, tail).tail == tail
    with other.transaction():
        assert other.find(Aircraft, "none") is None
    with pytest.raises(DuplicateKeyError), other.transaction():
        other.create(Aircraft("flown7", miles=1))
    cluster.start([victim.node])
    cluster.whole(PATIENCE_S)
    assert homes(cluster) == before

    for tail in [tail for tail, at in before.items() if at == "p-3"]:
        with client.transaction():
            client.delete(client.get(Aircraft, tail))
    wait(lambda: counted(cluster), "figures do not come", PATIENCE_S)
    missing = len([at for at in before.values() if at == "p-3"])
    client.load([Aircraft(f"more{i}") for i in range(missing)])
    after = homes(cluster)
    assert len([at for tail, at in after.items() if tail.startswith("more") and at == "p-3"]) >= 0.9 * missing

    wrong = r"by_miles \(version 1\) for Aircraft \('odd'\) said 'nowhere'"
    with pytest.raises(MapperError, match=wrong), client.transaction():
        client.create(Aircraft("odd", miles=NOWHERE))
    assert homes(cluster) == after

    hashed = cluster.configuration("hashed.toml")
    client.runtime.operators.rebalance("p", load_config(hashed), wait_s=PATIENCE_S)
    assert "changing" not in mapping(cluster)
    wait(lambda: undecided(cluster) == 0, "something is in doubt", PATIENCE_S)
    check_places(cluster, hashed)
    with other.transaction():
        assert sorted(a.tail for a in other.extent(Aircraft)) == sorted(after)
