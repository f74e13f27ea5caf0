"""A cluster of two nodes whose commits do not wait for the log (R6: local NO_SYNC), in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from halog.config import TimingConfig
from halog.ports import TopicPartition
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.host.test_faults import copy_on


@contextmanager
def running(remote_sync: str = "NO_SYNC", *, silent_ms: int = 5_000, call_ms: int = 15_000) -> Iterator[Cluster]:
    """With one partition, which has its sync replica, and the counter "c". A log that takes nothing ends no epoch."""
    made = Cluster(2, partitions=1, registry=REGISTRY)
    policy = replace(made.config.policies["test"], local_sync="NO_SYNC", remote_sync=remote_sync)
    timing = TimingConfig(non_response_timeout_ms=silent_ms, append_deadline_ms=30_000, call_deadline_ms=call_ms)
    made.config = replace(made.config, policies={"test": policy}, timing=timing).validate()
    with made as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        wait_until(lambda: len(next(iter(cluster.tables().values())).sync_set) == 1, "it has its sync replica")
        yield cluster


def level(cluster: Cluster) -> None:
    """Wait until both have read all that was ever given to the log."""

    def is_level() -> bool:
        cores = [copy_on(cluster, n).core for n in cluster.names]
        given = {core.leading.writer.last_lsn for core in cores if core.leading is not None}
        return len(given | {core.state.chain.state.lsn for core in cores}) == 1

    wait_until(is_level, "the log has it, and both have read it")


def log_of(cluster: Cluster) -> TopicPartition:
    """The log of its partition."""
    (table,) = cluster.tables().values()
    return TopicPartition(table.topic, table.index)
