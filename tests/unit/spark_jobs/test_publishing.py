"""The driver that hands on what it found: which branches it waits for, and what it refuses (S1, M2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.adapters.memory.log import MemoryLog
from halog.config import ClusterConfig, Config, PolicyConfig, RemoteSiteConfig, SiteConfig
from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.core.log.records import Header, Prepare
from halog.core.log.transactions import Ledger, UndecidedTransaction
from halog.core.sites.mirror import Checkpoint
from halog.errors import RefusedError
from halog.metadata import log_holds as retention, restore_requests as restores
from halog.metadata.restore_requests import ClosedBranch
from halog.ports import TopicPartition
from halog.runtime.merge import spark_results as classified
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics import ledger_rows
from spark_jobs import merge, publishing
from spark_jobs.branching import INITIATING, BranchRelation, branch_of
from spark_jobs.comparison import ComparisonProgress, ComparisonReport
from spark_jobs.history import HistoryState
from spark_jobs.publishing import Publishing, PublishingOutcome
from spark_jobs.snapshot import Place

pytestmark = pytest.mark.feature("S1", "M2")

LOG_ID = b"l" * 16
PLACES = [Place(f"p-{i}", i, "c.p.log", "c.p.state", LOG_ID.hex(), "west") for i in range(3)]


@pytest.fixture
def site() -> Any:
    """Of the west, with the logs of three partitions."""
    policies = {"p": PolicyConfig("zone", home="west")}
    config = Config(
        ClusterConfig("c"), SiteConfig("west"), policies=policies, sites={"east": RemoteSiteConfig("k", "z")}
    )
    coordinator, log = MemoryCoordinator(MemoryTree()), MemoryLog()
    coordinator.connect(lambda state: None)
    log.ensure_topic("c.p.log", 3)
    return SimpleNamespace(
        config=config,
        own=config,
        coordinator=coordinator,
        log=log,
        places_of=lambda names: PLACES,
        kafka_of=lambda site: KafkaAccess("k"),
    )


def state(hash_: bytes = b"h" * 16) -> ChainState:
    return ChainState(LOG_ID, "west", EpochId(4, "west", 4), lsn=7, hash=hash_)


def close(site: Any, *names: str) -> None:
    for name in names:
        restores.close(site.coordinator, name, ClosedBranch(Checkpoint(0, state())))


def job(site: Any, directory: Path, **more: Any) -> Publishing:
    return Publishing(SimpleNamespace(), site, "p", "east", directory, **more)  # type: ignore[arg-type]


def test_it_begins_when_the_branches_that_it_is_for_are_closed(site: Any, tmp_path: Path) -> None:
    """Not those that were merged before, nor those that nobody has named."""
    close(site, "p-0")
    with pytest.raises(RefusedError, match=r"partition p-1: site west has not closed its branch; .*halog site demote"):
        job(site, tmp_path, names=["p-0", "p-1"], close_s=0.0).run()
    one = job(site, tmp_path, names=["p-0", "p-1"], done=["p-1"])
    one.await_closed()
    assert set(one.closed) == {"p-0"}
    close(site, "p-1", "p-2")
    whole = job(site, tmp_path)
    whole.await_closed()
    assert set(whole.closed) == {"p-0", "p-1", "p-2"}


def test_it_waits_for_them_for_a_while(site: Any, tmp_path: Path) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        close(site, f"p-{len(slept) - 1}")

    one = job(site, tmp_path, pause=sleep)
    one.await_closed()
    assert len(slept) == 3
    assert one.closed["p-2"].state == state()
    assert one.closed["p-2"].tp == TopicPartition("c.p.log", 2)


def test_a_look_at_a_branch_that_had_not_ended_is_of_no_use(site: Any, tmp_path: Path) -> None:
    """The directory is of another day."""
    close(site, "p-0")
    one = job(site, tmp_path, names=["p-0"])
    one.await_closed()
    one.closed["p-0"] = one.closed["p-0"]._replace(state=state(b"f" * 16))  # it follows the source by now
    number = branch_of(0, INITIATING)
    for hash_ in (b"h" * 16, b"g" * 16):
        carried = {number: HistoryState(9, state(hash_)).pack()}
        one._comparison._progress = ComparisonProgress("job", {}, carried=carried)
        if hash_ == state().hash:
            one.check_end(PLACES[0])
        else:
            with pytest.raises(RefusedError, match="when its branch had not ended: give another directory"):
                one.check_end(PLACES[0])


class Sent:
    """Rows, as far as they are sent."""

    def __init__(self) -> None:
        self.options_of: dict[str, str] = {}
        self.write = self
        self.sent = 0
        self.dies: Callable[[], object] | None = None
        """What happens once before a sending that is killed."""

    def selectExpr(self, *columns: str) -> Sent:
        return self

    def format(self, name: str) -> Sent:
        return self

    def option(self, name: str, value: str) -> Sent:
        self.options_of[name] = value
        return self

    def options(self, **values: str) -> Sent:
        self.options_of |= values
        return self

    def save(self) -> None:
        if self.dies is not None:
            dies, self.dies = self.dies, None
            dies()
            raise KeyboardInterrupt
        self.sent += 1


def test_a_sending_that_was_killed_is_begun_anew_behind_it(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has as many partitions as the policy, whichever of them are sent; what was sent is not sent again."""
    rows, remote, tp = Sent(), SiteAccess("east", MemoryLog(), site.coordinator), TopicPartition("c.p.merge", 2)
    one = job(site, tmp_path, names=["p-2"])
    monkeypatch.setattr(one, "_rows", lambda: rows)
    one.published = publishing.PublishingProgress("job", b"r" * 16)
    one.send(remote, {})
    assert (rows.sent, one.published.stage) == (0, "")
    rows.dies = lambda: remote.log.put(tp, b"", b"the first")
    with pytest.raises(KeyboardInterrupt):
        one.send(remote, {"p-2": PLACES[2]})
    for _ in range(2):
        one.send(remote, {"p-2": PLACES[2]})
    assert rows.sent == 1
    assert rows.options_of == {"kafka.bootstrap.servers": "k", "topic": "c.p.merge"}
    assert (one.published.stage, one.published.begin) == (publishing.SENT, {2: 1})


