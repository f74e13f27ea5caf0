"""A tool's connection to a cluster: reads what the coordinator knows, asks nodes, reads the log.

Never joins: no registration, no topic or znode is created, and no module of the application is imported, unless a
custom mapper of it must say where a key belongs. The theory: all that an operator's command needs is the router every
node has, fed by the same znodes; a request to the active node waits out failovers exactly like an application's.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from halog.backend import Found, Work
from halog.config import Config, load_config
from halog.core.ids import Reference, location_code
from halog.core.table.table import PartitionTable
from halog.errors import AvailabilityError, HalogError, RefusedError, UnknownNameError, UnknownTypeError
from halog.metadata import bindings, mapped_policies
from halog.metadata.nodes import NodeInfo
from halog.ports import Coordinator, Entry, SessionState, TopicPartition
from halog.runtime.client.caller import Asker
from halog.runtime.client.commits import Commits, says_nothing
from halog.runtime.client.reads import items_of
from halog.runtime.client.two_phase import Spanning
from halog.runtime.client.vote_calls import Ballots
from halog.runtime.keys.key_owners import Owner, Places
from halog.runtime.keys.policy_agreement import check_mapping
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.live_config import in_force, of_file
from halog.runtime.node.wiring import adapters_for
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import PAGE_OBJECTS, first_of, room_in
from halog.runtime.rpc.request import Open
from halog.runtime.rpc.result_errors import perhaps_done
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.watch import watch
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import topic_names
from halog.runtime.topics.schemas import Definitions
from halog.schema import Definition

LOG_PIECE = 20_000
"""Log entries read at once: well under a second, so that a long log does not look like a silent one."""

R = TypeVar("R")


class Connection:
    """Everything a command may ask of a cluster. Use `connect`."""

    def __init__(self, config: Config, adapters: Adapters, name: str, timeout_s: float) -> None:
        self.config = config
        self.adapters = adapters
        self.name = name
        self.timeout_s = timeout_s
        self.router = Router(name, adapters.channel, config.timing.attempt_timeout_ms / 1000)
        self.activated = of_file(config, name)
        self._owners: dict[str, Owner] = {}
        self._location = location_code(name)
        self._installation = time.time_ns()
        self._count = self._stamp = 0

    def open(self, *, as_in_file: bool = False) -> None:
        """Connect and learn the active version, the partitions and the nodes. `as_in_file`: go by the file, also where
        the cluster does not exist yet."""
        c = self.coordinator
        c.connect(_ignore, self.timeout_s)
        if not as_in_file:
            self.activated = in_force(self.config, c)
            self.config = self.activated.config
        names = c.children("partitions")
        if not names and not as_in_file:
            why = belonging.why_absent(self.adapters.log, c, self.config)
            raise AvailabilityError(f"{self.config.source}: {why}", cluster=self.config.cluster.name)
        self.adapters.channel.introduce(
            frames.encode(frames.Hello(self.config.cluster.name, self.name, time.time_ns() // 1_000_000))
        )
        watch(c, self.router, names)

    @property
    def coordinator(self) -> Coordinator:
        return self.adapters.coordinator

    def close(self) -> None:
        """Let go of everything."""
        if "_spanning" in self.__dict__:
            self._spanning.close()
        for part in (self.adapters.channel, self.coordinator, self.adapters.log):
            part.close()

    # --- what is known ---

    @property
    def nodes(self) -> dict[str, NodeInfo]:
        """The registered nodes, by name."""
        return dict(sorted(self.router.nodes.items()))

    @property
    def tables(self) -> list[PartitionTable]:
        """Every partition, by policy and index."""
        return sorted((t for _, t in self.router.tables.values()), key=lambda t: (t.policy, t.index))

    def table(self, partition: str) -> PartitionTable:
        """One partition; ConfigError if there is none of this name."""
        known = self.router.tables.get(partition)
        if known is None:
            raise UnknownNameError.of("partition", partition, [t.name for t in self.tables])
        return known[1]

    @cached_property
    def definitions(self) -> Definitions:
        """What the schemas topic holds."""
        return Definitions(self.adapters.log, topic_names.schemas_topic(self.config))

    # --- asking ---

    def ask(self, partition: str, frame: frames.Request, expect: type[R], open_: Open | None = None) -> R:
        """Ask the active node, whoever it is by then. `open_`: see `Router.ask`."""
        reply = self.router.ask(partition, frame, self.timeout_s, lambda: False, open_=open_)
        if not isinstance(reply, expect):
            raise HalogError(f"the active node of {partition} answered {type(reply).__name__}")
        return reply

    def fetch(self, partition: str, keys: Sequence[bytes], *, brief: bool = False) -> Sequence[Found | None]:
        """Committed objects under index keys; `brief`: without their values."""
        version, room = self.mapping_version(partition), room_in(self.config.limits.max_frame_bytes)
        found: list[Found | None] = []
        while len(found) < len(keys):
            request = frames.Fetch(partition, first_of(keys, len(found), room), 0, mapping=version, brief=brief)
            found += items_of(self.ask(partition, request, frames.Objects), partition)
        return found

    def scan(self, partition: str, prefix: bytes) -> Iterator[Found]:
        """Committed objects whose index key begins with `prefix`, page by page."""
        after, version = b"", self.mapping_version(partition)
        while True:
            request = frames.Scan(partition, prefix, after, PAGE_OBJECTS, False, mapping=version)
            page = self.ask(partition, request, frames.Objects)
            for found in page.items:
                if found is not None:
                    after = found.key
                    yield found
            if page.end:
                return

    def count(self, partition: str, prefix: bytes) -> tuple[Counter[bytes], int]:
        """How many objects of each type id the active node counts, and the last lsn that was visible before."""
        after, version = b"", self.mapping_version(partition)
        counted, lsn = Counter[bytes](), -1
        while True:
            told = self.ask(partition, frames.Count(partition, prefix, after, version), frames.Counted)
            counted.update(told.types)
            after, lsn = told.last, told.lsn if lsn < 0 else lsn
            if told.end:
                return counted, lsn

    def read(self, tp: TopicPartition, start: int, end: int) -> Iterator[Entry]:
        """The log's entries in [start, end), each piece within the time allowed."""
        for at in range(start, end, LOG_PIECE):
            yield from self.adapters.log.read(tp, at, min(end, at + LOG_PIECE), self.timeout_s)

    def commit(self, works: Mapping[str, Work]) -> None:
        """Commit as one transaction; its id is given once, so that asking again never does it twice."""
        ours = self._location.to_bytes(8, "big")
        if len(works) == 1:
            ((partition, work),) = works.items()
            self.submit(partition, work, ours)
        else:
            self._spanning.commit(self._stamped(ours), {p: self._mapped(p, w) for p, w in works.items()})

    def submit(self, partition: str, work: Work, ending: bytes) -> int:
        """Commit in one partition, by an id with this end; its lsn. A refusal that an earlier request may overtake is
        none: OutcomeUnknownError."""
        frame, open_ = frames.Submit(partition, self._stamped(ending), self._mapped(partition, work)), Open()
        try:
            return self.ask(partition, frame, frames.Committed, open_).lsn
        except HalogError as error:
            if says_nothing(error):
                unknown = perhaps_done(partition, error)
                unknown.evidence["epoch"] = open_.epoch
                raise unknown from error
            raise

    def _stamped(self, ending: bytes) -> bytes:
        self._stamp = max(self._stamp + 1, time.time_ns())
        return self._stamp.to_bytes(8, "big") + ending

    def _mapped(self, partition: str, work: Work) -> Work:
        return Work(work.reads, work.writes, work.durability, self.mapping_version(partition))

    @cached_property
    def _spanning(self) -> Spanning:
        """Made when a transaction has several partitions: it has threads."""
        asker = Asker(self.name, self.router, {}, self.timeout_s)
        commits = Commits(asker, self._location, lambda partition: False)
        doubt_s = self.config.timing.doubt_timeout_ms / 1000
        return Spanning(asker, Ballots(asker), lambda partition: False, commits, doubt_s)

    def new_reference(self) -> Reference:
        """A reference never given before: this process is a node of its own as far as references go."""
        self._count += 1
        return Reference(self._location, self._installation, self._count)

    # --- placement ---

    @cached_property
    def places(self) -> Places:
        """Which mapper decides for which type. A custom one's module is imported when it is first asked."""
        modules_beside(self.config)
        held, known = bindings.read(self.coordinator), mapped_policies.read_all(self.coordinator)
        return Places(self.config, self._definition_of, held, known, self.definitions.find)

    def mapping_version(self, partition: str) -> int:
        """What requests that name its keys carry (T8)."""
        policy = self.table(partition).policy
        return self.places.mapping(policy).version if policy in self.places.mappings else 0

    def check_settled(self, policies: Sequence[str]) -> None:
        """RefusedError while the mapping of one of them changes: its objects are about to be elsewhere."""
        for policy in policies:
            if self.places.mapping(policy).changing is not None:
                raise RefusedError(
                    f"where keys of policy {policy} belong is being changed; wait until that is done: see `halog "
                    "rebalance status`",
                    policy=policy,
                )

    def _definition_of(self, type_name: str) -> Definition | None:
        try:
            return self.definitions.current(type_name)
        except UnknownTypeError:
            return None

    def policies_of(self, type_names: Sequence[str]) -> list[str]:
        """The policies these types are bound to. UnknownTypeError if none is, or one is kept at another site alone."""
        return self.places.policies_of(type_names)

    def owner(self, type_name: str) -> Owner:
        """Who decides where objects of a type are. ConfigError if the cluster was made with another mapper."""
        if type_name not in self._owners:
            policy = self.places.policy_of(type_name)
            if policy is not None:
                check_mapping(self.coordinator, self.config, policy, activated=self.activated.number > 0)
            self._owners[type_name] = self.places.owner(type_name)
        return self._owners[type_name]


def modules_beside(config: Config) -> None:
    """Application modules may lie in the working directory, as with `python -m`."""
    if config.application.modules and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _ignore(state: SessionState) -> None:
    """A command lives too shortly to mind its session: whoever waits has a timeout."""


@contextmanager
def connect(config_path: Path, timeout_s: float, *, as_in_file: bool = False) -> Iterator[Connection]:
    """A connection for the length of a command."""
    config = load_config(config_path)
    name = f"halog-cli-{re.sub(r'[^A-Za-z0-9._-]', '-', socket.gethostname())[:60]}-{os.getpid()}"
    connection = Connection(config, adapters_for(config, name, answer_s=timeout_s), name, timeout_s)
    try:
        connection.open(as_in_file=as_in_file)
        yield connection
    finally:
        connection.close()
