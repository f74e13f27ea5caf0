"""What a fresh eye found about what is stowed (decision 38)."""

from __future__ import annotations

import threading

import pytest

from halog.adapters.memory_store import MemoryStore
from halog.core import events as ev
from halog.runtime import stowed
from halog.runtime.objects import ObjectTable

pytestmark = pytest.mark.feature("R6", "P1")


def test_a_policy_of_now_says_nothing_of_what_was_flushed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noted under WRITE_NO_SYNC, the machine lost its power, and the policy is SYNC since: what was told was not all
    on the disk."""
    objects = ObjectTable(MemoryStore(), bytes(range(16)), threading.RLock())
    monkeypatch.setattr(stowed, "machine_run", lambda: "one")
    objects.stowed.stand(ev.Stand((7,), flush=False))
    assert objects.stowed.stood() == (7,), "the same run of the machine"
    monkeypatch.setattr(stowed, "machine_run", lambda: "another")
    assert objects.stowed.stood() == ()
    objects.stowed.stand(ev.Stand((7, 8), flush=True))
    monkeypatch.setattr(stowed, "machine_run", lambda: "a third")
    assert objects.stowed.stood() == (7, 8)
