"""The prose of the documents: lines that fit a screen, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
LONGEST = 140
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, but for code blocks and tables."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


def anchors(path: Path) -> set[str]:
    """What a link into the document may name, as GitHub makes it of headings."""
    titles = [line.lstrip("#").strip().lower() for _, line in prose(path) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_lines_fit_a_screen(name: str) -> None:
    long = [number for number, line in prose(ROOT / name) if len(line) > LONGEST]
    assert not long, f"{name}: lines of more than {LONGEST} characters: {long}"


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    path, broken = ROOT / name, []
    in_code = False
    for line in path.read_text().splitlines():
        in_code ^= line.lstrip().startswith("```")
        for link in _LINK.findall("" if in_code else re.sub(r"`[^`]*`", "", line)):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            is_there = "://" in link or (target.exists() and (not anchor or anchor in anchors(target)))
            broken += [] if is_there else [link]
    assert not broken, f"{name} links to what is not there: {broken}"
