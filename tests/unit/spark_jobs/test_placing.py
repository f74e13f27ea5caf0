"""Where keys belong, asked from index keys, beside the nodes' own way; what executors are sent; the job's progress."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import mappers
import spark_jobs
from halog.config import ApplicationConfig, ClusterConfig, Config, NodeConfig, PolicyConfig, SiteConfig, ZoneConfig
from halog.core.keys.directory import DIRECTORY, entry_key
from halog.embedded import jars
from halog.errors import ConfigError, MapperError
from halog.runtime.keys.key_owners import Places
from halog.schema import Registry, TypeInfo, managed
from spark_jobs import progress
from spark_jobs.finding import ROWS, SCHEMA, ExecutorFindings, _PartitionFindings
from spark_jobs.mover import DryRun, Misplaced
from spark_jobs.placing import PlacementBasis, Placer
from spark_jobs.progress import LOG, FinderProgress
from spark_jobs.spark import CONNECTOR, pack

TYPES = Registry()


@managed(key=("name", "number", "code"), partition_by=("code", "name"), registry=TYPES)
class Part:
    name: str
    number: int
    code: bytes


@managed(key="name", registry=TYPES)
class Whole:
    name: str


@managed(registry=TYPES)
class Special(Whole):
    pass


@managed(key="name", registry=TYPES)
class Turn:
    name: str


@managed(key="name", registry=TYPES)
class Said:
    name: str


def never(made: mappers.NewObject, partitions: tuple[str, ...], states: mappers.States) -> str:
    raise AssertionError("it is asked at create")


@mappers.versioned(3)
def by_code(type_name: str, key: tuple[Any, ...]) -> str:
    assert type_name in ("Part", "Whole")
    return f"own-{len(key[0]) % 5}"


CONFIG = Config(
    ClusterConfig("c"),
    SiteConfig(bootstrap="b:1", zookeeper="z:1"),
    ApplicationConfig(("tests.unit.spark_jobs.test_placing",)),
    zones={"z": ZoneConfig(("A",))},
    policies={
        "ring": PolicyConfig("z", partitions=7, sync_replicas=0),
        "own": PolicyConfig("z", partitions=4, sync_replicas=0, mapper="tests.unit.spark_jobs.test_placing:by_code"),
        "round": PolicyConfig("z", partitions=3, sync_replicas=0, mapper="round_robin"),
        "asked": PolicyConfig(
            "z", partitions=3, sync_replicas=0, mapper="at_create:tests.unit.spark_jobs.test_placing:never"
        ),
    },
    bindings={"Part": "ring", "Whole": "ring", "Special": "own", "Turn": "round", "Said": "asked"},
    nodes={"A": NodeConfig(Path("/nowhere"))},
).validate()
INFOS = [TYPES.info(t) for t in (Part, Whole, Special, Turn, Said)]
PLACER = Placer(
    PlacementBasis(CONFIG, {i.name: i.definition for i in INFOS}, {}),
    lambda type_id: TYPES.info(type_id).parsed,
)


def place(info: TypeInfo, key: bytes) -> str:
    """Of one key."""
    way = PLACER.of(info.type_id)
    return way.names[way.places(pa.array([key], pa.binary()))[0]]


@pytest.mark.feature("S1", "P6")
@settings(max_examples=40)
@given(st.text(max_size=20), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=9))
def test_an_index_key_belongs_where_the_nodes_say(name: str, number: int, code: bytes) -> None:
    places = Places(CONFIG, lambda wanted: TYPES.info(wanted).parsed)
    for info, key in ((INFOS[0], (name, number, code)), (INFOS[1], (name,)), (INFOS[2], (name,))):
        assert PLACER.of(info.type_id).type_name == info.name
        if info.name == "Special" and len(name) % 5 == 4:
            with pytest.raises(MapperError, match=r"by_code \(version 3\) for Whole .* said 'own-4'"):
                place(info, info.index_key(key))
        else:
            expected = places.owner(info.name).partition(info.name, info.routing_key(key))
            assert place(info, info.index_key(key)) == expected


@pytest.mark.feature("S1", "P6")
@pytest.mark.parametrize(("turn", "policy"), [(INFOS[3], "round"), (INFOS[4], "asked")], ids=["turn", "at create"])
def test_objects_with_entries_stay_and_their_entries_are_no_objects(turn: TypeInfo, policy: str) -> None:
    """Only a partition that the mapping has no more gives up its objects; entries are carried by the nodes. No mapper
    is asked here: the nodes ask it, with the object in hand."""
    keys = [turn.index_key((f"t{i}",)) for i in range(4)]
    rows = {b"k" + key: bytes(8) + b"r" * 24 + turn.type_id for key in keys}
    rows |= {b"k" + entry_key(key): bytes(8) + b"r" * 24 + DIRECTORY for key in keys}
    for partition, moving in ((f"{policy}-0", 0), (f"{policy}-2", 0), (f"{policy}-3", 4)):
        here = _PartitionFindings(0, partition, PLACER)
        columns = pa.array(list(rows), pa.binary()), pa.array(list(rows.values()), pa.binary())
        told = ExecutorFindings(pa.Table.from_batches([*here.stored(*columns), *here.told()], schema=SCHEMA))
        found = [target for chunk in told.found(0, 10) for target in chunk.targets]
        assert len(found) == moving
        assert set(found) <= {f"{policy}-{i}" for i in range(3)}
        assert told.column(ROWS, "lsn") == [4], "objects"
    assert not PLACER.stays(INFOS[0].type_id, "ring-0")


@pytest.mark.feature("S1", "P6")
@pytest.mark.parametrize("gone", [False, True])
def test_rows_of_one_type_are_found_as_each_by_itself_is(gone: bool) -> None:
    """Nearly all batches: they are looked at as arrays. With something deleted among them, row by row."""
    info = INFOS[1]
    keys = [info.index_key((f"o{i}",)) for i in range(50)]
    rows: list[tuple[bytes, bytes | None]] = [
        (b"k" + key, i.to_bytes(8, "big") + bytes([i]) * 24 + info.type_id) for i, key in enumerate(keys)
    ]
    if gone:
        rows.append((b"k" + info.index_key(("gone",)), None))
    here = _PartitionFindings(0, "ring-0", PLACER)
    columns = [pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True)]
    told = ExecutorFindings(pa.Table.from_batches([*here.stored(*columns), *here.told()], schema=SCHEMA))
    expected = [(key, place(info, key), i) for i, key in enumerate(keys) if place(info, key) != "ring-0"]
    chunks = list(told.found(0, 7))
    assert [one for c in chunks for one in zip(c.keys, c.targets, c.lsns, strict=True)] == expected
    assert {c.type_name for c in chunks} == {info.name}
    assert 0 < len(expected) < len(keys)
    assert told.column(ROWS, "lsn") == [50]


@pytest.mark.feature("S1")
def test_a_dry_run_counts_each_object_once_and_forgets_deleted_ones() -> None:
    run = DryRun()
    objects = Misplaced("T", [bytes((i,)) for i in range(5)], [f"p-{i % 2}" for i in range(5)], [1] * 5)
    assert run.move("p-2", objects) == {"would_move": 5}
    assert run.move("p-2", list(objects.slices(3))[1]) == {"would_move": 0}
    assert run.gone("p-2", [b"\0", b"\x09"]) == {"would_move": -1}
    assert run.gone("p-9", [b"\0"]) == {"would_move": 0}
    assert run.by_target() == {"p-2": {"p-0": 2, "p-1": 2}}


@pytest.mark.feature("S1")
def test_progress_is_of_one_job_and_begins_anew_in_directories_of_its_own(tmp_path: Path) -> None:
    assert progress.load(tmp_path / "new", "job") is None
    done = FinderProgress("job", 0, LOG, 5, {"rows": 3}, {1: {b"p": b"\0"}}, {0: b"\xff"})
    progress.save(tmp_path / "c", done)
    assert progress.load(tmp_path / "c", "job") == done
    done.directory(tmp_path / "c").mkdir()
    again = progress.start_over(tmp_path / "c", done)
    assert progress.load(tmp_path / "c", "job") == again == FinderProgress("job", 1)
    assert not done.directory(tmp_path / "c").exists()
    assert again.directory(tmp_path / "c") != done.directory(tmp_path / "c")
    with pytest.raises(ConfigError, match="is the checkpoint of another job"):
        progress.load(tmp_path / "c", "other")
    (tmp_path / "c" / progress.FILE).write_bytes(b"\xc1")
    with pytest.raises(ConfigError, match="cannot be read"):
        progress.load(tmp_path / "c", "job")


@pytest.mark.feature("S1")
def test_what_is_shipped_is_the_source_of_the_applications_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lone_module.py").write_text("X = 1\n")
    package = tmp_path / "some_package" / "inner"
    package.mkdir(parents=True)
    for file in ("some_package/__init__.py", "some_package/inner/__init__.py", "some_package/inner/deep.py"):
        (tmp_path / file).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    pack(tmp_path / "out.zip", ["lone_module", "some_package.inner.deep", "some_package"])
    with zipfile.ZipFile(tmp_path / "out.zip") as made:
        assert sorted(name for name in made.namelist() if not name.endswith("/")) == [
            "lone_module.py",
            "some_package/__init__.py",
            "some_package/inner/__init__.py",
            "some_package/inner/deep.py",
        ]
    with pytest.raises(ConfigError, match="'sys', which has no Python source"):
        pack(tmp_path / "none.zip", ["sys"])


@pytest.mark.feature("S1")
def test_a_package_without_init_is_imported_from_what_is_sent_as_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python must find it in the zip; of a file that is in two places, it is the one imported here."""
    for place in ("second", "first"):
        inner = tmp_path / place / "bare_package" / "inner"
        inner.mkdir(parents=True)
        (inner / "deep.py").write_text(f"PLACE = {place!r}\n")
        (inner / f"{place}_only.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    archive = tmp_path / "out.zip"
    pack(archive, ["bare_package.inner.deep"])
    told = "import bare_package.inner.deep as d, bare_package.inner.second_only; print(d.PLACE, d.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", told], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["first", f"{archive}/bare_package/inner/deep.py"], done.stderr


@pytest.mark.feature("S1")
def test_the_pinned_jars_are_the_ones_that_are_asked_for() -> None:
    asked = re.findall(
        r'name="([\w.-]+)" rev="([\w.]+)"', resources.files("spark_jobs").joinpath("ivy.xml").read_text()
    )
    assert sorted(jars.manifest(CONNECTOR)) == sorted(f"{name}-{revision}.jar" for name, revision in asked)
    assert jars.directory(CONNECTOR) != jars.directory()


@pytest.mark.feature("S2")
def test_a_public_name_stays_what_it_is_when_every_module_is_imported() -> None:
    for module in sorted(p.stem for p in Path(spark_jobs.__path__[0]).glob("[a-z]*.py")):
        importlib.import_module(f"spark_jobs.{module}")
    assert all(callable(getattr(spark_jobs, name)) for name in spark_jobs.__all__)
