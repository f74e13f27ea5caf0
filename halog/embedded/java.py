"""This module finds a Java that can run the servers, without starting it. It never installs one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from halog.errors import SiteError

OLDEST = 17  # what Kafka 4's broker is compiled for
ADVICE = "install openjdk-17-jre-headless (or newer), or set JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """Describes one Java runtime."""

    path: str  # of the `java` program, links resolved
    version: str  # as it names itself, e.g. 17.0.15+6-Debian-1deb12u1
    major: int


def find_java() -> Java:
    """Return JAVA_HOME's Java, else the PATH's. SiteError: there is none, or it is too old."""
    path = _program()
    version = _from_release_file(path) or _from_running(path)
    major = _major(version)
    if major < OLDEST:
        raise SiteError(f"Java {OLDEST} or newer is needed, {path} is {version}: {ADVICE}", java=path, version=version)
    return Java(path, version, major)


def _program() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home, "bin", "java")
        if not os.access(candidate, os.X_OK):
            raise SiteError(f"JAVA_HOME is {home}, but there is no program {candidate}: {ADVICE} to another directory")
        return os.path.realpath(candidate)
    found = shutil.which("java")
    if found is None:
        raise SiteError(f"no Java found: {ADVICE}")
    return os.path.realpath(found)


def _from_release_file(path: str) -> str:
    """Return the version that a JDK notes in its `release` file (since 9); this is 50 ms cheaper than `java
    -version`."""
    try:
        text = Path(path).parent.parent.joinpath("release").read_text()
    except OSError:
        return ""
    values: dict[str, str] = dict(re.findall(r'^(\w+)="([^"]*)"', text, re.MULTILINE))
    return values.get("JAVA_RUNTIME_VERSION") or values.get("JAVA_VERSION", "")


def _from_running(path: str) -> str:
    try:
        result = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SiteError(f"{path} does not run ({e}): {ADVICE}", java=path) from None
    match = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    if match is None:
        raise SiteError(f"{path} -version says nothing of a version: {ADVICE}", java=path)
    return match.group(1)


def _major(version: str) -> int:
    """Return the major version: "17.0.15" → 17, and the old style "1.8.0_292" → 8."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])
