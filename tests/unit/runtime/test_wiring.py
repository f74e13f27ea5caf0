"""A local store that cannot be trusted is dropped and made anew; any other trouble with it is passed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.errors import HalogError
from halog.runtime.wiring import open_store


def test_a_damaged_store_is_dropped_and_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store whose manifest is rubbish opens empty, with a warning that names the directory."""
    store = open_store(tmp_path / "A")
    store.write([(b"k", b"v")])
    store.close()
    for manifest in (tmp_path / "A").rglob("MANIFEST-*"):
        manifest.write_bytes(b"rubbish")
    again = open_store(tmp_path / "A")
    assert again.get(b"k") is None
    again.close()
    assert str(tmp_path / "A") in caplog.text
    assert "rebuilt from the log" in caplog.text


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    """A directory that holds other files is refused, and the files stay."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(HalogError, match=str(tmp_path)):
        open_store(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
