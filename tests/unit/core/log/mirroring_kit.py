"""A log of east's that mirrors what west writes, for tests of the chain: what is in it, and what comes next."""

from __future__ import annotations

import msgspec

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.records import Header
from tests.unit.core.kit import LOG_ID, Script


def west(number: int) -> EpochId:
    return EpochId(number, "west", number)


def east(number: int) -> EpochId:
    return EpochId(number, "east", number)


BEGINNING = ChainState(LOG_ID, "west")
MIRRORED = ChainState(LOG_ID, "east", owner="west")


def read(chain: Chain, data: bytes) -> Verdict:
    return chain.read(records.decode(data), digest(data))


def switched(chain: Chain, number: int, to: str = "west", **wrong: object) -> bytes:
    record = records.SiteSwitched(Header(LOG_ID, east(number)), to, chain.state.head)
    return records.encode(msgspec.structs.replace(record, **wrong))


def mirrored(*numbers: int) -> tuple[Chain, Script]:
    """A log that holds one epoch of west with these transactions."""
    chain, script = Chain(MIRRORED), Script()
    assert read(chain, script.opened(west(1))) is Verdict.OPENED
    for number in numbers:
        assert read(chain, script.commit(west(1), number)) is Verdict.ACCEPTED
    return chain, script


def returned() -> tuple[Chain, Script, bytes]:
    """East took over, gave the log back, and an append of its first epoch there is held: what it would append."""
    chain, script = mirrored(1)
    read(chain, script.started(east(2)))
    read(chain, script.opened(east(2)))
    held = Script(script.lsn, script.prev).commit(east(2), 5)
    assert read(chain, script.started(east(3))) is Verdict.STARTED
    assert read(chain, switched(chain, 3)) is Verdict.SWITCHED
    assert chain.state.owner == "west"
    return chain, script, held
