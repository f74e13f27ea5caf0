"""`halog site metrics` where there is one site: what async replicas had to discard (R2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.core.table.table import ASYNC
from halog.testing.cluster import wait_until

Halog = Callable[..., Any]
NAME = "halog_discarded_objects_total"


@pytest.mark.feature("R2", "O2")
def test_what_a_copy_discarded_is_a_counter_of_each_copy(cluster: Any, halog: Halog) -> None:
    """An async replica has lost an object; the log deletes it."""
    cluster.create(cluster.Aircraft("N1"))
    partition = cluster.partition_of(cluster.Aircraft("N1"))
    table = next(t for t in cluster.tables() if t.name == partition)
    node = next(r.node for r in table.replicas if r.kind == ASYNC)
    lose(cluster, node, partition)
    with cluster.nodes[cluster.active(partition)].transaction() as tx:
        tx.delete(tx.get(cluster.Aircraft, "N1"))
    wait_until(lambda: counted(halog)[partition, node] == "1", "it is counted")
    expected = {(f"p-{i}", n): "0" for i in range(6) for n in "ABC"}
    assert counted(halog) == {**expected, (partition, node): "1"}
    assert f"# TYPE {NAME} counter" in halog("site", "metrics").out.splitlines()
    assert "1 objects discarded" in halog("partition", "show", partition).out


def counted(halog: Halog) -> dict[tuple[str, str], str]:
    """By partition and node."""
    found = {}
    for line in halog("site", "metrics").out.splitlines():
        if line.startswith(f'{NAME}{{cluster="ops",site="home",'):
            labels, value = line.rsplit(" ", 1)
            _, partition, _, node, _ = labels.rsplit('"', 4)
            found[partition, node] = value
    return found


def lose(cluster: Any, node: str, partition: str) -> None:
    """N1, from the replica's store, once it has everything."""
    copy = cluster.nodes[node].runtime.copies[partition]
    key = cluster.Aircraft.__halog__.index_key(("N1",))
    wait_until(lambda: copy.objects.find(key) is not None, "the replica has it")
    with copy.lock:
        copy.objects.save()
        copy.objects.store.write([(copy.objects.prefix + b"k" + key, None)])
        copy.objects.cache.pop(key)
