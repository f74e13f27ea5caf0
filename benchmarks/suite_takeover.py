"""A site is lost, all of it at once or the line to it: how long until the other one serves, in each way it can come to.

"The operator's command" begins when the site is lost, which is as fast as an operator could be. Takeover by votes
needs nobody: it may begin once nothing was heard of the site for `takeover_after_ms`, here the least that is allowed;
the default is five times that. Each time is from the loss to the first commit of a client of the other site, in every
partition; each round has servers of its own, since a site that was lost is not used again.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.effort import Effort
from benchmarks.figures import Row, row
from benchmarks.processes import Child, ChildError
from benchmarks.scene import Scene, wait_until
from benchmarks.suite_sites import KIND, level, promote, site_config
from halog.config import load_config
from halog.config.sites import TAKEOVER_MS
from halog.demo.split.sites import NAMES, SplitSites
from halog.demo.split.steps import EAST, WEST
from halog.embedded.progress import LogProgress

OBJECTS: Final = 100
VOTES: Final = {WEST: 1, EAST: 2}
"""Two sites cannot both be more than half: the one that is to take over by itself has more votes."""
AGAIN_S: Final = 0.01
"""Between two attempts of who waits for the other site: small beside what is measured."""
WAIT_S: Final = 60.0


class Loss(NamedTuple):
    """What happens, and who takes over."""

    name: str
    killed: bool
    """The site's node, its Kafka and its ZooKeeper, by SIGKILL; or the line is cut, and connections stay, silent."""
    votes: bool


LOSSES: Final = (
    Loss("a site is killed; the other one takes over by votes", True, True),
    Loss("the line to it is cut; the other one takes over by votes", False, True),
    Loss("a site is killed; the operator's command", True, False),
    Loss("the line to it is cut; the operator's command", False, False),
)


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """A row for each way."""
    scene.end_all()
    rows = []
    for number, loss in enumerate(LOSSES):
        took = [_round(scene, loss, f"lost{number}x{i}") for i in range(effort.restores)]
        after = f", after {TAKEOVER_MS[0]:,} ms of silence" if loss.votes else ""
        rows.append(row(f"{loss.name}{after}, to the first commit", "s", took, client_in="a node of the other site"))
    return rows


def _round(scene: Scene, loss: Loss, name: str) -> float:
    """Seconds."""
    sites = SplitSites(scene.directory / name, LogProgress())
    sites.start()
    try:
        configs = {site: _config(scene, sites, site, name, votes=loss.votes) for site in NAMES}
        apps = {site: scene.app(configs[site], f"{site}-1") for site in NAMES}
        for app in apps.values():
            app.ask("open")
        wait_until("west serves", lambda: all(t["serving"] for t in apps[WEST].ask("state").values()))
        apps[WEST].ask("load", kind=KIND, first=0, count=OBJECTS)
        level(apps)
        begin = time.perf_counter()
        _lose(loss, scene, sites, apps)
        if not loss.votes:
            promote(configs[EAST], may_fork=True)
        _first_commits(apps[EAST], begin + WAIT_S)
        return time.perf_counter() - begin
    finally:
        sites.heal()
        scene.end_all()
        sites.stop()


def _lose(loss: Loss, scene: Scene, sites: SplitSites, apps: dict[str, Child]) -> None:
    if not loss.killed:
        sites.cut()
        return
    for pid in (apps[WEST].pid, *sites.infos[WEST].pids.values()):
        os.kill(pid, signal.SIGKILL)
    scene.end(apps.pop(WEST), kill=True)


def _first_commits(app: Child, until: float) -> None:
    """In every partition: the objects are spread over all of them."""
    while True:
        try:
            app.ask("change", kind=KIND, first=0, count=OBJECTS)
        except ChildError:
            if time.perf_counter() > until:
                raise
            time.sleep(AGAIN_S)
        else:
            return


def _config(scene: Scene, sites: SplitSites, site: str, name: str, *, votes: bool) -> Path:
    path = site_config(scene, sites, site, name)
    if votes:
        made = load_config(path)
        policy = replace(made.policies["kept"], takeover="quorum", takeover_after_ms=TAKEOVER_MS[0])
        others = {n: replace(there, votes=VOTES[n]) for n, there in made.sites.items()}
        own = replace(made.site, votes=VOTES[site])
        path.write_text(replace(made, site=own, sites=others, policies={"kept": policy}).to_toml())
    return path
