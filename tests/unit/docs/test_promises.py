"""The promises have one list, docs/architecture.md; what `build/faults.json` calls them stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.promises import PROMISES

pytestmark = pytest.mark.feature("R1")

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "docs/architecture.md").read_text().partition("\n## Promises\n")[2]
ENTRY = re.compile(r"^(\d+)\. (.*?)(?=\n\d+\. |\n\n)", re.M | re.S)
LISTED = {int(number): " ".join(text.split()) for number, text in ENTRY.findall(SECTION)}


def test_both_have_the_same_numbers() -> None:
    assert list(LISTED) == list(PROMISES) == list(range(1, len(PROMISES) + 1))


@pytest.mark.parametrize("number", PROMISES)
def test_each_is_called_as_it_stands_in_the_docs(number: int) -> None:
    assert LISTED[number].startswith(PROMISES[number])


def test_the_markers_of_the_fault_suite_are_of_this_list() -> None:
    used = {
        int(number)
        for file in (ROOT / "tests/faults").glob("test_*.py")
        for number in re.findall(r"mark\.promise\((\d+)\)", file.read_text())
    }
    assert used == PROMISES.keys() - {6, 7}, "promises.py says of which there is no fault here"
