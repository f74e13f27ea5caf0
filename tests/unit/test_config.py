"""Configuration: what is written is read; what is wrong is refused with file, key and reason."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from halog.config import (
    ClusterConfig,
    Config,
    LimitsConfig,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    StaticPartition,
    TimingConfig,
    ZoneConfig,
    load_config,
)
from halog.config.read import operators_config, problems_of, read_toml
from halog.errors import ConfigError

GOOD = """
[cluster]
name = "fleet"
[site]
name = "home"
embedded = "var/site"
[application]
modules = ["fleet.model"]
[zones.main]
nodes = ["A", "B", "C"]
[policies.default]
zone = "main"
partitions = 12
sync_replicas = 1
async_replicas = 1
mapper = "consistent_hash"
ring_size = 65536
before_images = true
[bindings]
"*" = "default"
[nodes.A]
address = "127.0.0.1:0"
data_dir = "var/A"
[nodes.B]
data_dir = "/data/B"
[nodes.C]
data_dir = "var/C"
[timing]
keep_alive_ms = 150
non_response_timeout_ms = 600
session_timeout_ms = 1000
[limits]
max_record_bytes = 5_000_000
[snapshot]
every_records = 50_000
"""


def write(tmp_path: Path, text: str = GOOD) -> Path:
    path = tmp_path / "halog.toml"
    path.write_text(text, encoding="utf-8")
    return path


def built(**changes: Any) -> Config:
    base = Config(
        cluster=ClusterConfig("fleet"),
        site=SiteConfig(bootstrap="127.0.0.1:9092", zookeeper="127.0.0.1:2181,127.0.0.1:2182/chroot"),
        zones={"main": ZoneConfig(("A", "B"))},
        policies={"default": PolicyConfig("main")},
        bindings={"*": "default", "Airport": "default"},
        nodes={"A": NodeConfig(Path("/a")), "B": NodeConfig(Path("/b"), "[::1]:7000")},
    )
    return dataclasses.replace(base, **changes)


def test_a_file_is_read(tmp_path: Path) -> None:
    """Values as written, defaults where nothing is, paths relative to the file, absolute ones as they are."""
    config = load_config(str(write(tmp_path)))
    assert config.cluster.name == "fleet"
    assert config.site.embedded == tmp_path / "var/site"
    assert config.nodes["A"].data_dir == tmp_path / "var/A"
    assert config.nodes["B"] == NodeConfig(Path("/data/B"), "127.0.0.1:0")
    assert config.zones["main"].nodes == ("A", "B", "C")
    assert config.policies["default"] == PolicyConfig("main", 12, 1, 1)
    assert config.timing == TimingConfig()
    assert config.application.modules == ("fleet.model",)


@pytest.mark.feature("P4")
def test_bindings_name_a_types_policy() -> None:
    """By name, else by "*"; without either a type is bound to none."""
    config = built(
        policies={"default": PolicyConfig("main"), "few": PolicyConfig("main", 3)},
        bindings={"*": "default", "Airport": "few"},
    ).validate()
    assert (config.policy_of("Airport"), config.policy_of("Flight")) == ("few", "default")
    assert built(bindings={}).policy_of("Flight") is None
    assert config.hosts_of("few") == ("A", "B")


@pytest.mark.feature("P4")
def test_a_policy_may_have_times_of_its_own(tmp_path: Path) -> None:
    """Those that it leaves away are those of all; and a file is written back without them."""
    text = GOOD.replace("before_images = true", "call_deadline_ms = 700\nreplace_after_ms = 60_000")
    config = load_config(write(tmp_path, text))
    own = dataclasses.replace(config.timing, call_deadline_ms=700, replace_after_ms=60_000)
    assert config.timing_of("default") == own != config.timing
    assert built().timing_of("default") == TimingConfig()
    assert "doubt_timeout_ms" not in config.to_toml().split("[policies.default]")[1].split("[")[0]
    assert load_config(write(tmp_path, config.to_toml())) == config


@pytest.mark.feature("P4", "P3")
@pytest.mark.parametrize("key", ["join_settle_ms", "replace_after_ms"])
def test_who_comes_or_goes_moves_nothing_of_a_static_policy_however_long_it_waits(key: str) -> None:
    by_hand = PolicyConfig("main", kind="static", static={"p": StaticPartition(("A", "B"))}, min_stay_ms=5)
    built(policies={"default": by_hand}).validate()
    longer: dict[str, Any] = {key: 5}
    with pytest.raises(ConfigError, match=rf"policies\.default\.{key}: excludes partitions named by hand"):
        built(policies={"default": dataclasses.replace(by_hand, **longer)}).validate()


NODES = {name: NodeConfig(Path(f"/var/{name}")) for name in "ABC"}


@pytest.mark.feature("P5")
def test_a_policy_spans_zones_and_some_of_their_nodes_are_for_replicas(tmp_path: Path) -> None:
    zones = {"west": ZoneConfig(("A", "B")), "east": ZoneConfig(("B", "C"))}
    policies = {"p": PolicyConfig(zones=("east", "west"), backup=("C", "A"))}
    config = built(zones=zones, policies=policies, bindings={"*": "p"}, nodes=NODES).validate()
    assert config.hosts_of("p") == ("B", "C", "A")
    assert config.backups_of("p") == ("C", "A")
    by_pattern = dataclasses.replace(config.policies["p"], backup=("[AC]",))
    assert dataclasses.replace(config, policies={"p": by_pattern}).validate().backups_of("p") == ("C", "A")
    assert load_config(write(tmp_path, config.to_toml())) == config


@pytest.mark.feature("P5", "P3")
def test_a_node_list_by_hand_may_name_nodes_of_all_zones_and_knows_no_backup() -> None:
    zones = {"west": ZoneConfig(("A", "B")), "east": ZoneConfig(("C",))}
    by_hand = PolicyConfig(zones=("west", "east"), kind="static", static={"p": StaticPartition(("C", "A"))})
    config = built(zones=zones, policies={"p": by_hand}, bindings={"*": "p"}, nodes=NODES).validate()
    with pytest.raises(ConfigError, match=r"policies\.p\.backup: excludes partitions named by hand"):
        dataclasses.replace(config, policies={"p": dataclasses.replace(by_hand, backup=("C",))}).validate()
    with pytest.raises(ConfigError, match="'C' is not in zone 'west';"):
        dataclasses.replace(config, policies={"p": dataclasses.replace(by_hand, zones=("west",))}).validate()


@pytest.mark.feature("P5")
def test_a_node_outside_nodes_is_a_client() -> None:
    """It is in no zone and has no data directory."""
    assert (built().is_client("A"), built().is_client("laptop")) == (False, True)


def test_toml_reads_back_equal(tmp_path: Path) -> None:
    """What to_toml writes is the same configuration."""
    for config in (load_config(write(tmp_path)), built(), built(nodes={}, zones={}, policies={}, bindings={})):
        assert load_config(write(tmp_path, config.to_toml())) == config


def test_odd_text_survives_toml(tmp_path: Path) -> None:
    """Quotes, control characters and emoji in a path are written as TOML reads them."""
    config = built(site=SiteConfig(embedded=Path('/a "b"\\\t\x7f\U0001f600')))
    assert load_config(write(tmp_path, config.to_toml())).site == config.site


def test_a_config_is_frozen_and_passes_through() -> None:
    """A Config built in Python is validated and returned as it is."""
    config = built()
    assert load_config(config) is config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.cluster.name = "x"  # type: ignore[misc]


def test_tables_read_from_a_file_cannot_be_changed(tmp_path: Path) -> None:
    """After validation nobody can add a node."""
    nodes: Any = load_config(write(tmp_path)).nodes
    with pytest.raises(TypeError):
        nodes["X"] = NodeConfig(Path("/x"))


SERVERS = 'bootstrap = "a:1"\nzookeeper = "b:1"\n'
THREE = "replication_factor = 3\nmin_insync_replicas = "

WRONG: list[tuple[str, str, str, str]] = [
    ('[cluster]\nname = "fleet"', "", "cluster", "is missing"),
    ('name = "fleet"', "", "cluster.name", "is missing"),
    ('name = "fleet"', "name = 3", "cluster.name", "must be a string, is 3"),
    ('name = "fleet"', 'name = "a b"', "cluster.name", "topic and znode"),
    ('name = "fleet"', 'name = ""', "cluster.name", "topic and znode"),
    ('name = "fleet"', 'name = ".."', "cluster.name", "topic and znode"),
    ('name = "fleet"', f'name = "{"x" * 101}"', "cluster.name", "1 to 100"),
    ('name = "fleet"', 'name = "fleet\\n"', "cluster.name", "1 to 100"),
    ("[timing]", "[timings]", "timings", "did you mean 'timing'"),
    ("keep_alive_ms = 150", "keepalive_ms = 150", "timing.keepalive_ms", "did you mean 'keep_alive_ms'"),
    ("keep_alive_ms = 150", "zzz = 150", "timing.zzz", "known are keep_alive_ms"),
    ("keep_alive_ms = 150", "keep_alive_ms = 150.0", "timing.keep_alive_ms", "must be a whole number, is 150.0"),
    ("keep_alive_ms = 150", "keep_alive_ms = true", "timing.keep_alive_ms", "must be a whole number, is true"),
    ("keep_alive_ms = 150", "keep_alive_ms = 0", "timing.keep_alive_ms", "at least 1"),
    ("keep_alive_ms = 150", "keep_alive_ms = 300", "timing.non_response_timeout_ms", "twice keep_alive_ms"),
    ("session_timeout_ms = 1000", "session_timeout_ms = 999", "timing.session_timeout_ms", "two ticks"),
    ("before_images = true", "before_images = 1", "policies.default.before_images", "must be true or false"),
    ('embedded = "var/site"', "", "site.bootstrap", "is missing"),
    ('embedded = "var/site"', 'bootstrap = "a:1"', "site.zookeeper", "is missing"),
    ('embedded = "var/site"', 'embedded = "x"\nbootstrap = "a:1"', "site.bootstrap", "excludes site.embedded"),
    ('embedded = "var/site"', 'embedded = ""', "site.embedded", "must not be empty"),
    ('embedded = "var/site"', 'bootstrap = "a:0"\nzookeeper = "b:1"', "site.bootstrap", "needs a port"),
    ('embedded = "var/site"', 'bootstrap = "a:1"\nzookeeper = "b"', "site.zookeeper", "host:port"),
    ('embedded = "var/site"', f"{SERVERS}min_insync_replicas = 1", "site.min_insync_replicas", "needs site.repl"),
    ('embedded = "var/site"', f"{SERVERS}replication_factor = 8", "site.replication_factor", "must be 1 to 7, is 8"),
    ('embedded = "var/site"', f"{SERVERS}{THREE}1", "site.min_insync_replicas", "must be 2 or 3 with"),
    ('embedded = "var/site"', f"{SERVERS}{THREE}4", "site.min_insync_replicas", "must be 2 or 3 with"),
    ('embedded = "var/site"', 'embedded = "x"\nreplication_factor = 3', "site.replication_factor", "one broker"),
    ('modules = ["fleet.model"]', 'modules = "fleet.model"', "application.modules", "list of strings"),
    ('modules = ["fleet.model"]', "modules = [1]", "application.modules", "list of strings"),
    ('modules = ["fleet.model"]', 'modules = ["fleet/model"]', "application.modules", "no module name"),
    ('nodes = ["A", "B", "C"]', "nodes = []", "zones.main.nodes", "at least one"),
    ('nodes = ["A", "B", "C"]', 'nodes = ["A", "A", "B", "C"]', "zones.main.nodes", "twice"),
    ('nodes = ["A", "B", "C"]', 'nodes = ["A", "x*", "C"]', "zones.main.nodes", "matches none of [nodes]: A, B, C"),
    ('nodes = ["A", "B", "C"]', 'nodes = ["A", "B", "D"]', "zones.main.nodes", "'D' is not in"),
    (
        'nodes = ["A", "B", "C"]',
        'nodes = ["A", "B"]',
        "policies.default.sync_replicas",
        "need 3 nodes, zone 'main' has 2",
    ),
    ('zone = "main"', 'zone = "mian"', "policies.default.zone", "did you mean 'main'"),
    ('zone = "main"', "", "policies.default.zone", "is missing"),
    ('zone = "main"', 'zone = "main"\nzones = ["main"]', "policies.default.zones", "excludes zone"),
    ('zone = "main"', 'zones = ["main", "mian"]', "policies.default.zones", "did you mean 'main'"),
    ('zone = "main"', 'zones = ["main", "main"]', "policies.default.zones", "names a zone twice"),
    (
        'zone = "main"',
        'zone = "main"\nbackup = ["D"]',
        "policies.default.backup",
        "none of the policy's nodes: A, B, C",
    ),
    (
        'zone = "main"',
        'zone = "main"\nbackup = ["x*"]',
        "policies.default.backup",
        "none of the policy's nodes: A, B, C",
    ),
    ('zone = "main"', 'zone = "main"\nbackup = ["*"]', "policies.default.backup", "leaves no primary node"),
    (
        "before_images = true",
        'local_sync = "no"',
        "policies.default.local_sync",
        "'no' must be one of SYNC, WRITE_NO_SYNC, NO_SYNC",
    ),
    (
        "sync_replicas = 1",
        'sync_replicas = 0\nlocal_sync = "NO_SYNC"',
        "policies.default.local_sync",
        "NO_SYNC needs sync_replicas of 1 or more",
    ),
    (
        "before_images = true",
        'remote_sync = "sync"',
        "policies.default.remote_sync",
        "'sync' must be one of SYNC, WRITE_NO_SYNC, NO_SYNC",
    ),
    ("before_images = true", "move_pause_ms = 101", "policies.default.move_pause_ms", "must be 0 (no pause) to 100"),
    ("before_images = true", "copy_bytes_per_s = -1", "policies.default.copy_bytes_per_s", "0 (no limit) or more"),
    ("before_images = true", "move_threads = 0", "policies.default.move_threads", "must be 1 to 32, is 0"),
    ("before_images = true", "copy_threads = 33", "policies.default.copy_threads", "must be 1 to 32, is 33"),
    ("before_images = true", "copy_threads = true", "policies.default.copy_threads", "must be a whole number"),
    ("before_images = true", "call_deadline_ms = 0", "policies.default.call_deadline_ms", "must be at least 1, is 0"),
    (
        "before_images = true",
        "call_deadline_ms = 10000000000",
        "policies.default.call_deadline_ms",
        "at most 2147483647",
    ),
    ("before_images = true", "doubt_timeout_ms = -1", "policies.default.doubt_timeout_ms", "at least 1, is -1"),
    ("before_images = true", "min_stay_ms = 1.5", "policies.default.min_stay_ms", "must be a whole number, is 1.5"),
    ("before_images = true", "keep_alive_ms = 100", "policies.default.keep_alive_ms", "is unknown"),
    ("before_images = true", "lease_ttl_ms = 299", "policies.default.lease_ttl_ms", "0 (no leases) or 300 to 60000"),
    ("before_images = true", "lease_ttl_ms = -1", "policies.default.lease_ttl_ms", "0 (no leases) or 300 to 60000"),
    (
        "before_images = true",
        'lease_ttl_ms = 2000\nlocal_sync = "NO_SYNC"',
        "policies.default.lease_ttl_ms",
        "excludes local_sync NO_SYNC",
    ),
    ("sync_replicas = 1", "sync_replicas = -1", "policies.default.sync_replicas", "negative"),
    ("partitions = 12", "partitions = 0", "policies.default.partitions", "1 to 4096"),
    ("partitions = 12", "partitions = 4097", "policies.default.partitions", "1 to 4096"),
    ("ring_size = 65536", "ring_size = 119", "policies.default.ring_size", "10 x partitions"),
    (
        '"consistent_hash"',
        '"modulo"',
        "policies.default.mapper",
        'one of consistent_hash, round_robin, least_loaded, "<module>:<callable>", "at_create:<module>:<callable>"',
    ),
    ('"*" = "default"', '"*" = "defualt"', 'bindings."*"', "did you mean 'default'"),
    ('"*" = "default"', '"Air*" = "default"', 'bindings."Air*"', "is a pattern"),
    ("[bindings]", "bindings = 3\n[x]", "bindings", "must be a table"),
    ('address = "127.0.0.1:0"', 'address = "127.0.0.1"', "nodes.A.address", "host:port"),
    ('address = "127.0.0.1:0"', 'address = "h:65536"', "nodes.A.address", "host:port"),
    *(
        ('address = "127.0.0.1:0"', f'address = "{host}:7400"', "nodes.A.address", "every interface")
        for host in ("0.0.0.0", "[::]", "::", "[::ffff:0.0.0.0]", "0", "0.0", "0x0", "*")
    ),
    *(
        ('address = "127.0.0.1:0"', f'address = "{host}:7400"', "nodes.A.address", "multicast or broadcast")
        for host in ("224.0.0.1", "255.255.255.255", "[ff02::1]", "[::ffff:224.0.0.1]")
    ),
    *(
        ('address = "127.0.0.1:0"', f'address = "{address}"', "nodes.A.address", "IPv6 address in brackets")
        for address in ("::1", "fe80::7:1:g:7400", "[::1:7400", "tcp://h:7400", "[h]:7400")
    ),
    *(
        ('address = "127.0.0.1:0"', f'address = "{address}"', "nodes.A.address", f"{address!r} must be host:port")
        for address in ("a@h:7400", " h:7400", "h/a:7400", "db..example:7400", ".:7400", f"{'h' * 64}:7400")
    ),
    ('address = "127.0.0.1:0"', f'address = "{"h." * 127}h:7400"', "nodes.A.address", "host:port"),
    ('address = "127.0.0.1:0"', 'address = "h\\u0000:7400"', "nodes.A.address", "host:port"),
    *(
        ('address = "127.0.0.1:0"', f'listen = "{host}:7400"', "nodes.A.listen", "set nodes.A.advertise to the host")
        for host in ("0.0.0.0", "[::]")
    ),
    ('address = "127.0.0.1:0"', 'listen = "7400"', "nodes.A.listen", "host:port"),
    ('address = "127.0.0.1:0"', 'advertise = "10.0.0.5"', "nodes.A.advertise", "host:port"),
    (
        'address = "127.0.0.1:0"',
        'listen = "0.0.0.0:7400"\nadvertise = "0.0.0.0:7400"',
        "nodes.A.advertise",
        "every interface",
    ),
    ('data_dir = "var/C"', 'data_dir = "var/A"', "nodes.C.data_dir", "is node A's too"),
    ('data_dir = "var/C"', 'data_dir = "./var/B/../A"', "nodes.C.data_dir", "is node A's too"),
    ('data_dir = "var/C"', "", "nodes.C.data_dir", "is missing"),
    ("keep_alive_ms = 150", "call_deadline_ms = 2147483648", "timing.call_deadline_ms", "must be at most 2147483647"),
    ("keep_alive_ms = 150", "close_deadline_ms = 2199023255553", "timing.close_deadline_ms", "(69 years)"),
    ("sync_replicas = 1", "doubt_timeout_ms = 2147483648", "policies.default.doubt_timeout_ms", "2147483647 (24 days)"),
    ('address = "127.0.0.1:0"', f'address = "h:{"9" * 5_000}"', "nodes.A.address", "host:port"),
    ('address = "127.0.0.1:0"', f'address = "h:{"0" * 5_000}"', "nodes.A.address", "host:port"),
    ("[nodes.A]", '[nodes."A/B"]', "nodes.A/B", "topic and znode"),
    ("max_record_bytes = 5_000_000", "max_record_bytes = 100_000_000", "limits.max_record_bytes", "at most"),
    ("max_record_bytes = 5_000_000", "max_record_bytes = 6_000_000", "limits.max_record_bytes", "at most 5900000"),
    ("max_record_bytes = 5_000_000", "max_frame_bytes = 9_000_000", "limits.max_frame_bytes", "at least twice"),
    ("max_record_bytes = 5_000_000", "max_in_flight_bytes = 4_000_000", "limits.max_in_flight_bytes", "at least"),
    ("every_records = 50_000", "every_records = -1", "snapshot.every_records", "at least 1"),
]


@pytest.mark.feature("O3")
@pytest.mark.timeout(20)
def test_all_that_is_wrong_is_told_however_many_partitions_are_asked_for(tmp_path: Path) -> None:
    """Nobody makes the names of a thousand million of them first."""
    path = write(tmp_path, GOOD.replace("partitions = 12", "partitions = 1_000_000_000").replace('"var/C"', '"var/A"'))
    problems = dict(problems_of(tomllib.loads(path.read_text()), str(path)))
    assert problems["policies.default.partitions"] == "must be 1 to 4096"
    assert "is node A's too" in problems["nodes.C.data_dir"]


@pytest.mark.feature("O3")
@pytest.mark.parametrize("key", ["min_stay_ms", "join_settle_ms", "replace_after_ms"])
def test_what_is_never_to_come_may_be_a_year_away(tmp_path: Path, key: str) -> None:
    """No client of a server is ever told these times: they are compared only."""
    year = 366 * 24 * 3_600_000
    text = GOOD.replace("keep_alive_ms = 150", f"keep_alive_ms = 150\n{key} = {year}").replace(
        "sync_replicas = 1", f"sync_replicas = 1\n{key} = {year}", 1
    )
    made = load_config(write(tmp_path, text.replace("[snapshot]", f"[snapshot]\nevery_ms = {year}")))
    assert (getattr(made.timing, key), getattr(made.policies["default"], key), made.snapshot.every_ms) == (year,) * 3


def with_addresses(tmp_path: Path, zone: str, *addresses: str) -> Path:
    """A file of the nodes A to C, or fewer, at these addresses."""
    nodes = "".join(f'[nodes.{n}]\naddress = "{a}"\ndata_dir = "var/{n}"\n' for n, a in zip("ABC", addresses))
    return write(
        tmp_path,
        f'[cluster]\nname = "f"\n[site]\nbootstrap = "k:1"\nzookeeper = "z:1"\n[zones.z]\nnodes = {zone}\n{nodes}',
    )


@pytest.mark.feature("O3", "P11")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("h:7400", "h:7400"),
        ("h:7400", "h:07400"),
        ("h:7400", "H:7400"),
        ("::1:7400", "[::1]:7400"),
        ("[0::1]:7400", "[::1]:7400"),
    ],
)
def test_two_nodes_of_one_address_are_refused_where_an_operator_brings_the_file(
    tmp_path: Path, one: str, other: str
) -> None:
    """And a node that starts by it goes by its own address alone."""
    path = with_addresses(tmp_path, '["*"]', one, other)
    ((key, why),) = problems_of(tomllib.loads(path.read_text()), str(path))
    assert (key, why) == ("nodes.B.address", f"{other!r} is node A's too; each node needs its own")
    with pytest.raises(ConfigError, match=r"nodes\.B\.address: .* is node A's too"):
        operators_config(path)
    assert set(load_config(path).nodes) == {"A", "B"}


@pytest.mark.feature("O3", "P11")
@pytest.mark.parametrize(
    ("zone", "addresses"),
    [
        ('["A", "B"]', ("h:7400", "i:7400", "h:7400")),
        ('["*"]', ("h:0", "h:0", "h:00")),
        ('["*"]', ("h:7400", "h:7401")),
    ],
)
def test_a_node_that_has_left_its_zone_may_have_left_its_machine(
    tmp_path: Path, zone: str, addresses: tuple[str, ...]
) -> None:
    path = with_addresses(tmp_path, zone, *addresses)
    assert problems_of(tomllib.loads(path.read_text()), str(path)) == []
    assert len(operators_config(path).nodes) == len(addresses)


@pytest.mark.parametrize(("old", "new", "key", "why"), WRONG, ids=[f"{w[2]}: {w[3]}" for w in WRONG])
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, key: str, why: str) -> None:
    """One line with file, key and reason."""
    text = GOOD.replace(old, new, 1)
    if key == "bindings":  # a bare value must stand before any table
        text = "bindings = 3\n" + GOOD.replace('[bindings]\n"*" = "default"\n', "")
    assert text != GOOD
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {key}: "), message
    assert why in message
    assert "\n" not in message
    assert caught.value.evidence["key"] == key
    assert caught.value.exit_code == 2


@pytest.mark.feature("R6")
def test_commits_that_do_not_wait_for_the_log(tmp_path: Path) -> None:
    text = GOOD.replace("before_images = true", 'local_sync = "NO_SYNC"')
    assert load_config(write(tmp_path, text)).policies["default"].local_sync == "NO_SYNC"
    text = text.replace("max_record_bytes = 5_000_000", "max_record_bytes = 1_000_000\nmax_frame_bytes = 9_999_999")
    with pytest.raises(ConfigError, match=r"limits.max_frame_bytes: must be at least 10000000: policies.default has"):
        load_config(write(tmp_path, text))
    text = text.replace("max_frame_bytes = 9_999_999", "").replace(
        "every_records = 50_000", "every_records = 50_000\nkeep_records = 9_999"
    )
    with pytest.raises(ConfigError, match=r"snapshot.keep_records: must be at least 10000: policies.default has"):
        load_config(write(tmp_path, text))


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_file_of_an_editor_on_windows_is_read_as_any_other(tmp_path: Path, mark: bytes, end: bytes) -> None:
    """A byte order mark, and its own ends of lines."""
    path = tmp_path / "halog.toml"
    path.write_bytes(mark + GOOD.lstrip().encode().replace(b"\n", end))
    assert load_config(path).cluster.name == "fleet"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        (b"a = 1\nb = '\xff'", r"not UTF-8 text \(line 2 has byte ff\): save it as UTF-8"),
        (GOOD.encode("utf-16"), "halog.toml: is UTF-16: save it as UTF-8"),
        (b"[cluster", "is not TOML"),
        (b"x = " + b"9" * 5_000, "is not TOML: .*5000 digits"),
        (b"x = " + b"[" * 5_000 + b"]" * 5_000, "too deeply"),
    ],
    ids=["missing", "binary", "utf16", "torn", "digits", "deep"],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, why: str) -> None:
    """Missing, binary, or no TOML: named, without a traceback's worth of text."""
    path = tmp_path / "halog.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=why) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_a_file_from_another_system_is_read(tmp_path: Path) -> None:
    """With a byte order mark, and lines that end as elsewhere."""
    path = write(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_config(path).cluster.name == load_config(write(tmp_path, GOOD)).cluster.name


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"policies": {"default": PolicyConfig("main", "12")}}, "policies.default.partitions"),  # type: ignore[arg-type]
        ({"zones": {"main": ZoneConfig("A")}}, "zones.main.nodes"),  # type: ignore[arg-type]
        ({"timing": TimingConfig(keep_alive_ms=True)}, "timing.keep_alive_ms"),
        ({"limits": LimitsConfig(max_in_flight=1.5)}, "limits.max_in_flight"),  # type: ignore[arg-type]
        ({"site": SiteConfig(embedded="x")}, "site.embedded"),  # type: ignore[arg-type]
    ],
)
def test_a_config_built_in_python_is_checked_too(changes: Any, key: str) -> None:
    """Values of a wrong type are named like those in a file."""
    with pytest.raises(ConfigError, match=key):
        built(**changes).validate()


