"""Writes that are whole, whenever a command is killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.certs.certificate import read_certificates
from halog.certs.directory import CertsDirectory, NewFile
from halog.certs.identity import HolderKind
from halog.certs.issuance import create, create_authority, renew
from halog.certs.keys import fits, read_key
from halog.errors import ConfigError, HalogError, RefusedError
from tests.unit.certs.conftest import CLUSTER, NOW, Made, holder
from tests.unit.certs.killed import killed_at_each_step

pytestmark = pytest.mark.feature("O4")


def pair_fits(directory: CertsDirectory, stem: str) -> bool:
    key, certificate = directory.place(f"{stem}.key"), directory.place(f"{stem}.crt")
    return fits(read_key(key), read_certificates(certificate)[0])


@pytest.fixture
def anew(tmp_path: Path) -> Callable[[], Made]:
    """A directory with a node's and a server's certificate, each time another one."""
    numbers = itertools.count()

    def prepare() -> Made:
        made = Made(tmp_path / str(next(numbers)))
        made.make("A")
        made.make("kafka", HolderKind.SERVER, "localhost")
        return made

    return prepare


@pytest.mark.parametrize("stem", ["node.A", "kafka"])
def test_a_renewal_that_is_killed_has_happened_or_not_once_the_next_command_writes(
    anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch, stem: str
) -> None:
    seen = set()

    def renewal(made: Made) -> None:
        renew(made.directory, [stem], CLUSTER, made.key, NOW)

    def prepare() -> Made:
        made = anew()
        was[made.directory.path] = made.text(f"{stem}.crt")
        return made

    was: dict[Path, str] = {}
    for made in killed_at_each_step(monkeypatch, prepare, renewal):
        before, place = was[made.directory.path], made.directory.place
        if not pair_fits(made.directory, stem):  # a reader keeps what it has: the certificate is still the former one
            assert made.text(f"{stem}.crt") == before
            assert place(f".{stem}.crt.new").exists()
            assert f"{stem}.crt" in made.directory.interrupted()
        with made.directory.writing():
            assert pair_fits(made.directory, stem)
        is_new = made.text(f"{stem}.crt") != before
        if stem == "kafka":
            assert made.text("kafka.pem") == made.text("kafka.key") + made.text("kafka.crt")
        left = [p.name for p in made.directory.path.iterdir() if p.name.startswith(".") and p.name != ".lock"]
        assert left == []
        seen.add(is_new)
    assert seen == {True, False}


def test_a_certificate_that_is_made_appears_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees the certificate finds the key; the command can be given again."""
    numbers = itertools.count()
    for made in killed_at_each_step(
        monkeypatch,
        lambda: Made(tmp_path / str(next(numbers))),
        lambda made: create(made.directory, holder(), made.key, NOW),
    ):
        assert not made.directory.place("node.A.crt").exists() or pair_fits(made.directory, "node.A")
        create(made.directory, holder(), made.key, NOW, overwrite=True)
        assert pair_fits(made.directory, "node.A")


def test_an_authority_that_was_killed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    for directory in killed_at_each_step(
        monkeypatch,
        lambda: CertsDirectory(tmp_path / str(next(numbers))),
        lambda directory: create_authority(directory, CLUSTER, NOW),
    ):
        with directory.writing():
            assert directory.place("ca.crt").exists() == directory.place("ca.key").exists()


def test_two_commands_do_not_write_at_the_same_time(made: Made) -> None:
    with made.directory.writing(), pytest.raises(RefusedError, match=r"another command writes there; nothing was ch"):
        made.make("A")
    made.make("A")


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="file: cannot be made a directory"),
        CertsDirectory(tmp_path / "file").writing(),
    ):
        pass
    with pytest.raises(ConfigError, match=r"none: there is no such directory.*--certs-dir.*create-ca"):
        CertsDirectory(tmp_path / "none").names()
    with pytest.raises(ConfigError, match="file: cannot be read: Not a directory"):
        CertsDirectory(tmp_path / "file").names()


def test_a_disk_that_takes_nothing_is_named_and_nothing_is_changed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.make("A")
    before = made.text("node.A.key"), made.text("node.A.crt")
    with monkeypatch.context() as patch, pytest.raises(HalogError, match=r"node\.A\.key: cannot be written: No space"):
        patch.setattr("os.fsync", _full)
        renew(made.directory, ["A"], CLUSTER, made.key, NOW)
    assert (made.text("node.A.key"), made.text("node.A.crt")) == before
    renew(made.directory, ["A"], CLUSTER, made.key, NOW)


def _full(number: int) -> None:
    raise OSError(28, "No space left on device")


def test_an_endless_file_is_not_read(made: Made) -> None:
    with made.directory.writing():
        made.directory.write(NewFile("node.A.crt", b"x" * 1_000_001))
    with pytest.raises(ConfigError, match=r"node\.A\.crt: is larger than 1000000 bytes"):
        read_certificates(made.directory.place("node.A.crt"))
