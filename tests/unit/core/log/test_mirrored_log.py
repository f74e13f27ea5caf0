"""A log that belongs to another site: what is mirrored into it counts once, whoever brings it, when ever (F1, F2)."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from halog.core.ids import NO_EPOCH
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import Header
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.errors import LaterRecordError
from tests.unit.core.kit import LOG_ID, Script
from tests.unit.core.log.mirroring_kit import BEGINNING, MIRRORED, east, mirrored, read, returned, switched, west

pytestmark = pytest.mark.feature("M5")


def test_a_log_given_away_in_the_middle_of_an_epoch_goes_on_with_it() -> None:
    """A third site that follows whoever serves now; or one that was told to take over, and back, before it did."""
    chain, script = mirrored(1, 2)
    assert read(chain, Script().started(east(2))) is Verdict.STARTED
    late = script.commit(west(1), 3)
    assert read(chain, late) is Verdict.SKIPPED, "it is its own from here on"
    assert read(chain, switched(chain, 2)) is Verdict.SWITCHED
    assert read(chain, late) is Verdict.ACCEPTED
    assert read(chain, script.handed_over(west(1), "east")) is Verdict.ACCEPTED
    assert chain.state.head == (west(1), 5)
    assert read(chain, script.commit(west(1), 4)) is Verdict.SKIPPED, "nothing comes behind the end of an epoch"
    assert read(chain, script.opened(west(3))) is Verdict.SKIPPED, "nor of what stands on it"


# --- F2: the next one of the chain counts ---


def test_a_mirrored_record_behind_a_hole_is_skipped_and_voids_nothing() -> None:
    chain, script = mirrored(1)
    missing, behind = script.commit(west(1), 2), script.commit(west(1), 3)
    assert [read(chain, d) for d in (behind, missing, behind)] == [
        Verdict.SKIPPED,
        Verdict.ACCEPTED,
        Verdict.ACCEPTED,
    ]


def test_a_mirrored_epoch_ends_the_one_that_was_handed_over() -> None:
    chain, script = mirrored(1)
    assert read(chain, script.handed_over(west(1), "w2")) is Verdict.ACCEPTED
    assert read(chain, script.opened(west(2))) is Verdict.OPENED
    assert read(chain, script.commit(west(2), 2)) is Verdict.ACCEPTED
    assert [e.number for e, _ in chain.state.lineage] == [1, 2]
    assert chain.state.led == 2


def test_what_does_not_continue_the_history_is_no_part_of_it() -> None:
    chain, script = mirrored(1)
    other = Script(script.lsn, b"x" * 16)
    assert read(chain, other.opened(west(2))) is Verdict.SKIPPED
    assert read(chain, script.commit(west(1), 2)) is Verdict.ACCEPTED


# --- F1: who owns the log ---


def test_the_own_site_takes_over_and_what_the_mirror_still_brings_is_skipped() -> None:
    chain, script = mirrored(1, 2)
    late = Script(script.lsn, script.prev).commit(west(1), 3)
    assert read(chain, script.started(east(2))) is Verdict.STARTED
    assert chain.state.owner == ""
    assert read(chain, late) is Verdict.SKIPPED
    assert read(chain, script.opened(east(2))) is Verdict.OPENED
    assert read(chain, late) is Verdict.SKIPPED
    assert read(chain, script.commit(east(2), 4)) is Verdict.ACCEPTED
    assert [e.site for e, _ in chain.state.lineage] == ["west", "east"]


def test_numbers_of_two_sites_are_never_compared_to_decide_who_opens() -> None:
    chain, script = Chain(MIRRORED), Script()
    read(chain, script.opened(west(7)))
    assert read(chain, script.started(east(3))) is Verdict.STARTED
    assert read(chain, script.started(west(9))) is Verdict.SKIPPED
    assert read(chain, script.opened(east(3))) is Verdict.OPENED


def test_an_epoch_that_was_begun_here_and_never_opened_does_not_end_that_of_the_other_site() -> None:
    """An operator takes over while the line is cut, nobody opens an epoch, and the log is given back: over there the
    same epoch has gone on."""
    chain, script = mirrored(1)
    read(chain, script.started(east(2)))
    assert read(chain, switched(chain, 2)) is Verdict.SWITCHED
    assert read(chain, script.commit(west(1), 2)) is Verdict.ACCEPTED
    assert read(chain, script.handed_over(west(1), "B")) is Verdict.ACCEPTED
    assert read(chain, script.commit(west(1), 3)) is Verdict.SKIPPED
    assert read(chain, Script().started(east(2))) is Verdict.SKIPPED


def test_a_log_can_be_taken_over_again() -> None:
    chain, script, _ = returned()
    read(chain, script.opened(west(4)))
    assert read(chain, script.started(east(5))) is Verdict.STARTED
    assert read(chain, script.opened(east(5))) is Verdict.OPENED


def test_a_switch_counts_only_where_its_writer_stood() -> None:
    chain, script = Chain(ChainState(LOG_ID, "east")), Script()
    read(chain, script.started(east(1)))
    read(chain, script.opened(east(1)))
    behind = switched(chain, 1)
    read(chain, script.commit(east(1), 1))
    assert read(chain, behind) is Verdict.VOIDED
    assert chain.state.owner == ""


def test_a_switch_of_a_dead_epoch_is_skipped() -> None:
    chain, script = Chain(ChainState(LOG_ID, "east")), Script()
    read(chain, script.started(east(1)))
    read(chain, script.opened(east(1)))
    late = switched(chain, 1)
    read(chain, script.started(east(2)))
    assert read(chain, late) is Verdict.SKIPPED


@pytest.mark.parametrize(("to", "verdict"), [("west", Verdict.SWITCHED), ("north", Verdict.SKIPPED)])
def test_behind_a_hand_over_only_its_own_switch_counts(to: str, verdict: Verdict) -> None:
    chain, script = Chain(ChainState(LOG_ID, "east")), Script()
    read(chain, script.started(east(1)))
    read(chain, script.opened(east(1)))
    read(chain, script.handed_over(east(1), "west"))
    assert read(chain, switched(chain, 1, to)) is verdict


# --- the mirror ---


def home(*numbers: int) -> tuple[list[bytes], Script]:
    script = Script()
    log = [script.started(west(1)), script.opened(west(1))]
    return log + [script.commit(west(1), n) for n in numbers], script


def brought(mirror: Mirror, log: list[bytes]) -> list[bytes]:
    return [found for offset, data in enumerate(log) for found in mirror.read(offset, data)]


def test_a_mirror_brings_the_chain_and_nothing_that_did_not_count() -> None:
    log, script = home(1, 2)
    zombie = Script(script.lsn, script.prev).commit(west(1), 9)
    log += [script.started(west(2)), zombie, script.opened(west(2)), script.commit(west(2), 3)]
    found = brought(Mirror(Checkpoint(0, BEGINNING), MIRRORED), log)
    assert [records.decode(d).header.lsn for d in found] == [1, 2, 3, 4, 5]
    assert zombie not in found


def test_a_mirror_goes_on_behind_what_is_there() -> None:
    log, _ = home(1, 2, 3)
    chain = Chain(MIRRORED)
    for data in log[1:3]:
        read(chain, data)
    mirror = Mirror(Checkpoint(0, BEGINNING), chain.state)
    assert brought(mirror, log) == log[3:]
    again = Mirror(mirror.checkpoint, msgspec.structs.replace(chain.state, lsn=mirror.lsn, hash=mirror.hash))
    assert brought(again, log) == []


@pytest.mark.feature("U1")
def test_what_a_later_version_wrote_is_not_brought_and_nothing_behind_it_is() -> None:
    """Whoever reads what was brought would read another history than the other site's readers do."""
    log, script = home(1, 2)
    later = bytes((records.VERSION, records.LAST_KIND + 1)) + b"whatever it says"
    mirror = Mirror(Checkpoint(0, BEGINNING), MIRRORED)
    brought(mirror, log)
    place = mirror.checkpoint
    for _ in range(2):
        says = f"offset {len(log)}, behind lsn {script.lsn}: a record of version 1"
        with pytest.raises(LaterRecordError, match=says):
            mirror.read(len(log), later)
        assert mirror.checkpoint == place, "who knows it goes on here"


