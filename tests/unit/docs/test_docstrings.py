"""Each docstring of halog begins with a sentence that has a subject and a verb, as tools/docstrings.py judges it.

The packages beside it are looked at, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docstrings import ROOT, docstrings, first_sentence, has_verb, headless

pytestmark = pytest.mark.feature("O1")

PACKAGES = ("halog", "mappers", "restore", "spark_jobs")


@pytest.mark.parametrize(
    "text",
    [
        "Of one copy.",
        "A `Copy` of one partition.",
        "One per partition: its offsets.",
        "The registered nodes, by name.",
        "The nodes that are up.",
        "A `Copy` as its node has it.",
        "What comes behind that, without end.",
        "Whether a supervisor lives there now.",
        "As Prometheus reads it; see there.",
        "All that there is.",
        "Who is up, and whether this node has a quorum, from before it is heard of; a loop.",
        "`stage.py`: the servers of a run.",
        "",
    ],
)
def test_a_bad_example_is_refused(text: str) -> None:
    assert not has_verb(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return the nodes that are up.",
        "Returns the registered nodes, by name.",
        "A copy follows the log of one partition.",
        "This is what a copy asks of its node.",
        "Says whether a supervisor runs in this directory.",
        "Is this address one of all interfaces?",
        "This module ends a transaction.",
        "A `KeyField` guards a key field: it is set once.",
        "This module says what counts in a log.",
        "A `Floor` names nodes that are to have so many together.",
        "`RowSink` writes rows to a file (O1); it never overwrites one.",
        "The node that was asked knows a later epoch than this one.",
    ],
)
def test_a_good_example_is_taken(text: str) -> None:
    assert has_verb(text)


def test_the_first_sentence_ends_where_a_reader_stops() -> None:
    assert first_sentence("Reads `a.b` (P1) twice;\nthen stops. Never more.") == "Reads Thing twice;"


def test_the_docstrings_of_a_file_are_found(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text('"""Of one copy."""\nclass A:\n    """It runs."""\n    def f(self):\n        """The row."""\n')
    assert [(d.name, d.line) for d in docstrings(file)] == [("", 1), ("A", 2), ("f", 4)]
    assert [d.name for d in headless(tmp_path)] == ["", "f"]


def test_every_docstring_has_a_subject_and_a_verb() -> None:
    files = [f for name in PACKAGES for f in sorted((ROOT / name).rglob("*.py"))]
    assert [f"{d.path.relative_to(ROOT)}:{d.line}: {first_sentence(d.text)}" for f in files for d in headless(f)] == []
