"""What these tests need of this machine's Docker, or why they cannot run here."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

LOCAL_BASE = "halog-base"
"""What `tools/docker.sh` makes where no registry is reachable: Java, Python and bash."""
PUBLIC_BASES = {
    "kafka": "eclipse-temurin:17-jre",
    "zookeeper": "eclipse-temurin:17-jre",
    "node": "python:3.11-slim",
    "spark": "python:3.11-slim",
}
LABEL = "halog.site"
"""On everything a run makes: the run's name."""
PROJECT = "halog-test-"
"""Before the run's name, that of its compose project; compose labels with it what it makes."""
_PROJECT_LABEL = "com.docker.compose.project"


def base(name: str) -> str | None:
    """The image to build `name` on, of those that are here."""
    said = os.environ.get("HALOG_PYTHON_IMAGE" if name in ("node", "spark") else "HALOG_JRE_IMAGE")
    with closing(docker.from_env()) as client:
        for image in [said] if said else [PUBLIC_BASES[name], LOCAL_BASE]:
            try:
                client.images.get(image)
            except ImageNotFound:
                continue
            return image
    return None


def why_not(*names: str) -> str | None:
    """Why no container can be started here; None: they can."""
    try:
        with closing(docker.from_env(timeout=10)) as client:
            client.ping()
        missing = [n for n in names if base(n) is None]
    except (DockerException, OSError) as e:
        return f"Docker does not run here (tools/docker.sh installs and starts it): {_first_line(e)}"
    if missing:
        return f"no image to build {', '.join(missing)} on: tools/docker.sh makes {LOCAL_BASE}"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def run_name() -> str:
    """Of this process: its number, which another one may have later, and when it began."""
    return f"{os.getpid()}-{_began(os.getpid())}"


def is_left(run: str) -> bool:
    """Has the process of this name ended?"""
    pid, _, began = run.partition("-")
    return _began(int(pid)) != began


def _began(pid: int) -> str:
    """In clock ticks since the machine started; "": there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def remove_leftovers() -> None:
    """What a run that was killed left behind: nothing else ends its containers."""
    with closing(docker.from_env()) as client:
        for one in client.containers.list(all=True):
            if _of_an_ended_run(one.labels):
                one.remove(force=True, v=True)
        for kind in (client.networks, client.volumes):
            for one in kind.list():
                if _of_an_ended_run(one.attrs["Labels"] or {}):
                    one.remove()


def _of_an_ended_run(labels: dict[str, str]) -> bool:
    project = labels.get(_PROJECT_LABEL, "")
    run = labels.get(LABEL) or (project.removeprefix(PROJECT) if project.startswith(PROJECT) else "")
    return bool(run) and is_left(run)


if __name__ == "__main__":  # tools/compose.sh asks
    print(base(sys.argv[1]) or PUBLIC_BASES[sys.argv[1]])