def test_every_default_fits_the_others() -> None:
    """The defaults pass their own checks, with one replica more than the policy's default needs."""
    assert built().validate() == built()


def refused(tmp_path: Path, text: str) -> str:
    """What is said of a file that cannot be run."""
    with pytest.raises(ConfigError) as told:
        load_config(write(tmp_path, text))
    return str(told.value)


@pytest.mark.feature("O3")
@pytest.mark.parametrize("name", ["none", "None", "null", "NULL", "all", "-", "-A", "--help", "*"])
def test_a_node_is_called_by_no_word_that_means_something_else(tmp_path: Path, name: str) -> None:
    """`halog partition designate p none` takes back; who is active for nothing is `none`."""
    text = GOOD.replace('"A"', f'"{name}"').replace("[nodes.A]", f'[nodes."{name}"]')
    assert f"nodes.{name}: the name '{name}'" in refused(tmp_path, text)


@pytest.mark.feature("O3")
@pytest.mark.parametrize("name", ["none", "-x"])
@pytest.mark.parametrize("key", ["cluster.name", "site.name", "policies", "zones", "partitions"])
def test_nothing_is_called_by_a_word_that_stands_for_nobody(tmp_path: Path, key: str, name: str) -> None:
    text = {
        "cluster.name": GOOD.replace('name = "fleet"', f'name = "{name}"'),
        "site.name": GOOD.replace('name = "home"', f'name = "{name}"'),
        "policies": GOOD.replace("[policies.default]", f"[policies.{name}]").replace('= "default"', f'= "{name}"'),
        "zones": GOOD.replace("[zones.main]", f"[zones.{name}]").replace('zone = "main"', f'zone = "{name}"'),
        "partitions": GOOD.replace("partitions = 12", f'kind = "static"\npartitions = {{ {name} = ["A", "B"] }}'),
    }[key]
    assert f"the name '{name}'" in refused(tmp_path, text)


