"""This module is the only place that builds a SparkSession: the Kafka connector's jars, the Python of this process,
loopback.

It never resolves anything at session start: the jars are pinned and cached like the embedded servers' (`ivy.xml`,
`jars.sha256`), and given to Spark by path. An application with a session of its own adds `jars()` to `spark.jars`; only
streams need them.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from halog.embedded import jars as cached
from halog.embedded.java import find_java
from halog.embedded.progress import LogProgress, Progress
from halog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR: Final = cached.JarSet("spark_jobs", "Spark's Kafka connector")

SECRETS: Final = (
    r'sasl\.jaas\.config -> \S++ required(?: \w++="(?:[^"\\]++|\\.)*+")*+;'
    r"|-----BEGIN [A-Z ]*?PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*?PRIVATE KEY-----"
)
"""What a text of Spark's must not show: login modules with their passwords, and keys."""
SETTINGS: Final = {
    "spark.ui.enabled": "false",  # a port nobody asked for
    "spark.log.level": "ERROR",  # a warning of Spark's is rarely one for the reader of a command's stderr
    "spark.ui.showConsoleProgress": "false",  # progress is the job's own, on stderr
    "spark.redaction.string.regex": SECRETS,  # Spark's plans, which it shows and logs, hold the connector's options
    "spark.sql.session.timeZone": "UTC",  # as every halog tool shows times
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",  # 0.5 MB of keys and heads: Python and the JVM overlap
}


def jars(progress: Progress | None = None) -> list[str]:
    """Return the connector's jars as paths, fetched if they are not cached. SiteError: no Java, no network, wrong
    checksum."""
    where, _ = cached.ensure(find_java(), progress or LogProgress(), CONNECTOR)
    return [str(where / name) for name in sorted(cached.manifest(CONNECTOR))]


def session(
    master: str = "local[*]",
    app_name: str = "halog",
    *,
    modules: Iterable[str] = (),
    settings: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> SparkSession:
    """Return a session that can read halog's topics.

    `master`: where it runs; "": where `spark-submit` says. `modules`: the application's, made importable on the
    executors. `settings`: Spark's, which win over ours. Executors need halog and its dependencies installed
    (`halog[spark]`).
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whatever `python3` is on the path
    from pyspark.sql import SparkSession

    wanted = {**SETTINGS, "spark.jars": ",".join(jars(progress))}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # What this process imports its executors import: they are its children.
        path = os.pathsep.join(p for p in (str(Path.cwd()), *sys.path) if Path(p).is_dir())
        loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        wanted |= {**loopback, "spark.executorEnv.PYTHONPATH": path, "spark.sql.shuffle.partitions": "8"}
    builder = SparkSession.builder.appName(app_name)
    if master:
        wanted["spark.master"] = master
    for key, value in (wanted | (settings or {})).items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    if not master.startswith("local"):
        ship(made, modules)
    return made


def ship(spark: SparkSession, modules: Iterable[str]) -> None:
    """Send the application's modules to the executors: Python source only. What they import beside halog must be
    installed there. ConfigError for a module that has no source."""
    names = list(modules)
    if names:
        directory = tempfile.mkdtemp(prefix="halog-modules-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)  # Spark serves the file from here until it ends
        archive = Path(directory, "modules.zip")
        pack(archive, names)
        spark.sparkContext.addPyFile(str(archive))


def pack(archive: Path, modules: Iterable[str]) -> None:
    """Write the top-level packages or modules that hold these, as a zip file that can be imported from."""
    files: dict[str, Path] = {}
    for top in sorted({name.partition(".")[0] for name in modules}):
        for file, name in _sources(top):
            files.setdefault(name, file)  # a package in several places: the first one counts, as it does here
    # A package without `__init__.py` is one to Python's importer only where the zip has its directory as an entry.
    directories = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for directory in sorted(directories - {"."}):
            out.writestr(f"{directory}/", b"")
        for name, file in files.items():
            out.write(file, name)


def _sources(top: str) -> list[tuple[Path, str]]:
    found = import_module(top)
    roots = [Path(p) for p in getattr(found, "__path__", ())]
    if roots:
        return [(f, f"{top}/{f.relative_to(r).as_posix()}") for r in roots for f in sorted(r.rglob("*.py"))]
    file = getattr(found, "__file__", None)
    if file is None or not file.endswith(".py"):
        raise ConfigError(f"[application] modules names {top!r}, which has no Python source to send to the executors")
    return [(Path(file), f"{top}.py")]
