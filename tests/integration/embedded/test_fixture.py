"""The shared site answers its users' own clients."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from halog.embedded import EmbeddedSite


@pytest.mark.feature("O3")
def test_kafka_and_zookeeper_answer_real_clients(site: EmbeddedSite) -> None:
    """A Kafka client sees one broker; a ZooKeeper session of 1,000 ms is granted as asked."""
    admin = AdminClient({"bootstrap.servers": site.info.bootstrap})
    assert list(admin.list_topics(timeout=10).brokers) == [1]
    client = KazooClient(site.info.zookeeper, timeout=1.0)
    client.start(10)
    try:
        assert client._session_timeout == 1.0 or client._session_timeout == 1000
        assert client.exists("/zookeeper")
    finally:
        client.stop()
        client.close()
