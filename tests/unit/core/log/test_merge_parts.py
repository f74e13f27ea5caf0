"""What a copy does with the parts of a merge, and with what makes them count (F5)."""

from __future__ import annotations

import pytest

from halog.core import effects as fx
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.records import Merged
from restore.replay import Opening, merge_records
from tests.unit.core.kit import LOG_ID, SITE, Core, Script, create, epoch, replica, tx

pytestmark = pytest.mark.feature("M2", "X3")


def begun() -> tuple[Core, Script, list[bytes]]:
    """A replica that has read one commit, one vote, and the beginning of an epoch; and that epoch's merge."""
    core, script = replica()
    core.land(script.commit(epoch(1), 1, create(b"k")))
    core.land(script.vote(epoch(1), 2, create(b"l")))
    core.land(script.started(epoch(9)))
    other = ChainState(LOG_ID, "there", led=2, lsn=40, hash=b"o" * 16)
    opening = Opening(epoch(9), core.p.state.chain.state, 0, 3, {tx(2): True})
    return core, script, merge_records(opening, [other], None, [Merged(b"k", b"r" * 24, b"v")], b"name")


def test_no_position_is_stored_behind_parts() -> None:
    core, _, (*parts, last) = begun()
    for part in parts:
        core.land(part)
        assert not core.of(fx.Apply)
        assert not core.of(fx.Keep)
    core.land(last)
    applied = core.one(fx.Apply)
    (meant,) = applied.records
    assert isinstance(meant, AppliedMerge)
    assert applied.next_offset == core.offset
    assert meant.forgotten == (tx(2),) or meant.decided == ((tx(2), True),)
    assert (core.p.state.chain.state.lsn, core.p.state.ledger.mapping) == (41, 3)
    assert not core.p.state.ledger.undecided
    assert not core.p.state.ledger.locks


def test_a_higher_epoch_makes_them_nothing() -> None:
    core, script, (*parts, last) = begun()
    for part in parts:
        core.land(part)
    core.land(script.started(epoch(10)))
    assert core.of(fx.Keep)
    for data in (*parts, last):
        core.land(data)
        assert not core.of(fx.Apply)
    assert core.p.state.ledger.undecided
    core.land(script.opened(epoch(10)))
    assert core.p.state.chain.state.epoch.number == 10
    assert core.p.state.chain.state.site == SITE
    assert core.p.state.chain.parts is None
