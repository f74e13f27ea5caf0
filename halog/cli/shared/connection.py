"""A tool's connection to a cluster reads what the coordinator knows, asks nodes, and reads the log.

It never joins the cluster: it registers no node and creates no topic and no znode. It imports no module of the
application, unless a custom mapper must say where a key belongs. The theory: a command needs only the router that every
node has, fed by the same znodes. A request to the active node waits out failovers as an application's does.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from halog.backend import CommittedObject, Work
from halog.cli.shared.auditing import reached
from halog.cli.shared.surroundings import Surroundings, of_command
from halog.config import Config, load_config
from halog.core.ids import Member, Reference, location_code
from halog.core.table.table import PartitionTable
from halog.errors import AvailabilityError, HalogError, RefusedError, UnknownNameError, UnknownTypeError
from halog.metadata import bindings, mapped_policies
from halog.metadata.cluster_level import check_level
from halog.metadata.nodes import NodeInfo
from halog.ports import Coordinator, Entry, SessionState, TopicPartition
from halog.runtime.client.caller import Asker
from halog.runtime.client.commits import Commits, says_nothing
from halog.runtime.client.reads import items_of
from halog.runtime.client.two_phase import TwoPhaseCommits
from halog.runtime.client.vote_calls import Ballots
from halog.runtime.keys.key_owners import Owner, Places
from halog.runtime.keys.policy_agreement import check_mapping
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.live_config import in_force, of_file
from halog.runtime.rpc import frames, versions
from halog.runtime.rpc.pages import PAGE_OBJECTS, first_of, room_in
from halog.runtime.rpc.request import OpenCommit
from halog.runtime.rpc.result_errors import perhaps_done
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.watch import watch
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import topic_names
from halog.runtime.topics.schemas import Definitions
from halog.schema import Definition

LOG_PIECE = 20_000
"""So many log entries are read at once. They take well under a second, so that a long log does not look like a silent
one."""

R = TypeVar("R")


class ClusterConnection:
    """Holds everything a command may ask of a cluster. Use `connect`."""

    def __init__(
        self,
        config: Config,
        adapters: Adapters,
        name: str,
        timeout_s: float,
        around: Surroundings | None = None,
    ) -> None:
        self.config = config
        self.around = around or Surroundings()
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
        """Connect, and read the active version of the configuration, the partitions and the nodes. With `as_in_file`
        the file is what counts, also where the cluster does not exist yet."""
        c = self.coordinator
        c.connect(_ignore, self.timeout_s)
        if as_in_file:
            check_level(c, self.config.cluster.name)
        else:
            self.activated = in_force(self.config, c)
            self.config = self.activated.config
        self.router.configure(self.config.discovery)
        names = c.children("partitions")
        if not names and not as_in_file:
            why = belonging.why_absent(self.adapters.log, c, self.config)
            raise AvailabilityError(f"{self.config.source}: {why}", cluster=self.config.cluster.name)
        me = Member(self.name, time.time_ns() // 1_000_000)
        hello = versions.greeting(self.config.cluster.name, me, "tool")
        self.adapters.channel.introduce(frames.encode(hello), versions.judge_answer)
        watch(c, self.router, names)
        c.joined()

    @property
    def coordinator(self) -> Coordinator:
        return self.adapters.coordinator

    def close(self) -> None:
        """Close the connections to the nodes, to ZooKeeper and to the log."""
        if "_spanning" in self.__dict__:
            self._spanning.close()
        for part in (self.adapters.channel, self.coordinator, self.adapters.log):
            part.close()

    # --- what is known ---

    @property
    def nodes(self) -> dict[str, NodeInfo]:
        """Return the registered nodes, by name."""
        return dict(sorted(self.router.nodes.items()))

    @property
    def tables(self) -> list[PartitionTable]:
        """Return the table of every partition, by policy and index."""
        return sorted((t for _, t in self.router.tables.values()), key=lambda t: (t.policy, t.index))

    def table(self, partition: str) -> PartitionTable:
        """Return the table of one partition. ConfigError if there is none of this name."""
        known = self.router.tables.get(partition)
        if known is None:
            raise UnknownNameError.of("partition", partition, [t.name for t in self.tables])
        return known[1]

    @cached_property
    def definitions(self) -> Definitions:
        """Return the definitions that the schemas topic holds."""
        return Definitions(self.adapters.log, topic_names.schemas_topic(self.config))

    # --- asking ---

    def ask(self, partition: str, frame: frames.Request, expect: type[R], open_: OpenCommit | None = None) -> R:
        """Ask the active node of a partition, whoever it is by then. `open_`: see `Router.ask`."""
        reply = self.router.ask(partition, frame, self.timeout_s, lambda: False, open_=open_)
        if not isinstance(reply, expect):
            raise HalogError(f"the active node of {partition} answered {type(reply).__name__}")
        return reply

    def fetch(self, partition: str, keys: Sequence[bytes], *, brief: bool = False) -> Sequence[CommittedObject | None]:
        """Return the committed objects under these index keys; with `brief`, without their values."""
        version, room = self.mapping_version(partition), room_in(self.config.limits.max_frame_bytes)
        found: list[CommittedObject | None] = []
        while len(found) < len(keys):
            request = frames.Fetch(partition, first_of(keys, len(found), room), 0, mapping=version, brief=brief)
            found += items_of(self.ask(partition, request, frames.Objects), partition)
        return found

    def scan(self, partition: str, prefix: bytes) -> Iterator[CommittedObject]:
        """Yield the committed objects whose index key begins with `prefix`, page by page."""
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
        """Return how many objects of each type id the active node counts, and the last lsn that was visible before."""
        after, version = b"", self.mapping_version(partition)
        counted, lsn = Counter[bytes](), -1
        while True:
            told = self.ask(partition, frames.Count(partition, prefix, after, version), frames.CountReply)
            counted.update(told.types)
            after, lsn = told.last, told.lsn if lsn < 0 else lsn
            if told.end:
                return counted, lsn

    def read(self, tp: TopicPartition, start: int, end: int) -> Iterator[Entry]:
        """Yield the log's entries in [start, end). Each piece must come within the timeout."""
        for at in range(start, end, LOG_PIECE):
            yield from self.adapters.log.read(tp, at, min(end, at + LOG_PIECE), self.timeout_s)

    def commit(self, works: Mapping[str, Work]) -> None:
        """Commit the works as one transaction. Its id is made once, so that a repeated request never does it twice."""
        ours = self._location.to_bytes(8, "big")
        if len(works) == 1:
            ((partition, work),) = works.items()
            self.submit(partition, work, ours)
        else:
            self._spanning.commit(self._stamped(ours), {p: self._mapped(p, w) for p, w in works.items()})

    def submit(self, partition: str, work: Work, ending: bytes) -> int:
        """Commit in one partition, with a transaction id that ends with `ending`, and return the lsn.
        OutcomeUnknownError if the partition refuses while an earlier request may still be carried out."""
        frame, open_ = frames.Submit(partition, self._stamped(ending), self._mapped(partition, work)), OpenCommit()
        try:
            return self.ask(partition, frame, frames.CommitReply, open_).lsn
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
    def _spanning(self) -> TwoPhaseCommits:
        """Return what commits over several partitions. It has threads, so it is made when it is first needed."""
        asker = Asker(self.name, self.router, {}, self.timeout_s)
        commits = Commits(asker, self._location, lambda partition: False)
        doubt_s = self.config.timing.doubt_timeout_ms / 1000
        return TwoPhaseCommits(asker, Ballots(asker), lambda partition: False, commits, doubt_s)

    def new_reference(self) -> Reference:
        """Return a reference that was never given before. As far as references go, this process is a node of its
        own."""
        self._count += 1
        return Reference(self._location, self._installation, self._count)

    # --- placement ---

    @cached_property
    def places(self) -> Places:
        """Return which mapper decides for which type. The module of a custom mapper is imported when it is first
        asked."""
        modules_beside(self.config)
        held, known = bindings.read(self.coordinator), mapped_policies.read_all(self.coordinator)
        return Places(self.config, self._definition_of, held, known, self.definitions.find)

    def mapping_version(self, partition: str) -> int:
        """Return the version of the partition's mapping, for requests that name its keys (T8)."""
        policy = self.table(partition).policy
        return self.places.mapping(policy).version if policy in self.places.mappings else 0

    def check_settled(self, policies: Sequence[str]) -> None:
        """Raise RefusedError while the mapping of one of these policies changes: its objects are about to move."""
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
        """Return the policies these types are bound to. UnknownTypeError if a type is bound to none, or is kept only at
        another site."""
        return self.places.policies_of(type_names)

    def owner(self, type_name: str) -> Owner:
        """Return what decides where objects of a type are. ConfigError if the cluster was made with another mapper."""
        if type_name not in self._owners:
            policy = self.places.policy_of(type_name)
            if policy is not None:
                check_mapping(self.coordinator, self.config, policy, activated=self.activated.number > 0)
            self._owners[type_name] = self.places.owner(type_name)
        return self._owners[type_name]


def modules_beside(config: Config) -> None:
    """Let application modules lie in the working directory, as with `python -m`."""
    if config.application.modules and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _ignore(state: SessionState) -> None:
    """Ignore the session's state: a command is too short to mind it, and every wait has a timeout."""


@contextmanager
def connect(config_path: Path, timeout_s: float, *, as_in_file: bool = False) -> Iterator[ClusterConnection]:
    """Keep a connection open for the length of a command."""
    config = load_config(config_path)
    around = of_command()
    name = f"halog-cli-{re.sub(r'[^A-Za-z0-9._-]', '-', around.machine)[:60]}-{os.getpid()}"
    adapters = around.adapters(config, name, answer_s=timeout_s)
    connection = ClusterConnection(config, adapters, name, timeout_s, around)
    try:
        connection.open(as_in_file=as_in_file)
        reached(connection)
        yield connection
    finally:
        connection.close()
