"""Finding Java: none, too old, described by its release file, or asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.embedded.java import find_java
from halog.errors import SiteError


def fake_java(home: Path, release: str | None, says: str = "") -> Path:
    """A JAVA_HOME whose java prints `says` on stderr."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


@pytest.mark.parametrize(
    ("release", "says", "major"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6-Debian"\nJAVA_VERSION="17.0.15"\n', "", 17),
        ('JAVA_VERSION="21"\n', "", 21),
        (None, 'openjdk version "25" 2025-09-16', 25),
        ("", 'openjdk version "18-ea" 2022-03-22', 18),
    ],
)
def test_a_new_enough_java_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None, says: str, major: int
) -> None:
    home = fake_java(tmp_path / "jdk", release, says)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.major, found.path) == (major, str(home / "bin/java"))


@pytest.mark.parametrize("version", ["11.0.21", "1.8.0_292", "16.0.2"])
def test_an_old_java_is_an_error_that_names_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", f'JAVA_VERSION="{version}"\n')))
    with pytest.raises(SiteError, match=f"Java 17 or newer is needed, .* is {version}"):
        find_java()


def test_no_java_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SiteError, match="no Java found: install openjdk-17-jre-headless"):
        find_java()


def test_an_empty_java_home_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SiteError, match=f"JAVA_HOME is {tmp_path}"):
        find_java()


def test_a_java_that_says_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", None, "hello")))
    with pytest.raises(SiteError, match="says nothing of a version"):
        find_java()
