"""Several sites are begun when nothing stands against any of them, and none is left of those that were not all up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from halog.embedded import datadir
from halog.embedded.model import SiteInfo
from halog.embedded.several import check_root, start_all
from halog.embedded.site import EmbeddedSite
from halog.errors import SiteError

pytestmark = pytest.mark.feature("O3", "M5")


class Pretended:
    """A site that notes what is asked of it, and fails at one thing."""

    def __init__(self, name: str, said: list[str], fails: str = "", error: BaseException | None = None) -> None:
        self.name = name
        self.said = said
        self.fails = fails
        self.error = error or SiteError("no room", free_mb=1)
        self.up = False

    def _do(self, what: str) -> None:
        self.said.append(f"{what} {self.name}")
        if what == self.fails:
            raise self.error

    def check(self) -> None:
        self._do("check")

    def begin(self) -> None:
        self._do("begin")

    def begun(self) -> SiteInfo:
        self._do("begun")
        self.up = True
        return SiteInfo(self.name, self.name, self.name)

    def abandon(self) -> None:
        self._do("abandon")

    def ended(self) -> int | None:
        return None if self.up else 0

    def stop(self) -> None:
        self._do("stop")


def start(*sites: Pretended) -> dict[str, SiteInfo]:
    return start_all(cast(dict[str, EmbeddedSite], {site.name: site for site in sites}))


def test_all_are_begun_before_any_is_waited_for() -> None:
    said: list[str] = []
    infos = start(Pretended("west", said), Pretended("east", said))
    assert said == ["check west", "check east", "begin west", "begin east", "begun west", "begun east"]
    assert {name: info.bootstrap for name, info in infos.items()} == {"west": "west", "east": "east"}


def test_what_stands_against_the_last_keeps_the_first_from_being_begun() -> None:
    said: list[str] = []
    with pytest.raises(SiteError, match="site east: no room") as caught:
        start(Pretended("west", said), Pretended("east", said, "check"))
    assert said == ["check west", "check east"]
    assert caught.value.evidence == {"free_mb": 1}


@pytest.mark.parametrize("error", [SiteError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize(("fails", "stopped"), [("begin", []), ("begun", ["stop west"])])
def test_what_fails_takes_the_others_with_it_and_nobody_elses(error: Any, fails: str, stopped: list[str]) -> None:
    """The last one was not brought up here: whoever has done so keeps it."""
    said: list[str] = []
    with pytest.raises(type(error)):
        start(Pretended("west", said), Pretended("east", said, fails, error))
    assert {"abandon west", "abandon east"} <= set(said)
    assert [s for s in said if s.startswith("stop")] == stopped


def test_a_site_is_not_the_directory_of_several(tmp_path: Path) -> None:
    check_root(tmp_path / "none")
    datadir.prepare(tmp_path / "one")
    with pytest.raises(SiteError, match="is that of one site: choose another --data-dir"):
        check_root(tmp_path / "one")
