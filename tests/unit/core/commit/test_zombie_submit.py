"""A writer that was replaced does not judge a transaction tried under a later epoch (trace 3)."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from tests.unit.core.kit import Core, create, tx


@pytest.mark.feature("R5", "P10")
def test_a_zombie_does_not_answer_for_a_later_epoch() -> None:
    """A second attempt that knows of a higher epoch gets "not serving" from a node that leads a lower one: that node
    would say "conflict" of what the higher epoch may have committed."""
    core = Core().active()
    led = core.p.state.chain.state.epoch.number
    (later,) = core.step(ev.Submitted(7, tx(1), ((b"k", 3),), (create(),), {}, led + 1))
    assert isinstance(later, fx.Reply)
    assert isinstance(later.result, res.InactiveCopy)
    (known,) = core.step(ev.Submitted(8, tx(1), ((b"k", 3),), (create(),), {}, led))
    assert isinstance(known, fx.Reply)
    assert isinstance(known.result, res.VersionConflict)


@pytest.mark.feature("R5")
def test_what_is_late_is_not_done_in_a_later_epoch() -> None:
    """Whoever asked again was answered in that one, and believed it."""
    core = Core().active()
    led = core.p.state.chain.state.epoch.number
    late = core.step(ev.Submitted(7, tx(1), (), (create(),), {}, led - 1, exact=True))
    assert late == [fx.Reply(7, res.InactiveCopy(None, led))]
    early = core.step(ev.Submitted(8, tx(1), (), (create(),), {}, led + 1, exact=True))
    assert early == [fx.Reply(8, res.InactiveCopy(None))]
    its_own = core.step(ev.Submitted(9, tx(1), (), (create(),), {}, led, exact=True))
    assert [type(e) for e in its_own] == [fx.Append]


@pytest.mark.feature("R5", "D4")
def test_a_vote_that_is_late_is_not_given_in_a_later_epoch() -> None:
    """The last one decides: whoever asked by id in the later epoch was told that it did not happen."""
    core = Core().active()
    led = core.p.state.chain.state.epoch.number

    def asked(epoch: int) -> ev.PrepareAsked:
        return ev.PrepareAsked(7, tx(1), "p", ("p", "q"), b"d", (), (create(),), {}, epoch, last=True, exact=True)

    assert core.step(asked(led - 1)) == [fx.Reply(7, res.InactiveCopy(None, led))]
    assert core.step(asked(led + 1)) == [fx.Reply(7, res.InactiveCopy(None))]
    assert fx.Append in [type(e) for e in core.step(asked(led))]
