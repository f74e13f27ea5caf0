"""Whoever dies at whatever step of an activation, and whoever is up: nodes and clients start, and finish it (P11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.errors import ConfigError
from tests.unit.cli.cluster.mortal import Mortal, Step
from tests.unit.cli.conftest import TOML, Aircraft, running, wait_until

pytestmark = pytest.mark.feature("P11", "P13", "O1")

Run = Callable[..., Any]

TAILS = [f"N{i}" for i in range(30)]
COMMAND = "halog-cli"


def toml(partitions: int, more: str = "") -> str:
    return TOML.replace("partitions = 6", f"partitions = {partitions}") + more


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run) -> Iterator[Mortal]:
    """Three partitions are active, and have objects."""
    with running(Mortal(tmp_path, toml(3)), monkeypatch) as made:
        assert isinstance(made, Mortal)
        made.create(*(Aircraft(tail) for tail in TAILS))
        assert halog("config", "activate").code == 0
        yield made


def file(fleet: Mortal, partitions: int, more: str = "") -> Path:
    path = fleet.directory / f"p{partitions}.toml"
    path.write_text(toml(partitions, more))
    return path


def leave(fleet: Mortal, up: str) -> None:
    for name in sorted(set(fleet.nodes) - set(up)):
        fleet.stop(name)


def start_all(fleet: Mortal) -> None:
    """Also a client, which is there first, where nobody else is."""
    fleet.start("client-1")
    for name in "ABC":
        if name not in fleet.nodes:
            fleet.start(name)


def state(halog: Run, policy: str = "p") -> tuple[int, str, int]:
    found = {p["policy"]: p for p in halog("rebalance", "status", "--format", "json").json["policies"]}[policy]
    return found["version"], found["state"], found["partitions"]


def check_done(fleet: Mortal, halog: Run, version: int, partitions: int) -> None:
    """The change is made; all nodes can be restarted, and every object is found from everywhere."""
    wait_until(lambda: state(halog) == (version, "done", partitions), 30)
    fleet.settle()
    for name in "ABC":
        fleet.stop(name)
        fleet.start(name)
    fleet.settle()
    for name in ("A", "client-1"):
        node = fleet.nodes[name]
        with node.transaction():
            assert all(node.find(Aircraft, tail) is not None for tail in TAILS)
    assert len({halog("get", "Aircraft", tail, "--format", "json").json["partition"] for tail in TAILS}) > 3


@pytest.mark.parametrize("up", ["", "A", "ABC"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(("set", "policies/p", 0), id="nothing is done"),
        pytest.param(("create", "config/versions", 0), id="the change is begun"),
        pytest.param(("set", "config/active", 0), id="the version before is put aside"),
        pytest.param(("set", "nothing", 0), id="nobody dies"),
    ],
)
def test_the_command_dies_at_any_step(fleet: Mortal, halog: Run, up: str, step: Step) -> None:
    """Nodes and clients start, whatever it has come to; given again the command goes on."""
    leave(fleet, up)
    new = file(fleet, 5)
    fleet.doom(COMMAND, step)
    ran = halog("config", "activate", new)
    assert (ran.code == 0) is not fleet.died.is_set(), ran
    fleet.doomed = ""
    start_all(fleet)
    if fleet.died.is_set():
        assert halog("config", "show", "--format", "json").json["number"] == 1
        assert halog("config", "activate", new).code == 0
    assert halog("config", "show", "--format", "json").json["number"] == 2
    check_done(fleet, halog, 1, 5)


@pytest.mark.parametrize(
    "step",
    [
        ("ensure_topic", "ops.p.log", 0),
        ("create", "nodes/A", 0),
        ("grow_topic", "ops.p.log", 0),
        ("grow_topic", "ops.p.state", 0),
        ("create", "partitions/p-3", 0),
        ("create", "partitions/p-4", 0),
        ("set", "policies/p", 0),
        ("set", "policies/p", 1),
    ],
    ids=lambda step: f"{step[0]} {step[1]} {step[2]}",
)
def test_the_node_that_carries_it_out_dies_at_any_step(fleet: Mortal, halog: Run, step: Step) -> None:
    """It was begun while nobody was up; the first node that starts dies, and the others go on."""
    leave(fleet, "")
    assert halog("config", "activate", file(fleet, 5)).code == 0
    fleet.doom("A", step)
    fleet.begin("A")
    if step == ("set", "policies/p", 1):  # of what is noted as clean something must be there to be noted
        fleet.start("B")
    fleet.bury("A")
    start_all(fleet)
    check_done(fleet, halog, 1, 5)


@pytest.mark.parametrize(
    "to", ["partitions = 2", "partitions = 3\nring_size = 70000", 'partitions = 3\nmapper = "round_robin"']
)
def test_other_changes_of_where_keys_belong_begin_while_nobody_is_up(fleet: Mortal, halog: Run, to: str) -> None:
    """Fewer partitions, another ring, objects with entries in a key directory; and the way back."""
    for now in (to, "partitions = 3"):
        leave(fleet, "")
        path = fleet.directory / "other.toml"
        path.write_text(toml(3).replace("partitions = 3", now))
        assert halog("config", "activate", path).code == 0
        start_all(fleet)
        wait_until(lambda: state(halog)[1] == "done", 30)
        assert state(halog)[0] == (1 if now == to else 2)
        fleet.settle()
        node = fleet.nodes["client-1"]
        with node.transaction():
            assert all(node.find(Aircraft, tail) is not None for tail in TAILS)


@pytest.mark.parametrize("up", ["", "ABC"])
def test_what_is_turned_back_before_it_moved_anything_leaves_a_cluster_that_starts(
    fleet: Mortal, halog: Run, up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active version says five, the cluster has three, and goes by them; `halog rebalance` begins it again."""
    with monkeypatch.context() as patched:
        patched.setattr("halog.runtime.remap.remap_driver.RemapDriver._is_first", lambda *_: False)
        leave(fleet, up)
        assert halog("config", "activate", file(fleet, 5)).code == 0
        assert halog("rebalance", "cancel", "--policy", "p").code == 0
        assert state(halog) == (0, "done", 3)
        start_all(fleet)
        for name in "ABC":
            fleet.stop(name)
            fleet.start(name)
        fleet.settle()
    assert halog("rebalance", "--config", file(fleet, 5), "--timeout", 30).code == 0
    check_done(fleet, halog, 1, 5)


