"""The shared site answers its users' own clients."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from halog.embedded import EmbeddedSite
from tests.integration.embedded.support import SOON_S


@pytest.mark.feature("O3")
def test_kafka_and_zookeeper_answer_real_clients(site: EmbeddedSite) -> None:
    """A Kafka client sees one broker; a ZooKeeper session of 1,000 ms is granted as asked."""
    admin = AdminClient({"bootstrap.servers": site.info.bootstrap})
    assert list(admin.list_topics(timeout=SOON_S).brokers) == [1]
    client = KazooClient(site.info.zookeeper, timeout=1.0)
    client.start(SOON_S)
    try:
        assert client._session_timeout == 1.0 or client._session_timeout == 1000
        assert client.retry(client.exists, "/zookeeper")  # a session of a second breaks where a machine stands still
    finally:
        client.stop()
        client.close()
