"""A local store that is damaged is set aside and made anew; any other trouble with it is passed on. What start-up
made is closed if it fails."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryStore, MemoryTree
from halog.adapters.memory.log import MemoryTail
from halog.adapters.rocksdb.store import RocksStore
from halog.adapters.zookeeper.access import PLAIN
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    RemoteSiteConfig,
    SiteConfig,
    TimingConfig,
    ZoneConfig,
)
from halog.core import effects as fx
from halog.embedded import datadir
from halog.embedded.model import SiteInfo
from halog.errors import ClosedError, ConfigError, HalogError, StoreError, UnreachableError
from halog.ports import LogTail
from halog.runtime.host.assignment import CopyPlacement
from halog.runtime.node.assembly import copy_policy, core_settings
from halog.runtime.node.open import node
from halog.runtime.node.wiring import open_store, reach, remote_site
from halog.runtime.store import replaced_mark as replaced
from halog.runtime.support.adapters import Adapters, SiteAccess


def test_a_damaged_store_is_set_aside_and_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store whose manifest is rubbish opens empty; it is said where the old one is, and nothing of it was deleted."""
    store = open_store(tmp_path / "A")
    store.write([(b"k", b"v")])
    store.close()
    for manifest in (tmp_path / "A").rglob("MANIFEST-*"):
        manifest.write_bytes(b"rubbish")
    again = open_store(tmp_path / "A")
    assert again.get(b"k") is None
    again.close()
    assert str(tmp_path / "A") in caplog.text
    assert "a new one is made from the log" in caplog.text
    (aside,) = (tmp_path / "A").glob("db.damaged-*")
    assert any(m.read_bytes() == b"rubbish" for m in aside.glob("MANIFEST-*"))


