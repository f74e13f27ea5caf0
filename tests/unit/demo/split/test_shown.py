"""What is shown of a split: one document of exactly the agreed keys, a table that says the same, and a live picture;
and what the totals' trigger says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from halog.demo.scene import NodeScene
from halog.demo.split import reading
from halog.demo.split.model import totals
from halog.demo.split.picture import draw, progress_line
from halog.demo.split.report import report
from halog.demo.split.result import AcknowledgedWrites, Conflicts, SplitResult, Timings
from halog.demo.split.scene import CUT, SplitScene
from halog.demo.split.verify import ReportedConflict
from restore.compensation import Conflict, KeepInitiating, Replace
from restore.merge import Kind

RESULT = SplitResult(
    True,
    0,
    AcknowledgedWrites(1_700, 300),
    1_500,
    400,
    Conflicts(5, 4, 3, 2),
    undone_equal=True,
    timings=Timings(2.5, 1.25, 0.5),
)


def test_the_document_has_exactly_the_agreed_keys() -> None:
    assert SplitResult().to_dict() == {
        "ok": False,
        "unaccounted": 0,
        "acknowledged": {"west": 0, "east": 0},
        "merged": 0,
        "superseded": 0,
        "conflicts": {"instance_added": 0, "key": 0, "state": 0, "delete_update": 0},
        "undone_equal": False,
        "timings": {"cut_to_serve": None, "restore": None, "follow": None},
    }


def printed(result: SplitResult, scene: SplitScene) -> str:
    out = io.StringIO()
    report(result, scene, Console(file=out, width=120))
    return out.getvalue()


def test_the_table_says_the_same_to_people() -> None:
    text = printed(RESULT, SplitScene(100))
    for said in ("2,000", "1,700 at west, 300 at east", "1,500", "equal", "2.5 s", "1.2 s", "0.5 s", "ok: no ack"):
        assert said in text
    assert "100" in text.split("overruled")[1].splitlines()[0]


def test_what_was_wrong_is_repeated_at_the_end() -> None:
    scene = SplitScene(100)
    scene.tell("WRONG: departure X is lost")
    text = printed(SplitResult(unaccounted=1), scene)
    assert "NOT ok" in text
    assert "departure X is lost" in text


def test_the_picture_shows_both_sites_and_the_line_between_them() -> None:
    scene = SplitScene(100, phase="both sites go on")
    scene.line = CUT
    scene.serves["west"] = 4
    scene.sites["west"].nodes["west-1"] = NodeScene("up", 4711)
    scene.tell("the line is cut")
    out = io.StringIO()
    Console(file=out, width=140).print(draw(scene))
    for said in ("both sites go on", "west: serves 4 partitions", "east: mirrors", "cut", "west-1", "4711"):
        assert said in out.getvalue()
    assert "line cut" in progress_line(scene)
    assert "west serves 4" in progress_line(scene)


# --- the trigger ---


def aircraft(*sums: int) -> dict[str, object]:
    return {"tail": "N1", "landings": sums[0], "miles": sums[1], "minutes": sums[2]}


@pytest.mark.parametrize("kind", [Kind.STATE_CONFLICT, Kind.ALIKE])
def test_what_both_sites_added_is_in_the_sum(kind: Kind) -> None:
    found = Conflict("Aircraft", {}, kind, aircraft(5, 50, 100), aircraft(7, 90, 160), aircraft(6, 60, 110), 1, 1)
    assert totals(found) == Replace(aircraft(8, 100, 170))


def test_an_aircraft_that_both_met_for_the_first_time_has_done_what_both_counted() -> None:
    found = Conflict("Aircraft", {}, Kind.KEY_CONFLICT, None, aircraft(2, 20, 30), aircraft(1, 5, 7), 1, 1)
    assert totals(found) == Replace(aircraft(3, 25, 37))


def test_one_that_only_one_site_met_is_added() -> None:
    found = Conflict("Aircraft", {}, Kind.INSTANCE_ADDED, None, None, aircraft(1, 5, 7), 0, 1)
    assert totals(found) == KeepInitiating()


# --- the report of a merge ---


def test_departures_are_found_in_a_report(tmp_path: Path) -> None:
    line = (
        '{"type": "Departure", "key": ["2013-01-01T10:00:00Z", "UA", 1, "N1"], "is": "update delete", "source": '
        '{"ref": "00", "fields": {"gate": "J1", "status": "moved", "by": "east-1"}}, "initiating": null}'
    )
    other = '{"type": "Aircraft", "key": ["N1"], "is": "state conflict", "source": null, "initiating": null}'
    (tmp_path / "r").write_text(f"{line}\n{other}\n")
    objects = reading.exported(tmp_path / "r")
    assert reading.reported(objects) == {
        "2013-01-01T10:00 UA 1 N1": ReportedConflict("update delete", "J1 moved east-1", "")
    }
    assert ("Aircraft", '["N1"]', "state conflict") in reading.named(objects)
