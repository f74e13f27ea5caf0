"""When another site's log has a commit, the site that serves is told at once (M5)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halog.ports import LogSession, TopicPartition
from halog.runtime.node.paces import Paces
from halog.runtime.sites import acknowledgements as arrivals
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster
from tests.unit.sites.test_sync_sites import arrives, east, west

pytestmark = pytest.mark.feature("M5", "R1")
__all__ = ["east", "west"]


class Gathers:
    """A session as Kafka's: what is appended while something is under way leaves when a poll has met the answer, which
    takes its time."""

    failed = None

    def __init__(self, session: LogSession) -> None:
        self._session = session
        self._held = list[tuple[Any, ...]]()
        self._answers = list[tuple[float, Any]]()

    def append(self, tp: TopicPartition, data: bytes, done: Any) -> None:
        self._held.append((tp, data, done))
        self._send()

    def _send(self) -> None:
        while self._held and not self._answers:
            tp, data, done = self._held.pop(0)
            self._session.append(tp, data, lambda offset, why: None)
            self._answers.append((time.monotonic() + 0.1, done))

    def poll(self, timeout_s: float) -> int:
        self._session.poll(0)
        until = time.monotonic() + timeout_s
        while self._answers:
            if time.monotonic() >= self._answers[0][0]:
                self._answers.pop(0)[1](0, None)
                self._send()
                return 1
            if time.monotonic() >= until:
                return 0
            time.sleep(0.001)
        return 0

    def abandon(self) -> None:
        self._session.abandon()


@pytest.mark.parametrize("paces", [Paces(sites=SitePaces(repeat_s=60.0))])
def test_what_arrives_while_a_word_is_under_way_is_told_right_behind_it(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when all is told once more, which is hardly ever here."""
    opened = arrivals.AcknowledgementSender._opened

    def gathering(self: arrivals.AcknowledgementSender) -> LogSession:
        self._session = Gathers(opened(self))  # type: ignore[assignment]
        return self._session  # type: ignore[return-value]

    monkeypatch.setattr(arrivals.AcknowledgementSender, "_opened", gathering)
    for name in east.names:
        east.kill(name)
    east.start()
    for number in range(12):
        arrives(west, east, number)
