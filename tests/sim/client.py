"""A client that runs transactions and insists: what is unknown is asked again with the same id, a conflict is tried
anew under a new one, and it remembers what it was told. It reads from whoever believes to be active, zombies included.

A transaction is only ever sent to epochs that do not fall; the answer of an older attempt is not believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev, results as res
from halog.core.durability import Durability
from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from tests.sim import late

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

KEYS = [b"aaaa", b"bbbb", b"cccc", b"dddd"]
REF = bytes(24)
PATIENCE_MS = 150.0
PAUSE_MS = 6.0
DENIALS = (res.VersionConflict, res.DuplicateKey, res.Abort, res.OversizedRecord, res.Refusal)
_EARLY, _FLUSHED = Durability(local="NO_SYNC"), Durability(remote="SYNC")
MORE = (Durability(remote="SYNC", replicas=2), Durability(local="SYNC"), Durability(local="NO_SYNC", remote="SYNC"))
LESS = (*[_EARLY] * 6, _FLUSHED, _FLUSHED, None)
ASKED = {True: LESS, False: (*MORE, *LESS, None, None)}
"""What a client may ask for, each as likely; where most of them ask for less, and elsewhere."""


class Transaction:
    """One transaction and all that was said about it."""

    def __init__(
        self, id_: bytes, name: str, reads: list[tuple[bytes, int]], changes: list[Change], floor: int
    ) -> None:
        self.id = id_
        self.name = name
        self.reads = reads
        self.changes = changes
        self.floor = floor
        """The highest lsn answered to anybody before this began: it must come after (P4)."""
        self.durability: Durability | None = None
        self.seen: dict[bytes, bytes | None] = {}
        """The values it read, and builds on."""
        self.told_early: set[int] = set()
        """Lsns it was said to have happened at, before the log had it: it asked for that, and may be lost."""
        self.attempt = 0
        """The highest epoch it was sent to."""
        self.first = 0
        """The one that it was sent to first."""
        self.out = 0
        """The highest one that a request was sent for which may be late: whose answer nobody has heard."""
        self.token = -1
        """The latest request; answers to earlier ones are not believed."""
        self.happened: int | None = None
        self.denied = ""
        self.expired = False

    @property
    def settled(self) -> bool:
        return self.happened is not None or bool(self.denied) or self.expired


class Request:
    """One message about a transaction."""

    __slots__ = ("asked", "client", "epoch", "tx")

    def __init__(self, client: Client, tx: Transaction, *, asked: bool, epoch: int = 0) -> None:
        self.client = client
        self.tx = tx
        self.asked = asked
        self.epoch = epoch


class Client:
    """One client with at most one transaction at a time."""

    def __init__(self, world: World, name: str, *, quota: int) -> None:
        self.world = world
        self.name = name
        self.quota = quota
        self.done: list[Transaction] = []
        self.current: Transaction | None = None
        self.slow = late.chances(world.seed, name)

    @property
    def idle(self) -> bool:
        return self.current is None and self.quota <= 0

    def begin(self) -> None:
        """Start the next transaction, if any is left to do."""
        if self.current is not None or self.quota <= 0:
            return
        source = self._target(0)
        if source is None:
            self._later(self.begin)
            return
        self.quota -= 1
        self.run(self._made(source))

    def run(self, tx: Transaction) -> None:
        self.current = tx
        self._send()

    def make(self, reads: list[tuple[bytes, int]], changes: list[Change]) -> Transaction:
        world = self.world
        number = world.next_transaction()
        id_ = int(world.engine.now * 1000).to_bytes(8, "big") + number.to_bytes(8, "big")
        return Transaction(id_, f"{self.name}#{number}", reads, changes, world.checks.answered)

    def _made(self, source: Process) -> Transaction:
        rng = self.world.engine.rng
        few = KEYS[:2] if self.world.less else KEYS  # what is lost and what comes in its place are the same objects
        keys = rng.sample(few, rng.choice((1, 1, 2)))
        deletes = late.deletes(self.world.seed) or 0.15
        changes = [self.change(k, source.version(k), delete=rng.random() < deletes) for k in keys]
        changes += [self.change(c.key, ABSENT) for c in changes if c.op == DELETE and rng.random() < 0.3]
        reads = [(k, source.version(k)) for k in keys]
        if rng.random() < 0.3:
            extra = rng.choice(few)
            reads = [*[r for r in reads if r[0] != extra], (extra, source.version(extra))]
        if rng.random() < 0.3:
            reads = []
        tx = self.make(reads, changes)
        tx.seen = {k: source.value(k) for k in {k for k, _ in reads} | {c.key for c in changes}}
        if self.world.asking:
            tx.durability = self.world.operator.choice(ASKED[self.world.less])
        return tx

    def change(self, key: bytes, version: int, *, delete: bool = False) -> Change:
        if version == ABSENT:
            return Change(CREATE, REF, key, self._value(), ABSENT)
        if delete:
            return Change(DELETE, REF, key, None, version)
        return Change(UPDATE, REF, key, self._value(), version)

    def _value(self) -> bytes:
        return b"%d" % self.world.engine.rng.randrange(1000)

    # --- talking ---

    def _target(self, attempt: int) -> Process | None:
        """Somebody who says to be active, of no lower epoch than this was tried under."""
        leading = [p for p in self.world.processes() if p.partition.leading is not None and not p.unreached]
        able = [p for p in leading if p.partition.state.chain.state.led >= attempt]
        return self.world.engine.rng.choice(able) if able else None

    def _send(self) -> None:
        tx = self.current
        if tx is None:
            return
        rng = self.world.engine.rng
        if tx.attempt and (rng.random() < 0.25 or late.asks(self) or self._may_wait_in_vain(tx)):
            self._ask(tx)
            return
        target = self._target(tx.attempt)
        if target is None:
            self._later(self._send)
            return
        self.submit(tx, target)

    def _may_wait_in_vain(self, tx: Transaction) -> bool:
        """Those who are to flush it may have died for good."""
        flushes = tx.durability is not None and tx.durability.flushed > 0
        return flushes and self.world.healed and self.world.operator.random() < 0.5

    def submit(self, tx: Transaction, target: Process) -> None:
        epoch = target.partition.state.chain.state.led
        tx.attempt, tx.first = max(tx.attempt, epoch), tx.first or epoch
        tx.token = self.world.request(Request(self, tx, asked=False, epoch=epoch))
        request = ev.Submitted(tx.token, tx.id, tx.reads, tx.changes, {}, durability=tx.durability)
        request = late.exactly(request, self, epoch)
        slow = late.sent(self, target, request, epoch)
        if not slow:
            self.world.to_server(self.name, target, request, epoch)
        self.world.engine.at(late.IMPATIENT_MS if slow else PATIENCE_MS, self._impatient, tx.token)

    def _ask(self, tx: Transaction) -> None:
        """Anybody may know what became of it."""
        asked = list(self.world.processes())
        tx.token = self.world.request(Request(self, tx, asked=True))
        self.world.engine.at(PATIENCE_MS, self._impatient, tx.token)
        if asked:
            target = self.world.engine.rng.choice(asked)
            self.world.ask(self.name, target, ev.Asked(tx.token, tx.id, late.asks_under(tx)))

    def _impatient(self, token: int) -> None:
        if self.current is not None and self.current.token == token:
            self.world.cover.hit("client asked again")
            if self.slow is not None:
                self.current.out = max(self.current.out, self.world.requests[token].epoch)
            self._send()

    def _later(self, fn: object) -> None:
        assert callable(fn)
        self.world.engine.at(self.world.engine.rng.random() * PAUSE_MS * 2, fn)

    def answered(self, request: Request, token: int, result: res.Result) -> None:
        """An answer has arrived."""
        tx = request.tx
        if isinstance(result, res.Success):
            tx.happened = result.lsn
            self._finished(tx)
        elif token != tx.token or tx.settled:
            return
        elif isinstance(result, DENIALS) or (isinstance(result, res.Shortage) and (result.of != "nodes" or tx.out)):
            of = f" of {result.of.split()[-1]}" if isinstance(result, res.Shortage) else ""
            self.world.cover.hit(f"answer {type(result).__name__}{of}")
            if late.may_be_overtaken(request, result):
                self.world.cover.hit(f"answer {type(result).__name__} of what may still arrive")
                tx.expired = True  # nobody will know more, for as long as this epoch lasts
                self._finished(tx)
                return
            tx.denied = type(result).__name__
            self.quota += 1
            self._finished(tx)
        elif isinstance(result, res.ExpiredId):
            self.world.cover.hit("answer ExpiredId")
            tx.expired = True
            self._finished(tx)
        else:
            if isinstance(result, res.Shortage):
                self.world.cover.hit("answer Shortage")
            tx.token = -1
            self._later(self._send)

    def _finished(self, tx: Transaction) -> None:
        if self.current is tx:
            self.done.append(tx)
            self.current = None
            if rest := late.rests(self, tx) or self.world.outages.pause():
                self.world.engine.at(rest, self.begin)
            else:
                self._later(self.begin)