@pytest.mark.feature("O3")
@pytest.mark.parametrize("zone", ["all", "nobody", "no", "true", "none-1"])
def test_words_that_mean_nothing_else_are_names(tmp_path: Path, zone: str) -> None:
    text = GOOD.replace("[zones.main]", f"[zones.{zone}]").replace('zone = "main"', f'zone = "{zone}"')
    assert set(load_config(write(tmp_path, text)).zones) == {zone}


@pytest.mark.feature("O3")
@pytest.mark.parametrize(
    ("b", "said"),
    [
        ("var/A", "nodes.B.data_dir: is node A's too"),
        ("var/../var/./A/", "nodes.B.data_dir: is node A's too"),
        ("var/A/B", "nodes.B.data_dir: lies in that of node A"),
        ("var/A/db", "nodes.B.data_dir: lies in that of node A"),
        ("var", "nodes.A.data_dir: lies in that of node B"),
        (".", "nodes.A.data_dir: lies in that of node B"),
    ],
)
def test_no_node_keeps_its_data_in_anothers(tmp_path: Path, b: str, said: str) -> None:
    assert said in refused(tmp_path, GOOD.replace("/data/B", b))
    told = problems_of(tomllib.loads(GOOD.replace("/data/B", b)), "f")
    assert any(said == f"{key}: {why}"[: len(said)] for key, why in told), told


@pytest.mark.feature("O3")
def test_a_directory_beside_it_may_begin_with_the_same_letters(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, GOOD.replace("/data/B", "var/AB"))).nodes["B"].data_dir.name == "AB"


DEEP = {
    "header": "[" + ".".join(["a"] * 1_200) + "]\n",
    "dotted": ".".join(["a"] * 1_200) + " = 1\n",
    "below a section": "[nodes.A." + ".".join(["x"] * 1_200) + "]\nb = 1\n",
    "a partition": "[policies.default.partitions." + ".".join(["x"] * 1_200) + "]\nb = 1\n",
    "list": "a = " + "[" * 1_200 + "]" * 1_200 + "\n",
    "inline": "a = " + "{b = " * 1_200 + "1" + "}" * 1_200 + "\n",
    "a list below": "x." * 600 + "a = " + "[" * 60 + "]" * 60 + "\n",
}


@pytest.mark.feature("O3")
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("read", [load_config, operators_config, read_toml])
def test_what_is_nested_beyond_all_measure_is_a_mistake_in_the_file(tmp_path: Path, text: str, read: Any) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=rf"{path}: is nested too deeply"):
        read(path)
