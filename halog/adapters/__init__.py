"""These are the ports' implementations: Kafka, ZooKeeper, RocksDB, TCP, and `memory`, their readable reference.

Import the module you need; this package imports none of them, so that a client needs no RocksDB and a test no Kafka.
"""

import logging

logging.getLogger("halog").addHandler(logging.NullHandler())  # a library is silent until its application listens