@pytest.mark.parametrize("active", [True, False], ids=["its version is active", "who began it died"])
@pytest.mark.parametrize("opened", [True, False])
def test_to_activate_what_a_change_leads_away_from_is_refused_with_what_to_do(
    fleet: Mortal, halog: Run, monkeypatch: pytest.MonkeyPatch, active: bool, opened: bool
) -> None:
    """Also where it is the active version already: then nothing is as it says."""
    monkeypatch.setattr("halog.runtime.remap.remap_driver.RemapDriver._carry_on", lambda *_: None)  # it takes its time
    if not opened:
        monkeypatch.setattr("halog.runtime.remap.remap_driver.RemapDriver._is_first", lambda *_: False)
    if not active:
        fleet.doom(COMMAND, ("set", "config/active", 0))
    assert (halog("config", "activate", file(fleet, 5)).code == 0) is active
    fleet.doomed = ""
    if opened:
        wait_until(lambda: state(halog) == (1, "moves objects", 5))
    for old in (file(fleet, 3), file(fleet, 4)):
        ran = halog("config", "activate", old)
        assert ran.code == 5, ran
        for said in ("policies.p.partitions", "from 3 to 5", "`halog rebalance status`", "cancel --policy p"):
            assert said in ran.err, ran
    assert halog("config", "show", "--format", "json").json["number"] == 1 + active
    assert halog("rebalance", "cancel", "--policy", "p", "--format", "json").code == 0
    if opened:
        back = halog("config", "activate", file(fleet, 5))
        assert (back.code, "turned back to 3" in back.err) == (5, True), back
    ran = halog("config", "activate", file(fleet, 3))
    assert ran.code == 0, ran


NEW = """
[policies.q]
zone = "home"
partitions = {0}
sync_replicas = 1
local_sync = "{1}"
"""
"""A policy, without a line end behind it."""


def bound(partitions: int, to: str, local_sync: str = "WRITE_NO_SYNC") -> str:
    return NEW.format(partitions, local_sync) + f'[bindings]\nShip = "{to}"\n"*" = "p"\n'


def with_policy(fleet: Mortal, partitions: int, to: str = "q", local_sync: str = "WRITE_NO_SYNC") -> Path:
    path = fleet.directory / f"q{partitions}.toml"
    path.write_text(toml(3).replace('[bindings]\n"*" = "p"\n', bound(partitions, to, local_sync)))
    return path


@pytest.mark.parametrize("who", ["A", "client-1"])
@pytest.mark.parametrize(
    "step",
    [
        ("ensure_topic", "ops.q.log", 0),
        ("ensure_topic", "ops.q.state", 0),
        ("ensure_topic", "ops.schemas", 0),
        ("create", "policies/q", 0),
        ("create", "partitions/q-0", 0),
        ("create", "partitions/q-1", 0),
    ],
    ids=lambda step: f"{step[0]} {step[1]}",
)
def test_who_makes_a_new_policy_dies_at_any_step_and_the_next_version_has_it_otherwise(
    fleet: Mortal, halog: Run, who: str, step: Step
) -> None:
    """All nodes are down meanwhile. They start with the next version, and have as many partitions as it says."""
    leave(fleet, "")
    assert halog("config", "activate", with_policy(fleet, 2)).code == 0
    fleet.doom(who, step)
    assert not fleet.begin(who)
    fleet.bury(who)
    ran = halog("config", "activate", with_policy(fleet, 4))
    assert ran.code == 0, ran
    start_all(fleet)
    wait_until(lambda: state(halog, "q")[1:] == ("done", 4), 30)
    fleet.settle()
    assert {t.name for t in fleet.tables() if t.policy == "q"} == {f"q-{i}" for i in range(4)}