def test_histories_that_parted_are_told_and_nothing_is_brought() -> None:
    log, _ = home(1, 2)
    ours, script = Chain(MIRRORED), Script()
    for data in (script.opened(west(1)), script.commit(west(1), 7)):
        read(ours, data)
    mirror = Mirror(Checkpoint(0, BEGINNING), ours.state)
    assert brought(mirror, log) == []
    assert mirror.parted is not None
    assert "lsn 2" in mirror.parted.message
    assert mirror.parted.evidence["ours"] == ours.state.hash.hex()


def test_a_mirror_that_would_begin_behind_the_own_log_is_refused() -> None:
    log, _ = home(1, 2)
    mirror = Mirror(Checkpoint(0, BEGINNING), MIRRORED)
    brought(mirror, log)
    behind = Mirror(mirror.checkpoint, MIRRORED)
    assert behind.parted is not None
    assert "lsn 0" in behind.parted.message
    assert behind.read(mirror.offset, log[-1]) == []
    assert behind.checkpoint == mirror.checkpoint


def test_a_mirror_tells_when_the_other_log_was_given_away() -> None:
    log, script = home(1)
    handed = script.handed_over(west(1), "east")
    switch = records.SiteSwitched(Header(LOG_ID, west(1)), "east", (west(1), script.lsn))
    mirror = Mirror(Checkpoint(0, BEGINNING), MIRRORED)
    found = brought(mirror, [*log, handed, records.encode(switch)])
    assert found[-1] == handed
    assert mirror.given_away == "east"


