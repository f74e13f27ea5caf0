"""What these tests need of this machine's Docker, or why they cannot run here."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound

LOCAL_BASE = "halog-base"
"""What `tools/docker.sh` makes where no registry is reachable: Java, Python and bash."""
PUBLIC_BASES = {
    "kafka": "eclipse-temurin:17-jre", "zookeeper": "eclipse-temurin:17-jre",
    "node": "python:3.11-slim", "spark": "python:3.11-slim",
}  # fmt: skip
LABEL = "halog.site"
"""On everything a run makes: the process id of the run."""


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


def remove_leftovers() -> None:
    """What a run that was killed left behind: nothing else ends its containers."""
    with closing(docker.from_env()) as client:
        found: list[Any] = client.containers.list(all=True, filters={"label": LABEL})
        for one in found:
            if _is_left(one.labels):
                one.remove(force=True, v=True)
        for network in client.networks.list(filters={"label": LABEL}):
            if _is_left(network.attrs["Labels"]):
                network.remove()


def _is_left(labels: dict[str, str]) -> bool:
    return not os.path.exists(f"/proc/{labels[LABEL]}")


if __name__ == "__main__":  # tools/compose.sh asks
    print(base(sys.argv[1]) or PUBLIC_BASES[sys.argv[1]])
