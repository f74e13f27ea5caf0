"""Two sites' Kafka with the logs of a policy that forked, written as bytes: no node takes part.

Of `count` objects each branch changes three fifths, so that a fifth is changed by both, half of these alike. The same
changes stand in a raw topic at each site as well, as any application would keep them: a row for each, under its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.config import ClusterConfig, Config, PolicyConfig, RemoteSiteConfig, SiteConfig
from halog.core.ids import NO_EPOCH, EpochId, digest
from halog.core.log.chain import Chain, ChainState
from halog.core.log.records import UPDATE, Change, Commit, EpochOpened, EpochStarted, Header, Record, encode
from halog.core.table.table import PartitionTable
from halog.embedded import EmbeddedSite
from halog.runtime.support.adapters import SiteAccess
from spark_jobs.site import ReadOnlyLog
from spark_jobs.snapshot import Place

PARTITIONS: Final = 4
EACH: Final = 2
"""Objects a transaction changes."""
LOG, RAW = "bench.merge.log", "raw.merge"
LOG_ID: Final = b"b" * 16
SOURCE, INITIATING = "east", "west"
VALUE: Final = bytes(range(32, 127)) * 2
"""190 bytes, and what makes it this one."""


def key_of(i: int) -> bytes:
    """An object's."""
    return b"benchmrk%08d" % i


def value_of(i: int, by: bytes) -> bytes:
    """200 bytes of an object."""
    return b"%010d" % i + VALUE + by


def share(site: str, count: int) -> range:
    """Whom a branch changes."""
    return range(count * 2 // 5, count) if site == INITIATING else range(count * 3 // 5)


def change(site: str, i: int) -> Change:
    """The same one at both sites for every second object."""
    by = b"both" if i % 2 else site.encode()
    return Change(UPDATE, b"%024d" % i, key_of(i), value_of(i, by), 1, value_of(i, b"base"))


def records(site: str, count: int, partition: int) -> Iterator[bytes]:
    """A branch's log of one partition: begun by the west's first epoch, and gone on with by an epoch of its own."""
    chain = Chain(ChainState(LOG_ID, site, owner="" if site == INITIATING else INITIATING))

    def put(record: Record) -> bytes:
        data = encode(record)
        chain.read(record, digest(data))
        return data

    def opened(epoch: EpochId) -> Iterator[bytes]:
        if epoch.site == site:
            yield put(EpochStarted(Header(LOG_ID, epoch), NO_EPOCH, 0))
        yield put(EpochOpened(Header(LOG_ID, epoch, chain.state.lsn + 1, chain.state.hash), chain.state.lineage))

    yield from opened(EpochId(1, INITIATING, 1))
    own = EpochId(2 if site == INITIATING else 3, site, 2)
    yield from opened(own)
    mine = [i for i in share(site, count) if i % PARTITIONS == partition]
    for at in range(0, len(mine), EACH):
        s = chain.state
        header = Header(LOG_ID, own, s.lsn + 1, s.hash, b"%-16d" % mine[at])
        yield put(Commit(header, tuple(change(site, i) for i in mine[at : at + EACH])))


class Forked:
    """Both sites, running."""

    def __init__(self, directory: Path, count: int) -> None:
        self.count = count
        self._stack = ExitStack()
        self.bootstrap: dict[str, str] = {}
        self._trees: dict[str, MemoryTree] = {}
        try:
            for name in (SOURCE, INITIATING):
                self.bootstrap[name] = self._stack.enter_context(EmbeddedSite(directory / name)).bootstrap
                self._write(name)
        except BaseException:
            self.close()
            raise

    def _write(self, name: str) -> None:
        tree = self._trees[name] = MemoryTree()
        home = "" if name == INITIATING else INITIATING
        with sending(self.bootstrap[name]) as send:
            for index in range(PARTITIONS):
                table = PartitionTable(f"merge-{index}", LOG_ID.hex(), LOG, index, "merge", (), 0, home=home)
                _coordinator(tree).create(f"partitions/{table.name}", table.to_bytes())
                for data in records(name, self.count, index):
                    send(LOG, index, None, data)
            for i in share(name, self.count):
                made = change(name, i)
                send(RAW, i % PARTITIONS, made.key, made.value)

    def remote(self, name: str) -> SiteAccess:
        """A site, as another one reaches it."""
        log: Any = ReadOnlyLog(KafkaAccess(self.bootstrap[name]))  # all that a job needs of a log
        return SiteAccess(name, log, _coordinator(self._trees[name]))

    @contextmanager
    def site(self) -> Iterator[Any]:
        """What `spark_jobs.comparison` asks of the site where it runs."""
        west = self.remote(INITIATING)
        places = [Place(f"merge-{i}", i, LOG, "", LOG_ID.hex(), INITIATING) for i in range(PARTITIONS)]
        policy = PolicyConfig("zone", partitions=PARTITIONS, sync_replicas=0, home=INITIATING)
        sites = {SOURCE: RemoteSiteConfig(self.bootstrap[SOURCE], "nowhere:1")}
        config = Config(ClusterConfig("bench"), SiteConfig(INITIATING), policies={"merge": policy}, sites=sites)
        try:
            yield SimpleNamespace(
                config=config,
                own=config,
                log=west.log,
                coordinator=west.coordinator,
                reach=self.remote,
                kafka=KafkaAccess(self.bootstrap[INITIATING]),
                kafka_of=lambda name: KafkaAccess(self.bootstrap[name]),
                places_of=lambda policies: places,
            )
        finally:
            west.close()

    def close(self) -> None:
        """Both sites end."""
        self._stack.close()


def _coordinator(tree: MemoryTree) -> MemoryCoordinator:
    made = MemoryCoordinator(tree)
    made.connect(lambda state: None)
    return made


Send = Callable[[str, int, bytes | None, bytes | None], None]


@contextmanager
def sending(bootstrap: str) -> Iterator[Send]:
    """Topics for both ways, and what writes to them; at the end all is written."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in (LOG, RAW)]).values():
        future.result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})

    def send(topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                return
            except BufferError:
                producer.poll(0.1)

    yield send
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not written")
