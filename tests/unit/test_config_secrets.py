"""Secrets: found where the configuration says, and shown by no text."""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
from pathlib import Path

import pytest

from halog.config import secrets
from halog.config.secrets import Secret, SecretPlace
from halog.errors import ConfigError

VALUE = "s3cret-päss word"
KEY = "security.kafka.password"


@pytest.mark.feature("Q5")
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_holds_it_with_or_without_an_end_of_line(tmp_path: Path, end: str) -> None:
    (tmp_path / "password").write_bytes(f"{VALUE}{end}".encode())
    assert SecretPlace(file=tmp_path / "password").read(KEY) == Secret(VALUE)


@pytest.mark.feature("Q5")
def test_one_end_of_line_belongs_to_the_file_and_a_second_one_to_the_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f" {VALUE} \n\n")
    assert SecretPlace(file=tmp_path / "password").read(KEY).reveal() == f" {VALUE} \n"


@pytest.mark.feature("Q5")
def test_a_variable_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOG_TEST_PASSWORD", VALUE)
    assert SecretPlace(env="HALOG_TEST_PASSWORD").read(KEY).reveal() == VALUE


@pytest.mark.feature("Q5")
def test_a_command_prints_it() -> None:
    code = f"import sys; sys.stdout.buffer.write({VALUE!r}.encode() + b'\\n'); print('a warning', file=sys.stderr)"
    assert SecretPlace(command=(sys.executable, "-c", code)).read(KEY).reveal() == VALUE


@pytest.mark.feature("Q5")
def test_no_text_shows_it() -> None:
    secret = Secret(VALUE)
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", "%s" % secret, repr({"password": secret})):  # noqa: UP031
        assert VALUE not in text
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError, match="not copied"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="not copied"):
        copy.deepcopy(secret)


@pytest.mark.feature("Q5")
def test_one_is_another_only_with_the_same_value() -> None:
    assert Secret(VALUE) != Secret("another")
    assert Secret(VALUE) != VALUE
    assert len({Secret(VALUE), Secret(VALUE), Secret("another")}) == 2


def refused(place: SecretPlace) -> str:
    with pytest.raises(ConfigError) as e:
        place.read(KEY)
    said = "".join(traceback.format_exception(e.value))
    assert VALUE not in said
    assert str(e.value).startswith(f"{KEY}: ")
    return str(e.value)


@pytest.mark.feature("Q5")
def test_what_cannot_be_read_is_named_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    assert refused(SecretPlace(file=absent)) == f"{KEY}: file {absent} cannot be read: No such file or directory"
    assert "Is a directory" in refused(SecretPlace(file=tmp_path))
    monkeypatch.delenv("HALOG_TEST_PASSWORD", raising=False)
    assert refused(SecretPlace(env="HALOG_TEST_PASSWORD")) == f"{KEY}: variable HALOG_TEST_PASSWORD is empty"
    assert "cannot be read: No such file" in refused(SecretPlace(command=("/no/such/program",)))
    code = "import os; print(os.environ['HALOG_TEST_PASSWORD']); raise SystemExit(3)"
    monkeypatch.setenv("HALOG_TEST_PASSWORD", VALUE)
    assert refused(SecretPlace(command=(sys.executable, "-c", code))) == f"{KEY}: {sys.executable} ended with 3"


@pytest.mark.feature("Q5")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (VALUE.encode("latin-1"), "is not UTF-8 text"),
        (VALUE.encode() + b"\0", "holds a zero byte"),
        (VALUE.encode() * 5_000, "has more than 65536 bytes"),
    ],
)
def test_what_is_no_secret_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "password").write_bytes(data)
    assert said in refused(SecretPlace(file=tmp_path / "password"))


@pytest.mark.feature("Q5")
def test_an_endless_file_ends() -> None:
    assert "has more than" in refused(SecretPlace(file=Path("/dev/zero")))


@pytest.mark.feature("Q5")
def test_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(secrets, "COMMAND_S", 0.5)
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    assert "did not end within" in refused(SecretPlace(command=(sys.executable, "-S", "-c", code)))
    pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not pid or not Path("/proc", pid).exists()


@pytest.mark.feature("Q5")
@pytest.mark.parametrize(
    ("place", "said"),
    [
        (SecretPlace(), [(KEY, "none")]),
        (SecretPlace(file=Path("x"), env="Y"), [(KEY, "file and env")]),
        (SecretPlace(env=""), [(f"{KEY}.env", "empty")]),
        (SecretPlace(command=()), [(f"{KEY}.command", "a program")]),
        (SecretPlace(command=("",)), [(f"{KEY}.command", "a program")]),
        (SecretPlace(env="Y"), []),
    ],
)
def test_exactly_one_place_is_given(place: SecretPlace, said: list[tuple[str, str]]) -> None:
    found = list(place.problems(KEY))
    assert [key for key, _ in found] == [key for key, _ in said]
    assert all(text in reason for (_, reason), (_, text) in zip(found, said, strict=True))
