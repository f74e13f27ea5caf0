"""A password that is replaced while clients run (N5, O4)."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from halog.adapters.kafka import conf, passwords
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.passwords import PasswordWatch
from halog.config.kafka_security import SASL_PLAINTEXT, KafkaSecurity
from halog.config.secrets import SecretPlace


class Client:
    """Keeps what it is told."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.shown = settings["sasl.username"], settings["sasl.password"]

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.shown = username, password


def access(password: SecretPlace, mechanism: str = "SCRAM-SHA-512") -> KafkaAccess:
    return KafkaAccess("127.0.0.1:1", KafkaSecurity(SASL_PLAINTEXT, mechanism, username="halog", password=password))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "word"
    made.write_text("first")
    return made


def replaced(file: Path, text: str) -> None:
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)


@pytest.mark.feature("N5", "O4")
def test_clients_that_live_are_given_the_new_one_and_those_to_come_read_it(file: Path) -> None:
    there = access(SecretPlace(file=file))
    watch = PasswordWatch(there)
    first, other = (
        conf.client(Client, there, KafkaAccess.librdkafka),
        conf.client(Client, there, KafkaAccess.librdkafka),
    )
    assert not watch.look()
    replaced(file, "second")
    assert watch.look()
    assert first.shown == other.shown == ("halog", "second")
    assert not watch.look()
    assert conf.client(Client, there, KafkaAccess.librdkafka).shown == ("halog", "second")


@pytest.mark.feature("N5", "O4")
def test_a_file_that_is_replaced_while_a_client_is_made_is_not_missed(file: Path) -> None:
    there = access(SecretPlace(file=file))
    watch = PasswordWatch(there)

    def settings(of: KafkaAccess) -> dict[str, Any]:
        read = of.librdkafka()
        replaced(file, "second")
        assert not watch.look(), "nobody can be told yet"
        return read

    client = conf.client(Client, there, settings)
    assert client.shown == ("halog", "first")
    assert watch.look()
    assert client.shown == ("halog", "second")


@pytest.mark.feature("N5", "O4")
@pytest.mark.parametrize("text", ["", "a\0b"])
def test_a_file_that_cannot_be_used_changes_nothing(file: Path, text: str) -> None:
    there = access(SecretPlace(file=file))
    watch = PasswordWatch(there)
    client = conf.client(Client, there, KafkaAccess.librdkafka)
    replaced(file, text)
    assert not watch.look()
    assert client.shown == ("halog", "first")
    file.unlink()
    assert not watch.look()
    replaced(file, "second")
    assert watch.look()
    assert client.shown == ("halog", "second")


@pytest.mark.feature("N5", "O4")
def test_a_client_is_not_kept_alive_and_one_of_the_library_is_followed(file: Path) -> None:
    there = access(SecretPlace(file=file))
    producer: Any = conf.client(Producer, there, lambda a: {**a.librdkafka(), "log_level": 0})
    assert isinstance(producer, Producer)
    assert len(passwords._living[there]) == 1
    replaced(file, "second")
    del producer
    gc.collect()
    assert len(passwords._living[there]) == 0


@pytest.mark.feature("N5", "O4")
def test_what_stands_in_no_file_is_not_looked_at(file: Path) -> None:
    assert not passwords.may_change(access(SecretPlace(env="WORD")))
    assert not passwords.may_change(KafkaAccess("127.0.0.1:1"))
    assert passwords.may_change(access(SecretPlace(file=file)))