@pytest.mark.feature("U1")
def test_a_store_of_a_later_format_is_set_aside_by_name_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not damaged, and nobody says so: who knows its format can put it back as it was."""
    store = open_store(tmp_path / "A")
    store.write([(b"k", b"v")])
    store.close()
    (tmp_path / "A/HALOG-STORE").write_text("2\n")
    with pytest.raises(StoreError, match=r"is not readable by this version: it is of format 2, which a later version"):
        RocksStore(tmp_path / "A", read_only=True)
    again = open_store(tmp_path / "A")
    assert again.get(b"k") is None
    noted = replaced.found(again)
    assert noted is not None
    assert (noted.told, noted.why.split(" (")[0]) == (False, "it is of format 2, which a later version of halog wrote")
    again.close()
    assert "damaged" not in caplog.text
    (aside,) = (tmp_path / "A").glob("db.later-*")
    assert str(aside) in caplog.text
    open_store(tmp_path / "A").close()
    assert not list((tmp_path / "A").glob("db.damaged-*"))
    shutil.rmtree(tmp_path / "A/db")
    (tmp_path / "A/WRITTEN").unlink()
    aside.rename(tmp_path / "A/db")
    store = open_store(tmp_path / "A")
    assert store.get(b"k") == b"v"
    store.close()


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    """A directory that holds other files is refused, and the files stay."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(HalogError, match=str(tmp_path)):
        open_store(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.feature("Q5")
@pytest.mark.parametrize("name", ["a b", "x" * 101, "..", "\udcff"])
def test_a_name_other_nodes_would_refuse_is_refused_here(name: str) -> None:
    """Before anything is opened: else every node would close its connections, and nobody would say why."""

    def adapters(config: Config, name: str) -> Adapters:
        raise AssertionError("opened")

    config = Config(ClusterConfig("test"), SiteConfig(bootstrap="memory:1", zookeeper="memory:1"))
    with pytest.raises(ConfigError, match=r"a node cannot be called that: the name .* must be 1 to 100 of"):
        node(config, name, adapters=adapters)


def test_tails_made_beside_the_start_are_closed_if_it_fails() -> None:
    """The coordinator is not to be reached: nothing that was made meanwhile is left."""
    made: list[LogTail] = []

    class Watched(MemoryLog):
        def tail(self, *, patient: bool = False, slow: bool = False) -> MemoryTail:
            tail = super().tail(patient=patient, slow=slow)
            made.append(tail)
            return tail

    class Away(MemoryCoordinator):
        def connect(self, on_state: Callable[..., None], wait_s: float | None = None) -> None:
            while len(made) < 2:
                pass
            raise UnreachableError("away")

    config = Config(
        ClusterConfig("test"),
        SiteConfig(bootstrap="memory:1", zookeeper="memory:1"),
        ApplicationConfig(()),
        nodes={"A": NodeConfig(Path("/nonexistent"))},
    )
    with pytest.raises(UnreachableError, match="away"):
        node(
            config,
            "A",
            adapters=lambda *_: Adapters(Watched(MemoryBroker()), Away(MemoryTree()), MemoryChannel(), MemoryStore()),
        )
    for tail in made:
        with pytest.raises(ClosedError):
            tail.poll(0)


@pytest.mark.nodes
def test_other_sites_that_copies_asked_in_a_start_that_failed_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy asks for a vote as soon as it is open, before there is anything that closes with the host."""
    config = Config(
        ClusterConfig("test"),
        SiteConfig("east", "memory:1", "memory:1"),
        ApplicationConfig(()),
        sites={"west": RemoteSiteConfig("w:1", "w:2")},
        nodes={"A": NodeConfig(Path("/nonexistent"))},
        zones={"z": ZoneConfig(("A",))},
        policies={"p": PolicyConfig("z", 1, 0, 0, home="east", takeover="always")},
    )
    reached: list[MemoryCoordinator] = []
    answered = threading.Event()

    def reach(site: str) -> SiteAccess:
        reached.append(MemoryCoordinator(MemoryTree()))
        reached[-1].connect(lambda state: None)
        return SiteAccess(site, MemoryLog(MemoryBroker()), reached[-1])

    def begin(self: CopyPlacement, tables: object) -> None:
        reached.clear()
        core = SimpleNamespace(leading=None, state=SimpleNamespace(table=SimpleNamespace(policy="p")))
        copy: Any = SimpleNamespace(name="p-0", core=core, post=lambda event: answered.set())
        self._host.ask_vote(copy, fx.AskVote(1, "west"))
        assert answered.wait(5)
        raise UnreachableError("away")

    monkeypatch.setattr(CopyPlacement, "begin", begin)
    own = MemoryLog(MemoryBroker()), MemoryCoordinator(MemoryTree()), MemoryChannel(), MemoryStore()
    with pytest.raises(UnreachableError, match="away"):
        node(config, "A", adapters=lambda *_: Adapters(*own, reach))
    assert [coordinator.is_connected for coordinator in reached] == [False]
    assert not [t for t in threading.enumerate() if t.name.startswith("halog-votes")]


def test_a_store_that_can_be_opened_and_not_be_read_is_made_anew(tmp_path: Path) -> None:
    """Damage that only reading shows: all is closed, the data is set aside, and the node joins with a new store."""
    (tmp_path / "A/db").mkdir(parents=True)
    (tmp_path / "A/HALOG-STORE").touch()
    opened: list[MemoryStore] = []

    class Damaged(MemoryStore):
        def get(self, key: bytes) -> bytes | None:
            raise StoreError("checksum mismatch", rebuild=True)

    def adapters(*_: object) -> Adapters:
        assert bool(list((tmp_path / "A").glob("db.damaged-*"))) is bool(opened)
        opened.append(MemoryStore() if opened else Damaged())
        return Adapters(MemoryLog(MemoryBroker()), MemoryCoordinator(MemoryTree()), MemoryChannel(), opened[-1])

    config = Config(
        ClusterConfig("test"),
        SiteConfig(bootstrap="memory:1", zookeeper="memory:1"),
        ApplicationConfig(()),
        nodes={"A": NodeConfig(tmp_path / "A")},
    )
    node(config, "A", adapters=adapters).close()
    assert len(opened) == 2


@pytest.mark.feature("Q4", "X9")
@pytest.mark.parametrize("timing", [TimingConfig(), TimingConfig(call_deadline_ms=40_000, append_deadline_ms=7_000)])
def test_a_transaction_is_said_to_be_discarded_when_no_caller_can_be_trying_it_again(timing: TimingConfig) -> None:
    """As configured: a caller's deadline, and what its last attempt may take."""
    config = Config(ClusterConfig("test"), SiteConfig(bootstrap="memory:1", zookeeper="memory:1"), timing=timing)
    assert core_settings(config).discarded_ms == timing.call_deadline_ms + timing.append_deadline_ms


@pytest.mark.feature("M5")
def test_where_another_site_is(tmp_path: Path) -> None:
    """By its addresses, or by what an embedded one left in its data directory, which says when it does not run."""
    config = Config(
        ClusterConfig("test"),
        SiteConfig("east", "memory:1", "memory:1"),
        sites={
            "west": RemoteSiteConfig("w:1", "w:2"),
            "south": RemoteSiteConfig(embedded=tmp_path),
            "east": RemoteSiteConfig("e:1", "e:2"),
        },
    ).validate()
    assert remote_site(config, "west") == ("w:1", "w:2")
    with pytest.raises(UnreachableError, match=rf"site south cannot be reached: no embedded site .* in {tmp_path}"):
        remote_site(config, "south")
    info = SiteInfo("127.0.0.1:7", "127.0.0.1:8", str(tmp_path))
    (tmp_path / datadir.STATE).write_text(json.dumps(info.to_dict()))
    held = datadir.lock(tmp_path)
    assert remote_site(config, "south") == ("127.0.0.1:7", "127.0.0.1:8")
    os.close(held)
    with pytest.raises(ConfigError, match="site 'east' is this very site"):
        remote_site(config, "east")
    with pytest.raises(ConfigError, match="there is no site north; known are west, south"):
        remote_site(config, "north")


@pytest.mark.feature("P4", "Q4")
@pytest.mark.parametrize(("call_ms", "discarded_ms"), [(100, 15_300), (40_000, 40_300)])
def test_a_policys_own_times_are_its_copies_and_nobody_is_told_too_early(call_ms: int, discarded_ms: int) -> None:
    """A transaction over several policies is tried again for as long as all may be."""
    policy = PolicyConfig(
        "z", call_deadline_ms=call_ms, append_deadline_ms=300, doubt_timeout_ms=400, min_stay_ms=500, copy_threads=2
    )
    config = Config(
        ClusterConfig("test"),
        SiteConfig(bootstrap="memory:1", zookeeper="memory:1"),
        policies={"own": policy, "usual": PolicyConfig("z")},
    )
    made, usual = copy_policy(config, "own"), core_settings(config)
    assert made.copy_threads == 2
    assert made.times == {
        "commit_deadline_ms": 300,
        "discarded_ms": discarded_ms,
        "min_stay_ms": 500,
        "doubt_ms": 400,
    }
    assert msgspec.structs.replace(usual, **copy_policy(config, "usual").times) == usual


@pytest.mark.feature("M5", "O1")
@pytest.mark.parametrize(("allowed_s", "waits_s"), [(300.0, 5.0), (math.inf, 5.0), (1.0, 1.0)])
def test_a_site_that_is_lost_is_given_up_soon_however_long_a_command_may_take(
    monkeypatch: pytest.MonkeyPatch, allowed_s: float, waits_s: float
) -> None:
    """A disaster is when `halog site promote --timeout 300` is given: it goes on without the other site."""
    waited: list[float | None] = []

    def silent(self: ZkCoordinator, on_state: object, wait_s: float | None = None) -> None:
        waited.append(wait_s)
        raise UnreachableError("nobody is there")

    monkeypatch.setattr(ZkCoordinator, "connect", silent)
    config = Config(
        ClusterConfig("test"),
        SiteConfig("east", "memory:1", "memory:1"),
        sites={"west": RemoteSiteConfig("w:1", "w:2")},
    ).validate()
    with pytest.raises(UnreachableError):
        reach(config, "west", access=PLAIN, answer_s=allowed_s)
    assert waited == [waits_s]
