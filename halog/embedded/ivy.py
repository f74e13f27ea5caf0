"""This module runs Ivy in a process of its own. It turns Ivy's output into progress, and its failure into one
sentence."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from halog.embedded.progress import Progress
from halog.errors import SiteError

SILENCE_S = 90.0  # Ivy prints a line per file; if it is quiet for so long, the network swallows packets
ADVICE = "check the network (or set HALOG_IVY_SETTINGS to an Ivy settings file naming your mirror) and try again"


class IvyRequest(NamedTuple):
    """Says what Ivy fetches: its name in messages, the `ivy.xml` that asks for it, and the number of files."""

    what: str
    ivy_xml: str
    files: int


def run_ivy(
    java: str,
    ivy: Path,
    wanted: IvyRequest,
    scratch: Path,
    target: Path,
    progress: Progress,
    *,
    silence_s: float = SILENCE_S,
) -> None:
    """Fetch everything that is wanted into `target`. Ivy gets a cache of its own, so that nothing outdated is taken."""
    (scratch / "ivy.xml").write_text(wanted.ivy_xml)
    target.mkdir(mode=0o700)
    settings = os.environ.get("HALOG_IVY_SETTINGS")
    argv = [
        java,
        "-jar",
        str(ivy),
        *(["-settings", settings] if settings else []),
        "-cache",
        str(scratch / "ivy-cache"),
        "-ivy",
        str(scratch / "ivy.xml"),
        "-retrieve",
        f"{target}/[artifact]-[revision](-[classifier]).[ext]",
        "-confs",
        "default",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        lines = _follow(process, wanted, progress, silence_s)
        if process.wait() != 0:
            raise SiteError(f"cannot fetch {wanted.what} from Maven Central ({_reason(lines)}): {ADVICE}")
    finally:
        process.kill()
        process.wait()


def _follow(process: subprocess.Popen[bytes], wanted: IvyRequest, progress: Progress, silence_s: float) -> list[str]:
    """Read Ivy's output to the end; a file on its way or arrived is half a step."""
    assert process.stdout is not None
    lines: list[str] = []
    rest, steps, heard = b"", 0, time.monotonic()
    text, total = f"fetching {wanted.what} (once)", wanted.files
    progress.report(text, 0, total)
    while True:
        if select.select([process.stdout], [], [], 1.0)[0]:
            chunk = os.read(process.stdout.fileno(), 65_536)
            if not chunk:
                return lines
            heard = time.monotonic()
            *whole, rest = (rest + chunk).split(b"\n")
            new = [ln.decode(errors="replace").strip() for ln in whole]
            # a poms' line says "!name.pom(pom.original)", a jar's "!name.jar…"
            steps += sum("[SUCCESSFUL ]" in ln for ln in new)
            progress.report(text, min(steps // 2, total), total)
            lines += new
        elif time.monotonic() - heard > silence_s:
            raise SiteError(f"cannot fetch {wanted.what}: Maven Central is silent for {silence_s:.0f} s: {ADVICE}")


def _reason(lines: list[str]) -> str:
    """Return the line of Ivy's output that says most about the failure."""
    for pattern in (
        r"(Connection refused|UnknownHostException|timed out|Host .* not found).*",
        r"(unresolved dependency: .*)",
    ):
        for line in lines:
            if match := re.search(pattern, line):
                return match.group(0)[:160].strip(": \t")
    return next((ln for ln in reversed(lines) if ln), "no reason given")[:160]
