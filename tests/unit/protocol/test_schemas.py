"""The schemas of docs/protocol/ are what the code writes; a stale one fails here."""

from __future__ import annotations

from tools.schemas import FOLDER, documents


def test_the_files_are_what_the_code_writes() -> None:
    found = {path.name: path.read_text() for path in FOLDER.glob("*.avsc")}
    assert found == documents(), "run `python -m tools.schemas`"


def test_the_document_names_every_kind() -> None:
    text = FOLDER.with_suffix(".md").read_text()
    missing = [name for name in documents() if f"protocol/{name}" not in text]
    assert not missing
