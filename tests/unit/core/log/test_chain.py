"""Which records count: every verdict of the chain, and what makes the reader itself wrong."""

from __future__ import annotations

import msgspec
import pytest

from halog.core.ids import NO_HASH, Position, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import Header
from halog.errors import DivergedError
from tests.unit.core.kit import LOG_ID, SITE, Script, create, epoch


def read(chain: Chain, data: bytes) -> Verdict:
    return chain.read(records.decode(data), digest(data))


def opened(number: int = 1) -> tuple[Chain, Script]:
    chain, script = Chain(ChainState(LOG_ID, SITE)), Script()
    assert read(chain, script.started(epoch(number))) is Verdict.STARTED
    assert read(chain, script.opened(epoch(number))) is Verdict.OPENED
    return chain, script


@pytest.mark.feature("P1")
def test_what_continues_the_history_is_accepted_and_moves_the_position() -> None:
    chain, script = opened()
    assert read(chain, script.commit(epoch(1), 1)) is Verdict.ACCEPTED
    assert chain.state.position == Position(1, 2)
    assert chain.state.lineage == ((epoch(1), 1),)
    assert (chain.state.lsn, chain.state.hash) == (script.lsn, script.prev)


def test_a_lower_or_equal_start_is_skipped() -> None:
    chain, script = opened(3)
    before = chain.state
    assert read(chain, script.started(epoch(2))) is Verdict.SKIPPED
    assert read(chain, script.started(epoch(3, nonce=9))) is Verdict.SKIPPED
    assert chain.state == before


def test_a_start_of_another_site_is_skipped() -> None:
    chain, script = opened()
    assert read(chain, script.started(epoch(9)._replace(site="there"))) is Verdict.SKIPPED


def test_a_dead_epochs_record_is_skipped_even_if_it_continues() -> None:
    chain, script = opened(1)
    late = Script(script.lsn, script.prev).commit(epoch(1), 1)
    read(chain, script.started(epoch(2)))
    assert read(chain, late) is Verdict.SKIPPED


@pytest.mark.parametrize("wrong", [{"lsn": 5}, {"prev": b"x" * 16}])
def test_a_record_that_does_not_continue_voids_the_rest_of_its_epoch(wrong: dict[str, object]) -> None:
    chain, script = opened()
    good = Header(LOG_ID, epoch(1), script.lsn + 1, script.prev)
    bad = records.encode(records.Commit(msgspec.structs.replace(good, **wrong), (create(),)))
    assert read(chain, bad) is Verdict.VOIDED
    assert read(chain, script.commit(epoch(1), 1)) is Verdict.SKIPPED
    assert chain.state.lsn == 1


def test_a_higher_start_ends_the_void() -> None:
    chain, script = opened()
    read(chain, Script(7).commit(epoch(1), 1))
    assert read(chain, script.started(epoch(2))) is Verdict.STARTED
    assert read(chain, script.opened(epoch(2))) is Verdict.OPENED


def test_a_second_opening_of_one_epoch_voids_it() -> None:
    chain, script = opened()
    assert read(chain, script.opened(epoch(1))) is Verdict.VOIDED


def test_nothing_counts_behind_a_hand_over() -> None:
    chain, script = opened()
    assert read(chain, script.handed_over(epoch(1), "B")) is Verdict.ACCEPTED
    assert chain.state.closed_for == "B"
    assert read(chain, script.commit(epoch(1), 1)) is Verdict.SKIPPED


def test_an_opening_on_another_history_means_the_reader_diverged() -> None:
    chain, script = opened()
    read(chain, script.started(epoch(2)))
    with pytest.raises(DivergedError, match="opened on a history this copy does not have"):
        read(chain, Script(4, NO_HASH).opened(epoch(2)))


def test_an_epoch_that_never_started_means_the_reader_diverged() -> None:
    chain, script = opened()
    with pytest.raises(DivergedError, match="epoch 5 writes but never started"):
        read(chain, script.commit(epoch(5), 1))


def test_another_log_means_the_reader_diverged() -> None:
    chain, _ = opened()
    foreign = records.encode(records.EpochStarted(Header(b"f" * 16, epoch(2)), epoch(0), 0))
    with pytest.raises(DivergedError, match="another history"):
        read(chain, foreign)
