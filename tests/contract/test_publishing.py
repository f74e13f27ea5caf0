"""Several processes publish classes at the same moment, over real transactions: of each all, or none. Memory and Kafka
alike."""

from __future__ import annotations

import threading
import time

import pytest

from halog.errors import HalogError, SchemaChangedError
from halog.ports import TopicPartition
from halog.runtime.topics.schema_publication import publish
from halog.runtime.topics.schemas import Definitions
from tests.contract.rigs import LogRig, new_topic
from tests.unit.runtime.topics.test_schema_publication import classes

STARTS_S = 30.0
"""For eight that fence each other, where one alone takes some 50 ms; or sixty times what that takes."""


@pytest.mark.feature("U2", "U3")
def test_the_classes_of_whoever_was_first_are_there_whole_and_the_others_left_nothing(logs: LogRig) -> None:
    registries = [classes(Gate=(str, int)[n % 2], Airport=str, **{f"Only{n % 2}": int}) for n in range(8)]
    log = logs.log()
    tp: TopicPartition = new_topic(log, compacted=True)
    own = [logs.log() for _ in registries]
    started: list[int] = []
    refused: list[int] = []
    failed: list[HalogError] = []
    barrier = threading.Barrier(len(registries))

    def start(n: int) -> None:
        barrier.wait()
        try:
            publish(own[n], tp.topic, registries[n])
            started.append(n)
        except SchemaChangedError:
            refused.append(n)
        except HalogError as error:
            failed.append(error)

    began = time.monotonic()
    publish(logs.log(), new_topic(log, compacted=True).topic, registries[0])
    limit_s = max(STARTS_S, 60 * (time.monotonic() - began))
    threads = [threading.Thread(target=start, args=(n,)) for n in range(len(registries))]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * limit_s)
    took = time.monotonic() - began
    assert failed == []
    assert sorted([*started, *refused]) == [*range(8)]
    won = registries[started[0]]
    assert sorted(started) == [n for n in range(8) if n % 2 == started[0] % 2]
    assert {d.type_id for d in Definitions(log, tp.topic).all()} == {i.type_id for i in won.by_name.values()}
    lost = {i.type_id for i in registries[refused[0]].by_name.values()} - {i.type_id for i in won.by_name.values()}
    assert not lost & {key for key, _ in log.read_keyed(tp)}, "not for a moment"
    assert took < limit_s