@pytest.mark.parametrize("word", ["--out", "--all", "--two-way", "--three-way"])
def test_a_job_for_nodes_shows_nothing(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", "/nonexistent.toml", "--policy", "p", "--source", "east", "--publish", word]
    assert merge.main([*words, "o"] if word == "--out" else words) == 2
    assert "--publish" in capsys.readouterr().err


def test_it_says_what_it_handed_on(capsys: pytest.CaptureFixture[str]) -> None:
    report = ComparisonReport(
        {"p-0": BranchRelation(True, "parted", 7), "p-1": BranchRelation(False, "the same", 0)}, 3, 1.25
    )
    merge.show_published(PublishingOutcome(report, {"p-0": 1_234}), "json")
    assert capsys.readouterr().out == (
        '{"published": [{"partition": "p-0", "keys": 1234}], "batches": 3, "seconds": 1.2}\n'
    )
    merge.show_published(PublishingOutcome(report, {"p-0": 1_234}), "table")
    said = capsys.readouterr().out
    assert "1,234" in said
    assert "the same" in said


def test_the_source_s_log_is_held_until_it_has_merged(site: Any) -> None:
    """From where the job has seen it; else what was done there since could be trimmed before it is read."""
    source = SiteAccess("east", site.log, site.coordinator)
    publishing.keep("west", source, PLACES[0], HistoryState(9, state()))
    held = retention.holds(site.coordinator, "p-0")[classified.held_as("west")]
    assert held.offset == 9
    assert held.until_ms > retention.now_ms() + classified.KEPT_MS - 60_000
    assert retention.allowed(site.coordinator, "p-0", 50) == 9
    classified.let_go(site.coordinator, "p-0", "west")
    assert retention.allowed(site.coordinator, "p-0", 50) == 50
    with pytest.raises(RefusedError, match="trimmed up to 50"):
        publishing.keep("west", source, PLACES[0], HistoryState(9, state()))


def test_what_was_in_doubt_where_the_job_looked_is_held_with_it(site: Any) -> None:
    prepare = Prepare(Header(LOG_ID, EpochId(4, "west", 4), 3, bytes(16), bytes(16)), "p-0", ("p-0", "p-1"), 0, b"", ())
    rows = tuple(ledger_rows.rows(Ledger((UndecidedTransaction(prepare, 4),))))
    publishing.keep("west", SiteAccess("east", site.log, site.coordinator), PLACES[0], HistoryState(9, state(), rows))
    assert retention.holds(site.coordinator, "p-0")[classified.held_as("west")].offset == 4