class Line:
    """West's log, east's log, and mirrors between them whose appends land late, in order, or not at all."""

    def __init__(self) -> None:
        self.west = Chain(BEGINNING)
        self.east = Chain(MIRRORED)
        self.script = Script()
        self.number = 0
        self.tx = 0
        self.west_log: list[bytes] = []
        self.east_log: list[bytes] = []
        self.truth: list[bytes] = []
        """What west's log has accepted, in order."""
        self.seen: list[bytes] = []
        self.zombies: list[bytes] = []
        self.sessions: list[deque[bytes]] = []
        self.mirrors: list[tuple[Mirror, deque[bytes]]] = []

    def add(self, data: bytes) -> None:
        self.west_log.append(data)
        if read(self.west, data) in (Verdict.ACCEPTED, Verdict.OPENED):
            self.truth.append(data)

    def epoch(self) -> None:
        if self.number:
            self.zombies.append(Script(self.script.lsn, self.script.prev).commit(west(self.number), 10_000 + self.tx))
        self.number += 1
        self.add(self.script.started(west(self.number)))
        self.add(self.script.opened(west(self.number)))

    def commit(self) -> None:
        self.tx += 1
        self.add(self.script.commit(west(self.number), self.tx))

    def zombie(self) -> None:
        if self.zombies:
            self.add(self.zombies.pop())

    def mirror(self) -> None:
        """One more: it has read its own log to the end."""
        session: deque[bytes] = deque()
        self.sessions.append(session)
        self.mirrors.append((Mirror(Checkpoint(0, BEGINNING), self.east.state), session))

    def look(self, which: int, count: int) -> None:
        if self.mirrors:
            mirror, session = self.mirrors[which % len(self.mirrors)]
            for offset in range(mirror.offset, min(mirror.offset + count, len(self.west_log))):
                session.extend(mirror.read(offset, self.west_log[offset]))

    def die(self, which: int) -> None:
        """What it sent may still land, from the front."""
        if self.mirrors:
            self.mirrors.pop(which % len(self.mirrors))

    def land(self, which: int, count: int) -> None:
        if self.sessions:
            session = self.sessions[which % len(self.sessions)]
            for _ in range(min(count, len(session))):
                self.append(session.popleft())

    def append(self, data: bytes) -> None:
        self.east_log.append(data)
        if read(self.east, data) in (Verdict.ACCEPTED, Verdict.OPENED):
            self.seen.append(data)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["epoch", "commit", "commit", "zombie", "mirror"])),
    st.tuples(st.just("look"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("land"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("die"), st.integers(0, 5)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=60), st.integers(0, 3))
def test_however_many_mirrors_and_whatever_lands_late_both_logs_hold_one_history(
    steps: list[tuple[str, ...]], owner_changes: int
) -> None:
    line = Line()
    line.epoch()
    for name, *args in steps:
        getattr(line, name)(*args)
        assert line.seen == line.truth[: len(line.seen)]
    line.mirror()
    line.look(len(line.mirrors) - 1, 1_000)
    line.land(len(line.sessions) - 1, 1_000)
    assert line.seen == line.truth
    assert (line.east.state.lsn, line.east.state.hash) == (line.west.state.lsn, line.west.state.hash)
    assert line.east.state.lineage == line.west.state.lineage
    went_on = Script(line.script.lsn, line.script.prev)
    for n in range(owner_changes):  # east takes over, and what is still on its way from west lands in between
        number = line.east.state.epoch.number + 1
        line.append(went_on.started(east(number)))
        line.land(n, 1)
        line.append(went_on.opened(east(number)))
        line.land(n, 1)
        line.append(went_on.commit(east(number), 20_000 + n))
    for which in range(len(line.sessions)):
        line.land(which, 1_000)
    assert len(line.seen) == len(line.truth) + 2 * owner_changes
    assert line.east.state.lsn == went_on.lsn


def test_an_empty_history_has_no_head() -> None:
    assert MIRRORED.head == (NO_EPOCH, 0)
