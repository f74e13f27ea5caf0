"""A log on a broker with TLS, by password, certificate and token; and what the broker refuses (O4, Q5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.cli.main import main
from halog.config.secrets import SecretPlace
from halog.errors import ConfigError, UnauthorizedError, UnreachableError
from halog.ports import TopicPartition
from tests.contract.rigs import appended, new_topic
from tests.secured import USER, SecuredSite, token

REFUSED_S = 15.0
ANSWER_S = 0.5


def _goes_round(access: KafkaAccess) -> None:
    log = KafkaLog(access, tells_refusal=True)
    try:
        tp = new_topic(log)
        assert appended(log.session(), tp, b"a", b"b", timeout_s=30) == [0, 1]
        assert [entry.value for entry in log.read(tp, 0, 2, 30)] == [b"a", b"b"]
        log.put(TopicPartition(new_topic(log, compacted=True).topic, 0), b"k", b"v")
    finally:
        log.close()


@pytest.mark.feature("O4")
def test_a_log_is_written_and_read_by_password(secured: SecuredSite) -> None:
    _goes_round(secured.by_password())


@pytest.mark.feature("O4")
def test_a_log_is_written_and_read_by_certificate(secured: SecuredSite) -> None:
    _goes_round(secured.by_certificate())


@pytest.mark.long
@pytest.mark.feature("O4")
def test_a_log_is_written_and_read_by_token(secured: SecuredSite, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token(USER))
    _goes_round(secured.by_token(tmp_path / "token"))


@pytest.mark.feature("O4")
@pytest.mark.long
def test_a_token_is_read_again_before_it_ends(secured: SecuredSite, tmp_path: Path) -> None:
    """librdkafka asks for the next one when most of its time is over."""
    file = tmp_path / "token"
    file.write_text(token(USER, 20))
    log = KafkaLog(secured.by_token(file))
    try:
        tp = new_topic(log)
        session = log.session()
        appended(session, tp, b"a", timeout_s=30)
        file.write_text(token(USER, 3600))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            appended(session, tp, b"b", timeout_s=30)
            time.sleep(0.5)
        assert session.failed is None
    finally:
        log.close()


def _wrong_password(secured: SecuredSite, directory: Path) -> KafkaAccess:
    (directory / "wrong").write_text("geheim")
    return secured.by_password(password=SecretPlace(file=directory / "wrong"))


def _unknown_user(secured: SecuredSite, directory: Path) -> KafkaAccess:
    return secured.by_password(username="eve")


def _unknown_authority(secured: SecuredSite, directory: Path) -> KafkaAccess:
    assert main(["certs", "create-ca", "--cluster", "fleet", "--certs-dir", str(directory / "other")]) == 0
    return secured.by_password(ca=directory / "other" / "ca.crt")


def _other_host(secured: SecuredSite, directory: Path) -> KafkaAccess:
    return replace(secured.by_password(), servers=secured.sasl_ssl.replace("127.0.0.1", "localhost"))


def _no_certificate(secured: SecuredSite, directory: Path) -> KafkaAccess:
    access = secured.by_certificate()
    return replace(access, security=replace(access.security, cert=None, key=None))


def _other_mechanism(secured: SecuredSite, directory: Path) -> KafkaAccess:
    access = secured.by_password()
    return replace(access, security=replace(access.security, mechanism="SCRAM-SHA-256"))


@pytest.mark.feature("O4", "Q5")
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (_wrong_password, "does not let user halog in: SASL authentication error"),
        pytest.param(_unknown_user, "does not let user eve in: SASL authentication error", marks=pytest.mark.long),
        (_unknown_authority, "has a certificate that is not trusted"),
        pytest.param(_other_host, "has a certificate that is not trusted", marks=pytest.mark.long),
        (_no_certificate, "does not let this process in: .*alert bad certificate"),
        pytest.param(_other_mechanism, "does not let user halog in: .*Unsupported", marks=pytest.mark.long),
    ],
)
def test_who_is_refused_is_told_why_in_time(
    secured: SecuredSite, tmp_path: Path, made: Callable[[SecuredSite, Path], KafkaAccess], why: str
) -> None:
    """One that starts is told at its first look; one that runs with each request, as of a broker that is away."""
    access = made(secured, tmp_path)
    started = time.monotonic()
    with pytest.raises(UnauthorizedError, match=rf"^Kafka at \S+ {why}") as caught:
        KafkaLog(access, tells_refusal=True).partitions("t")
    assert time.monotonic() - started < REFUSED_S
    assert "geheim" not in str(caught.value)
    running = KafkaLog(access, answer_s=ANSWER_S)
    for ask in (lambda: running.partitions("t"), lambda: running.bounds(TopicPartition("t", 0))):
        with pytest.raises(UnreachableError, match=rf"^Kafka at \S+ {why}"):
            ask()
    running.close()


@pytest.mark.feature("O4", "Q5")
def test_what_an_acl_forbids_is_told_by_name(secured: SecuredSite) -> None:
    log = KafkaLog(secured.by_password(), tells_refusal=True)
    tp = new_topic(log)
    api: Any = kafka_admin
    client = api.AdminClient({"bootstrap.servers": secured.site.info.bootstrap})
    topic = api.ResourceType.TOPIC
    literal, deny = api.ResourcePatternType.LITERAL, api.AclPermissionType.DENY
    denied = [
        api.AclBinding(topic, tp.topic, literal, f"User:{USER}", "*", api.AclOperation.ALL, deny),
        api.AclBinding(topic, "forbidden", literal, f"User:{USER}", "*", api.AclOperation.ALL, deny),
    ]
    for done in client.create_acls(denied).values():
        done.result(30)
    try:
        with pytest.raises(UnreachableError, match=rf"does not allow user {USER} .*brokers' ACLs"):
            log.bounds(tp)
        with pytest.raises(UnauthorizedError, match=rf"does not allow user {USER} .*brokers' ACLs"):
            log.ensure_topic("forbidden", 1)
    finally:
        log.close()
        every = api.AclBindingFilter(topic, None, api.ResourcePatternType.ANY, None, None, api.AclOperation.ANY, deny)
        client.delete_acls([every])


@pytest.mark.feature("O4")
def test_files_that_librdkafka_cannot_use_are_an_error_of_ours(secured: SecuredSite, tmp_path: Path) -> None:
    """A node that runs tries again; one that starts ends."""
    (tmp_path / "key").write_text("no key")
    access = secured.by_certificate()
    access = replace(access, security=replace(access.security, key=tmp_path / "key"))
    with pytest.raises(UnreachableError, match=r"ssl\.key\.location failed"):
        KafkaLog(access).session()
    with pytest.raises(ConfigError, match=r"^security\.kafka\.cert: .* cannot be used"):
        access.check()
