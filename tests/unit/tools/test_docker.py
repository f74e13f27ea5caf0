"""`tools/docker.sh` where a dockerd was killed: its files are there, and its numbers may be those of others by now. And
where compose v2 comes from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools/docker.sh"

PROGRAMS = {
    "docker": """
case "$1" in
    info) [ -e "$HALOG_DOCKER_RUN/up" ] ;;
    compose) [ -e ~/.docker/cli-plugins/docker-compose ] ;;
esac""",
    "dockerd": """
for file in docker.pid docker/containerd/containerd.pid; do # as the real one: any process of that number will do
    if [ -f "$HALOG_DOCKER_RUN/$file" ] && kill -0 "$(cat "$HALOG_DOCKER_RUN/$file")"; then
        echo "$file: still running"
        exit 1
    fi
done
touch "$HALOG_DOCKER_RUN/up"
sleep 1""",
    "iptables": "",
    "id": "echo 0",
    "apt-get": """
[ -e "$HALOG_DOCKER_RUN/reachable" ] || exit 100
for word; do last=$word; done
[ "$last" = update ] || touch "$last"_2.26.1_amd64.deb""",
    "dpkg-deb": "mkdir -p usr/libexec/docker/cli-plugins; touch usr/libexec/docker/cli-plugins/docker-compose",
    "go": "echo no module >&2; exit 1",
}
FILES = ("docker.pid", "docker/containerd/containerd.pid")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where such programs are, and what a killed dockerd has left."""
    (tmp_path / "bin").mkdir()
    for name, does in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "docker/containerd").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def other() -> Iterator[str]:
    """The number of a process that is no dockerd."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield str(process.pid)
        process.kill()


def ran(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{here}/bin:{os.environ['PATH']}", "HALOG_DOCKER_RUN": str(here), "HOME": str(here)}
    argv = ["sh", str(SCRIPT), *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.feature("O3")
@pytest.mark.parametrize("file", FILES)
def test_the_number_of_a_killed_one_that_another_process_has_is_in_nobodys_way(
    here: Path, other: str, file: str
) -> None:
    (here / file).write_text(other)
    done = ran(here)
    assert done.returncode == 0, done.stderr
    assert (here / "up").exists()
    assert not (here / file).exists()


@pytest.mark.feature("O3")
def test_the_file_of_one_that_runs_is_left_to_it(here: Path) -> None:
    """It does not answer, and stays what it is: nobody starts a second one beside it."""
    program = here / "runs/dockerd"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        (here / "docker.pid").write_text(f"{process.pid}\n")
        done = ran(here)
        process.kill()
    assert (done.returncode, (here / "docker.pid").read_text()) == (1, f"{process.pid}\n")
    assert "dockerd does not start: docker.pid: still running" in done.stderr


@pytest.mark.feature("O3")
def test_compose_comes_out_of_debians_package(here: Path) -> None:
    """In seconds, where a build takes ten minutes; once."""
    for name in ("up", "reachable"):
        (here / name).touch()
    done = ran(here, "quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / ".docker/cli-plugins/docker-compose").exists()
    (here / "reachable").unlink()
    assert ran(here, "compose").stderr == ""


@pytest.mark.feature("O3")
@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("quick", 0, "docker: no docker compose (v2) to be had in seconds: its tests will say so and skip\n"),
        ("compose", 1, "docker: building docker compose v2.29.7 (ten minutes, once)\ndocker: go: no module\n"),
    ],
)
def test_compose_that_cannot_be_had_in_seconds_is_built_where_it_is_asked_for(
    here: Path, word: str, code: int, said: str
) -> None:
    (here / "up").touch()
    done = ran(here, word)
    assert (done.returncode, done.stderr) == (code, said)
    assert not (here / ".docker/cli-plugins/docker-compose").exists()
