"""The table of what each combination survives says what the tests of the fault suite prove, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fates import EVENTS, Fate, fate
from tests.faults.kinds import COMBINATIONS, POLICIES

pytestmark = pytest.mark.feature("R6")

GUIDE = (Path(__file__).parents[3] / "docs/guides/durability.md").read_text()
SAYS = {"yes": Fate.SERVED, "kept": Fate.KEPT, "no": Fate.LOST}


def rows() -> dict[tuple[str, str], list[str]]:
    """What the guide says of each combination, column by column."""
    found: dict[tuple[str, str], list[str]] = {}
    table = GUIDE.partition("| local_sync | remote_sync |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        local, remotes, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for remote in POLICIES if remotes == "any" else remotes.split(", "):
            assert (local.strip("`"), remote.strip("`")) not in found
            found[local.strip("`"), remote.strip("`")] = cells
    return found


@pytest.mark.parametrize(("local", "remote"), COMBINATIONS)
def test_the_guide_says_what_is_proved(local: str, remote: str) -> None:
    said = [SAYS[cell.partition(":")[0]] for cell in rows()[local, remote]]
    assert said == [fate(local, remote, event) for event in EVENTS]
