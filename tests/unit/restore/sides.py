"""Sites of the model as sides of a merge, for whoever reads their logs backwards."""

from __future__ import annotations

import pytest

from restore import thread as thread_module
from restore.branch import Side
from restore.thread import Thread
from tests.unit.core.sites.copy_model import TP
from tests.unit.core.sites.merge_model import World


@pytest.fixture(autouse=True, params=[3, 2_000])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Entries read in one go."""
    monkeypatch.setattr(thread_module, "PIECE", request.param)
    return int(request.param)


def side_of(world: World, at: str) -> Side:
    site = world.sites[at]
    in_doubt = tuple(u.offset for u in site.copy.ledger.undecided.values())
    return Side(at, site.log, TP, site.state, len(site.log.entries), in_doubt)  # type: ignore[arg-type]


def thread_of(of: Side) -> Thread:
    return Thread(of.log, of.tp, of.end, of.state.hash, of.site)
