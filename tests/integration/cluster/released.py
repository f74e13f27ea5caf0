"""The source of the last release of halog, from this repository's history: processes are started from it."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.integration.cluster.future import PACKAGES
from tests.integration.cluster.processes import ROOT

RELEASE = "0.2.0"
COMMIT = ROOT / "tests" / "golden" / RELEASE / "commit"


def written(directory: Path) -> Path | None:
    """Write it below `directory`; processes get it as PYTHONPATH. None: this checkout has no history with it."""
    archive = ["git", "-C", str(ROOT), "archive", COMMIT.read_text().strip(), *PACKAGES]
    found = subprocess.run(archive, capture_output=True, check=False) if shutil.which("git") else None
    if found is None or found.returncode:
        return None
    source = directory / f"halog-{RELEASE}"
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(source)
    return source
