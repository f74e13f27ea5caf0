"""Traces 20 to 22 of the protocol, where a mirror, a take-over or a return is what they break: records in a log of
east's that mirrors west's, and two sites that switch. What they break of a merge is in `test_merge_traces`.
"""

from __future__ import annotations

import pytest

from halog.core.log.chain import Verdict
from tests.unit.core.kit import Script
from tests.unit.core.log.mirroring_kit import east, mirrored, read, returned, west
from tests.unit.core.sites.switch_model import World

pytestmark = pytest.mark.feature("M5", "X3")


def test_a_mirrored_record_counts_once_whoever_brings_it() -> None:
    """Trace 20: two mirrors append the same record."""
    chain, script = mirrored(1)
    data = script.commit(west(1), 2)
    assert [read(chain, data) for _ in range(2)] == [Verdict.ACCEPTED, Verdict.SKIPPED]
    assert read(chain, script.commit(west(1), 3)) is Verdict.ACCEPTED


def test_a_repeated_record_voids_nothing_of_an_epoch_that_was_opened_since() -> None:
    """Trace 20 again: the second mirror was held for longer, and what it brings is of the epoch before."""
    chain, script = mirrored()
    old = script.commit(west(1), 1)
    assert read(chain, old) is Verdict.ACCEPTED
    again = script.opened(west(2))
    assert [read(chain, data) for data in (again, old, again)] == [
        Verdict.OPENED,
        Verdict.SKIPPED,
        Verdict.SKIPPED,
    ]
    assert read(chain, script.commit(west(2), 2)) is Verdict.ACCEPTED


def test_the_other_sites_starts_change_nothing() -> None:
    """Trace 21: a held one would depose whoever went on."""
    chain, script = mirrored(1)
    before = chain.state
    assert read(chain, script.started(west(9))) is Verdict.SKIPPED
    assert chain.state == before
    assert read(chain, script.commit(west(1), 2)) is Verdict.ACCEPTED


def test_a_held_start_of_the_other_site_does_not_depose_the_site_that_went_on() -> None:
    """Trace 21: a mirror that is no more had sent it, before this site took over; it lands before its epoch is opened,
    and behind that."""
    chain, script = mirrored(1)
    held = Script().started(west(9))
    assert read(chain, script.started(east(2))) is Verdict.STARTED
    assert read(chain, held) is Verdict.SKIPPED
    assert read(chain, script.opened(east(2))) is Verdict.OPENED
    assert read(chain, held) is Verdict.SKIPPED
    assert read(chain, script.commit(east(2), 2)) is Verdict.ACCEPTED
    assert chain.state.owner == ""


def test_a_site_that_fenced_its_log_before_it_gave_it_away_is_not_met_by_its_own_past() -> None:
    """Trace 22: the held append lands behind the comparison, and would continue the history."""
    chain, script, held = returned()
    assert read(chain, held) is Verdict.SKIPPED
    assert read(chain, Script().started(east(3))) is Verdict.SKIPPED
    assert read(chain, script.opened(west(4))) is Verdict.OPENED
    assert read(chain, script.commit(west(4), 6)) is Verdict.ACCEPTED


@pytest.mark.parametrize("held", ["commit", "opening"])
def test_what_a_site_still_sends_behind_its_turn_counts_nowhere(held: str) -> None:
    """Trace 22 with everything around it: it would continue the very history that the site gave its log away with."""
    world = World()
    world.promote("east")
    world.give_away("west")
    if held == "commit":
        world.commit("east")
    else:
        world.east.elect(landing=0)
    late = world.east.writer
    assert late
    world.promote("west")
    world.give_away("east")
    assert world.east.chain.state.owner == "west"
    world.east.land(late, 9)
    world.check()
    world.mirror("east", 9)
    world.check()
    assert world.east.accepted == world.west.accepted
    assert not world.east.acknowledged
