"""A log nastier than Kafka: appends are held for seconds and land after their session was abandoned or its process
died; acknowledgements get lost; entries reach readers late and at different speeds. Kept promises: appends of one
session land in order, and (but for the rare world without Kafka's gapless guarantee) none lands behind one that failed;
an entry never moves or changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from halog.core import events as ev
from tests.sim.answers import Answers
from tests.sim.coverage import Coverage
from tests.sim.engine import Engine
from tests.sim.nature import Fate, Nature

if TYPE_CHECKING:
    from halog.core.ids import Member
    from tests.sim.node import Process

Deliver = Callable[[ev.Event], None]

HELD_MS = (20.0, 600.0)
HELD_ELECTION_MS = 40.0
"""So long after an answer its election is over: somebody claims, or it takes another answer."""


class Entry(NamedTuple):
    """One entry and the session that wrote it."""

    data: bytes
    session: int
    writer: str


class FakeLog:
    """One log partition."""

    def __init__(self, engine: Engine, nature: Nature, cover: Coverage) -> None:
        self.engine = engine
        self.nature = nature
        self.cover = cover
        self.entries: list[Entry] = []
        self.readers: list[Reader] = []
        self.sessions: list[Session] = []
        self.away = self.full = False
        """It takes nothing; and if it is `away`, it gives nothing and answers nobody either."""
        self.dry = False
        """It gives nothing."""
        self.questions: list[tuple[Process, int]] = []
        """Asked while it is away."""
        self.answers = Answers()
        self.told: Counter[Member] = Counter()
        """Answers that are on their way, or have just come: an election is held by them."""

    def session(self, writer: str, deliver: Deliver) -> Session:
        made = Session(self, len(self.sessions), writer, deliver)
        self.sessions.append(made)
        return made

    def ask(self, p: Process, round_: int) -> None:
        """Does it answer?"""
        self.engine.at(self.answers.way(self.engine.now), self._asked, p, round_)

    def _asked(self, p: Process, round_: int) -> None:
        if self.away:
            self.questions.append((p, round_))
        else:
            self.told[p.me] += 1
            self.engine.at(self.answers.way(self.engine.now), self._answer, p, round_)

    def _answer(self, p: Process, round_: int) -> None:
        p.deliver(ev.LogAnswered(round_))
        self.engine.at(HELD_ELECTION_MS, self._claimed, p.me)

    def _claimed(self, m: Member) -> None:
        self.told[m] -= 1

    def leaves(self, *, readable: bool) -> None:
        """It takes nothing from now on."""
        self.away = not readable
        self.full = readable
        self.dry = self.dry and not readable
        for r in self.readers:
            r.poke()

    def returns(self) -> None:
        """It is back: what was sent meanwhile arrives, and who asked hears it."""
        self.away = self.full = self.dry = False
        for session in self.sessions:
            if not session.frozen:
                session.thaw()
        for r in self.readers:
            r.poke()
        asked = self.questions
        self.questions = []
        for p, round_ in asked:
            self._asked(p, round_)

    def land(self, entry: Entry) -> int:
        self.entries.append(entry)
        for r in self.readers:
            r.poke()
        return len(self.entries) - 1


class Session:
    """One producer instance."""

    def __init__(self, log: FakeLog, number: int, writer: str, deliver: Deliver) -> None:
        self.log = log
        self.number = number
        self.writer = writer
        self.deliver = deliver
        self.listening = True
        """The owner still wants to hear."""
        self.failed = False
        """Reports failures only."""
        self.broken = False
        """Nothing more lands."""
        self.frozen = False
        """What is sent stays on its way until `thaw`."""
        self.held: list[tuple[int, bytes, Fate]] = []
        self._lands_at = self._said_at = 0.0

    def append(self, tag: int, data: bytes) -> None:
        engine, nature = self.log.engine, self.log.nature
        if self.failed:
            self._say(ev.AppendFailed(tag, "the session failed"))
            return
        self._lands_at = max(self._lands_at, engine.now + nature.delay(nature.land))
        engine.at(self._lands_at - engine.now, self._arrive, tag, data, nature.append_fate())

    def freeze(self) -> None:
        """From now on appends are held on their way."""
        self.frozen = True

    def thaw(self) -> None:
        """What was held arrives now, whether anybody still waits for it or not."""
        self.frozen = False
        held = self.held
        self.held = []
        for tag, data, fate in held:
            self._arrive(tag, data, fate)

    def abandon(self) -> None:
        """The owner lets go, or died. What was sent may still land, or not: all of it behind some point is lost."""
        self.listening = False
        if self.log.nature.chance(self.log.nature.abandoned_lost):
            self.broken = True
        elif self.log.nature.chance(self.log.nature.abandoned_held) and not self.frozen:
            self.freeze()
            self.log.engine.at(self.log.nature.delay(HELD_MS), self.thaw)

    def fail(self, why: str) -> None:
        """The session dies under its owner; what was sent may still land."""
        self.failed = True
        self.broken = self.broken or self.log.nature.chance(self.log.nature.abandoned_lost)
        if self.listening:
            self.deliver(ev.AppendFailed(-1, why))

    def _arrive(self, tag: int, data: bytes, fate: Fate) -> None:
        if self.frozen or self.log.away or self.log.full:
            self.held.append((tag, data, fate))
            return
        if fate is Fate.FAILED:
            self.broken = True
        if self.broken or fate is Fate.HOLE:
            self._say(ev.AppendFailed(tag, "the broker refused it"))
            return
        if not self.listening:
            self.log.cover.hit("append landed after its session ended")
        offset = self.log.land(Entry(data, self.number, self.writer))
        if fate is Fate.UNSAID:
            self.log.cover.hit("acknowledgement lost")
            self._say(ev.AppendFailed(tag, "timed out"))
        else:
            self._say(ev.Appended(tag, offset))

    def _say(self, event: ev.Appended | ev.AppendFailed) -> None:
        if not self.listening:
            return
        if self.failed and isinstance(event, ev.Appended):
            event = ev.AppendFailed(event.tag, "the session failed")
        self.failed = self.failed or isinstance(event, ev.AppendFailed)
        engine, nature = self.log.engine, self.log.nature
        self._said_at = max(self._said_at, engine.now + nature.delay(nature.ack))
        engine.at(self._said_at - engine.now, self.deliver, event)


class Reader:
    """Delivers entries to one process, each reader at its own pace."""

    def __init__(self, log: FakeLog, deliver: Callable[[list[tuple[int, bytes]], int], None]) -> None:
        self.log = log
        self.deliver = deliver
        self.generation = 0
        self.position = 0
        self.following = False
        self.stuck = False
        self._due = False
        log.readers.append(self)

    def follow(self, offset: int) -> None:
        self.generation += 1
        self.position = offset
        self.following = True
        self._due = False
        self.poke()

    def stop(self) -> None:
        self.generation += 1
        self.following = self._due = False

    def close(self) -> None:
        self.stop()
        self.log.readers.remove(self)

    def poke(self) -> None:
        """There may be something to deliver."""
        if self.following and not self._due and not self.stuck and self.position < len(self.log.entries):
            self._due = True
            self.log.engine.at(self.log.nature.delay(self.log.nature.read), self._fetch, self.generation)

    def unstick(self) -> None:
        self.stuck = False
        self.poke()

    def _fetch(self, generation: int) -> None:
        if generation != self.generation:
            return
        self._due = False
        if self.stuck or self.log.away or self.log.dry:
            return
        first, position = self.position, min(self.position + self.log.nature.batch, len(self.log.entries))
        self.position = position
        entries = [(offset, self.log.entries[offset].data) for offset in range(first, position)]
        if self.log.nature.sloppy:  # all at once, whatever the first of them lead to
            self.deliver(entries, self.generation)
            entries = []
        for entry in entries:
            if generation != self.generation:
                return
            self.deliver([entry], self.generation)
        if generation == self.generation:
            self.poke()
