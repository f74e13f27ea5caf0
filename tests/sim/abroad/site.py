"""One site of two: a world of its own, as the histories of one site have it, whose nodes also do what
`halog.runtime` does for other sites: they mirror, give the log away, look for splits, and merge."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from halog.core import effects as fx, results as res
from halog.core.ids import Member
from halog.errors import UnreachableError
from halog.metadata.restore_requests import RestoreRequest
from halog.ports import TopicPartition
from halog.runtime.sites.home_tables import returned
from halog.runtime.support.adapters import SiteAccess
from tests.sim.abroad.client import SiteClient
from tests.sim.abroad.node import SiteNode
from tests.sim.abroad.services import ARRIVED, TABLE, Asker, SiteCoordinator, SiteLog, Znodes
from tests.sim.abroad.watched import SiteChecks
from tests.sim.abroad.wire import Way
from tests.sim.log import FakeLog
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.abroad.pair import Pair
    from tests.sim.node import Process

_RESTORE = msgspec.json.Decoder(RestoreRequest)


class SiteWorld(World):
    """Of a `Pair`."""

    def __init__(self, pair: Pair, seed: int, site: str, other: str, home: str, **more: Any) -> None:
        self.pair = pair
        self.other = other
        self.znodes = Znodes()
        self.at_it: dict[Member, SiteNode] = {}
        """What each process does for other sites."""
        self.heard: dict[int, Callable[[res.Result], None]] = {}
        """Who waits for an answer that no client has asked for."""
        super().__init__(seed, site=site, home=home, judge=SiteChecks, clients=0, engine=pair.engine, **more)
        self.cover = pair.cover
        self.log.cover = self.coordinator.cover = pair.cover
        self.arrived = FakeLog(pair.engine, self.nature, pair.cover)

    def rate(self, me: Member) -> float:
        takeover = self.pair.takeover
        return super().rate(me) if takeover is None else takeover.rate(self.seed, me)

    def employ(self, clients: int, quota: int) -> None:
        self.clients = [SiteClient(self, f"{self.site}{i}", quota=quota) for i in range(clients)]

    @property
    def site_clients(self) -> list[SiteClient]:
        return [c for c in self.clients if isinstance(c, SiteClient)]

    def topic(self, tp: TopicPartition) -> FakeLog:
        return self.arrived if tp == ARRIVED else self.log

    def next_transaction(self) -> int:
        """No two sites give the same id."""
        return 2 * super().next_transaction() + (self.site == "east")

    # --- other sites ---

    def asker(self, process: Process | None = None) -> Asker:
        return Asker(self.site, process)

    def reach(self, asker: Asker) -> Callable[[str], SiteAccess]:
        """Over the line. UnreachableError."""

        def reach(site: str) -> SiteAccess:
            if self.pair.wire.way(self.site, site) is not Way.FINE:
                raise UnreachableError(f"site {site} does not answer")
            there = self.pair.worlds[site]
            return SiteAccess(site, SiteLog(there, asker), SiteCoordinator(there, asker))  # type: ignore[arg-type]

        return reach

    def written(self, path: str, data: bytes) -> None:
        """A znode changed that is not the partition's."""
        if path.startswith("restores/"):
            self.pair.restores_at(self.site, _RESTORE.decode(data))

    # --- a node's life ---

    def start(self, name: str, *, wipe: bool = False) -> None:
        if self.nodes[name].process is not None or name in self.gone:
            return
        self._look_who_serves(Member(name, self.nodes[name].incarnation + 1))
        super().start(name, wipe=wipe)
        process = self.nodes[name].process
        assert process is not None
        self.at_it[process.me] = SiteNode(process, self)

    def _look_who_serves(self, me: Member) -> None:
        """As a node does that starts (F3)."""
        asker, c = self.asker(), self.coordinator
        config: Any = SimpleNamespace(policies={"policy": SimpleNamespace(home="west")}, other_sites=(self.other,))
        before = c.table.owner
        own: Any = SiteCoordinator(self, asker)
        returned(config, own, self.reach(asker), {TABLE.split("/")[1]: (c.version, c.table)}, me)
        if c.table.owner != before:
            self.cover.hit("a node that started found another site serving")

    def heal(self) -> None:
        super().heal()
        for session in self.arrived.sessions:
            if session.frozen:
                session.thaw()

    def crash(self, name: str) -> None:
        process = self.nodes[name].process
        super().crash(name)
        for asker, session in self.pair.sessions:
            if process is not None and asker.process is process:
                session.abandon()

    # --- what copies ask ---

    def asked_for(self, p: Process, e: fx.Spread | fx.AskDecision | fx.MergeDue | fx.AskVote) -> None:
        if isinstance(e, fx.AskVote):
            self.at_it[p.me].ask(e)
        else:
            assert isinstance(e, fx.MergeDue)
            self.at_it[p.me].due(e)

    def answer(self, p: Process, token: int, result: res.Result) -> None:
        heard = self.heard.pop(token, None)
        if heard is not None:
            heard(result)
        else:
            super().answer(p, token, result)

    @property
    def serves(self) -> bool:
        return not self.coordinator.table.owner