def test_a_type_that_was_entered_and_not_published_stays_where_it_was_entered(fleet: Mortal, halog: Run) -> None:
    """Nodes would refuse another binding; so its activation is refused, and they start with what there is."""
    found = fleet.tree.get("bindings")
    assert found is not None
    fleet.tree.set("bindings", found.data[:-1] + b',"Ship":"p"}', found.version)
    leave(fleet, "")
    path = fleet.directory / "ships.toml"
    path.write_text(
        toml(3).replace('[bindings]\n"*" = "p"\n', NEW.format(2, "SYNC") + '[bindings]\nShip = "q"\n"*" = "p"\n')
    )
    ran = halog("config", "activate", path)
    assert (ran.code, "type Ship" in ran.err) == (5, True), ran
    start_all(fleet)


def test_a_home_is_judged_by_partitions_that_are_there(fleet: Mortal, halog: Run) -> None:
    """A node that died before it made any has decided nothing."""
    fleet.tree.create(
        "policies/q",
        b'{"mapper":"consistent_hash","partitions":2,"ring_size":65536,"local_sync":"SYNC","remote_sync":"NO_SYNC"}',
        0,
    )
    path = fleet.directory / "home.toml"
    text = toml(3).replace('[bindings]\n"*" = "p"\n', NEW.format(2, "SYNC") + 'home = "west"\n[bindings]\n"*" = "p"\n')
    path.write_text(text + '[sites.west]\nbootstrap = "w:1"\nzookeeper = "w:2"\n')
    assert halog("config", "activate", path).code == 0


def test_a_mapper_whose_code_no_node_has_is_named_and_turned_back_with_no_node_up(fleet: Mortal, halog: Run) -> None:
    """The operator's machine had it. Nodes start again once it is turned back, also with the version that names it."""
    leave(fleet, "")
    path = fleet.directory / "mapper.toml"
    text = toml(3).replace("partitions = 3", 'partitions = 3\nmapper = "tests.unit.cli.partition.placing:by_region"')
    path.write_text(text + '[application]\nmodules = ["tests.unit.cli.partition.placing"]\n')
    assert halog("config", "activate", path).code == 0
    for name in ("A", "client-1"):
        with pytest.raises(ConfigError, match=r"placing:by_region .* `halog rebalance cancel --policy p`"):
            fleet.start(name)
    ran = halog("config", "activate", file(fleet, 3))
    assert (ran.code, "rebalance cancel --policy p" in ran.err) == (5, True), ran
    assert halog("rebalance", "cancel", "--policy", "p").code == 0
    start_all(fleet)
    fleet.settle()
    assert halog("config", "activate", file(fleet, 3)).code == 0
    for name in "ABC":
        fleet.stop(name)
        fleet.start(name)
    fleet.settle()


def test_a_new_policy_whose_mapper_no_node_has_is_dropped_again(fleet: Mortal, halog: Run) -> None:
    leave(fleet, "")
    path = fleet.directory / "mapper.toml"
    more = NEW.format(2, "SYNC") + 'mapper = "tests.unit.cli.nowhere:f"\n[bindings]\nShip = "q"\n"*" = "p"\n'
    text = toml(3).replace('[bindings]\n"*" = "p"\n', more)
    path.write_text(text + '[application]\nmodules = ["tests.unit.cli.nowhere"]\n')
    assert halog("config", "activate", path).code == 0
    with pytest.raises(ConfigError, match=r"tests\.unit\.cli\.nowhere"):
        fleet.start("A")
    assert halog("config", "activate", file(fleet, 3)).code == 0
    start_all(fleet)
    fleet.settle()


def test_what_an_older_halog_activated_and_this_one_does_not_run_with_is_replaced(fleet: Mortal, halog: Run) -> None:
    """An address of all interfaces was let through once: nothing starts with it, and another file is activated."""
    leave(fleet, "")
    found = fleet.tree.get("config/active")
    assert found is not None
    version = msgspec.json.decode(found.data)
    version["config"]["nodes"]["A"]["address"] = "0.0.0.0:7400"
    version["digest"] = "of that file"
    fleet.tree.set("config/active", msgspec.json.encode(version), found.version)
    ran = halog("status")
    assert ran.code == 2
    assert "a corrected file replaces it: `halog config activate`" in ran.err
    assert "0.0.0.0:7400" in halog("config", "show").out
    assert halog("config", "activate", file(fleet, 3)).code == 0
    start_all(fleet)
    assert halog("config", "show", "--format", "json").json["number"] == 2
