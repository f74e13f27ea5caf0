"""A mapper of the application's gets its next version while the application uses what it maps: deployed node by node,
then asked for, with nodes that die in the middle (P6)."""

from __future__ import annotations

import pytest

from halog.testing.cluster import wait_until
from tests.unit.runtime.keys import by_name
from tests.unit.runtime.keys.remapped import (
    Traffic,
    begin,
    check,
    cluster_of,
    configured,
    mapping,
    wait_done,
    where,
)

PATIENCE_S = 40.0


@pytest.mark.feature("P6", "P13")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("victim", ["", "A", "B"], ids=["nobody dies", "A dies", "B dies"])
def test_the_next_version_of_a_mapper_loses_doubles_and_misplaces_nothing(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(3, modules=(by_name.MODULE,), move_objects=5)
    with configured(cluster, mapper=f"{by_name.MODULE}:by_name"):
        traffic = Traffic(cluster.client(), 150)
        traffic.fill()
        before = where(cluster)
        check(cluster, cluster.config)
        with traffic.running(7):
            monkeypatch.setattr(by_name, "by_name", by_name.turned)
            for name in cluster.names:
                cluster.kill(name)
                cluster.restart(name)
                cluster.settle(PATIENCE_S)
            traffic.goes_on()
            assert mapping(cluster).version == 0, "the code alone changes nothing"
            assert begin(cluster) == 1
            wait_until(lambda: mapping(cluster).next is not None or mapping(cluster).version == 1, "it is not open")
            if victim:
                cluster.kill(victim)
            wait_done(cluster, 1, PATIENCE_S)
            if victim:
                cluster.restart(victim)
            traffic.goes_on()
        traffic.finished()
        cluster.settle(PATIENCE_S)
        check(cluster, cluster.config)
        after = where(cluster)
        steady = [key for key in before if key in after]
        assert [after[key][0][1] for key in steady] == [before[key][0][1] for key in steady], "references stay"
        assert sum(after[key][0][0] != before[key][0][0] for key in steady) > 75, "most have moved"
        assert len(steady) >= len(traffic.names)
        assert mapping(cluster).now.mapper_version == 2
