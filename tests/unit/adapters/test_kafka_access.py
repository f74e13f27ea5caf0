"""How Kafka is reached, in the words of librdkafka and of Java; what a secret holds, no text shows (O4)."""

from __future__ import annotations

import base64
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings, strategies as st

from halog.adapters.kafka import refusals
from halog.adapters.kafka.access import KafkaAccess, bearer
from halog.adapters.kafka.conf import client, common, unreachable
from halog.config.java_text import jaas, properties
from halog.config.kafka_security import KafkaSecurity
from halog.config.secrets import SecretPlace
from halog.errors import ConfigError, UnauthorizedError, UnreachableError
from spark_jobs.spark import SECRETS

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
PASSWORD = 'geheim "x" \\ y;'


def token(claims: object) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return ".".join((*parts, "signature"))


@pytest.fixture
def access(tmp_path: Path) -> KafkaAccess:
    for name in ("ca", "cert", "key", "password"):
        (tmp_path / name).write_text(PASSWORD if name == "password" else f"pem of {name}")
    place = SecretPlace(file=tmp_path / "password")
    security = KafkaSecurity("sasl_ssl", "SCRAM-SHA-512", "halog", place, tmp_path / "ca")
    return KafkaAccess("k:1,k:2", security)


def mutual(access: KafkaAccess) -> KafkaAccess:
    ca = access.security.ca
    assert ca is not None
    return KafkaAccess(access.servers, KafkaSecurity("ssl", ca=ca, cert=ca.parent / "cert", key=ca.parent / "key"))


# --- what librdkafka is told ---


@pytest.mark.feature("O4")
def test_librdkafka_is_told_of_passwords_and_files(access: KafkaAccess, tmp_path: Path) -> None:
    assert access.librdkafka() == {
        "bootstrap.servers": "k:1,k:2",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "halog",
        "sasl.password": PASSWORD,
    }
    assert mutual(access).librdkafka() == {
        "bootstrap.servers": "k:1,k:2",
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
    }
    assert KafkaAccess("k:1").librdkafka() == {"bootstrap.servers": "k:1", "security.protocol": "plaintext"}


@pytest.mark.feature("O4")
def test_librdkafka_is_told_of_an_oidc_provider(access: KafkaAccess) -> None:
    place = access.security.password
    oidc = KafkaSecurity(
        "sasl_ssl",
        "OAUTHBEARER",
        ca=access.security.ca,
        token_endpoint="https://id/t",
        client_id="me",
        client_secret=place,
        scope="logs",
    )
    found = KafkaAccess("k:1", oidc).librdkafka()
    assert {key: value for key, value in found.items() if key.startswith("sasl")} == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id/t",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.scope": "logs",
    }
    java = KafkaAccess("k:1", oidc).java()
    assert login_of(java["sasl.jaas.config"])[1] == {"clientId": "me", "clientSecret": PASSWORD, "scope": "logs"}
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://id/t"


@pytest.mark.feature("O4")
def test_a_password_that_was_replaced_counts_for_the_next_client(access: KafkaAccess, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("another")
    assert access.librdkafka()["sasl.password"] == "another"


@pytest.mark.feature("O4")
@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_file_that_is_not_there_is_named(access: KafkaAccess, tmp_path: Path, name: str) -> None:
    (tmp_path / name).unlink()
    with pytest.raises(
        ConfigError, match=rf"security\.kafka\.{name}: .*/{name} cannot be read: No such file"
    ) as caught:
        mutual(access).check()
    assert caught.value.evidence == {"key": f"security.kafka.{name}"}
    with pytest.raises(UnreachableError, match=rf"^Kafka at k:1,k:2 cannot be asked: security\.kafka\.{name}"):
        client(lambda conf: conf, mutual(access), common)


@pytest.mark.feature("O4")
def test_a_file_that_holds_something_else_is_named(access: KafkaAccess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^security\.kafka\.ca: {tmp_path}/ca cannot be used: ") as caught:
        access.check()
    assert caught.value.evidence == {"key": "security.kafka.ca"}


# --- tokens ---


@pytest.mark.feature("O4")
def test_a_token_says_when_it_ends(tmp_path: Path) -> None:
    place = SecretPlace(file=tmp_path / "token")
    (tmp_path / "token").write_text(token({"exp": 5000, "sub": "halog"}) + "\n")
    found, ends = bearer(place, lambda: 1000.0)
    assert (found.reveal(), ends) == (token({"exp": 5000, "sub": "halog"}), 5000.0)
    given = KafkaAccess("k:1", KafkaSecurity("sasl_plaintext", "OAUTHBEARER", token=place)).librdkafka()["oauth_cb"]
    assert "geheim" not in repr(given)
    (tmp_path / "token").write_text(token({"exp": 9e9}))
    assert given("") == (token({"exp": 9e9}), 9e9), "it is read again"
    (tmp_path / "token").write_text(token({}))
    assert bearer(place, lambda: 1000.0)[1] == 1300.0


@pytest.mark.feature("O4")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("geheim", "holds no JWT"),
        ("a.geheim.c", "holds no JWT"),
        (token([1]), "holds no JWT"),
        (token({"exp": "soon"}), "holds no JWT"),
        (token({"exp": True}), "holds no JWT"),
        (token({"exp": 999}), "holds a token that is over"),
    ],
)
def test_what_is_no_token_is_refused_without_showing_it(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match=rf"^security\.kafka\.token: .*{why}") as caught:
        bearer(SecretPlace(file=tmp_path / "token"), lambda: 1000.0)
    assert text not in str(caught.value)


# --- what Java is told ---


def login_of(text: str) -> tuple[str, dict[str, str]]:
    """What Java's StreamTokenizer makes of one login module; written from its manual alone."""
    assert text.endswith(";")
    module, flag, rest = text[:-1].split(" ", 2) if text.count(" ") > 1 else (*text[:-1].split(" "), "")
    assert flag == "required"
    options, at = dict[str, str](), 0
    while at < len(rest):
        name, _, rest_ = rest[at:].partition("=")
        at += len(name) + 2
        assert rest_[0] == '"'
        value = ""
        while rest[at] != '"':
            assert rest[at] not in "\r\n", "a string ends with its line"
            if rest[at] == "\\":
                at += 1
                assert rest[at] not in "01234567", "an octal number"
                value += {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(
                    rest[at], rest[at]
                )
            else:
                value += rest[at]
            at += 1
        at += 2
        options[name.strip()] = value
    return module, options


def loaded(text: str) -> dict[str, str]:
    """What Java's Properties.load makes of a file; written from its manual alone."""
    assert text.isascii()
    found = dict[str, str]()
    for line in text.split("\n")[:-1]:
        parts, at, separated = [bytearray(), bytearray()], 0, False
        while at < len(line):
            char = line[at]
            if char == "\\":
                at += 1
                char = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(line[at], line[at])
                if line[at] == "u":
                    char = chr(int(line[at + 1 : at + 5], 16))
                    at += 4
                parts[separated] += char.encode("utf-16-be", "surrogatepass")
            elif char in "=: " and not separated:
                separated = True
                while at + 1 < len(line) and line[at + 1] in " \t\f":
                    at += 1
            else:
                parts[separated] += char.encode("utf-16-be")
            at += 1
        found[parts[0].decode("utf-16-be")] = parts[1].decode("utf-16-be")
    return found


@pytest.mark.feature("O4")
@given(username=TEXTS, password=TEXTS)
@settings(max_examples=200, deadline=None)
def test_any_password_comes_back_from_a_login_module(username: str, password: str) -> None:
    said = jaas("org.example.Module", {"username": username, "password": password})
    assert login_of(said) == ("org.example.Module", {"username": username, "password": password})
    assert loaded(properties({"sasl.jaas.config": said}))["sasl.jaas.config"] == said


@pytest.mark.feature("O4")
@given(values=st.dictionaries(TEXTS.filter(bool), TEXTS))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_from_a_properties_file(values: dict[str, str]) -> None:
    assert loaded(properties(values)) == values


@pytest.mark.feature("O4")
@given(username=TEXTS, password=TEXTS)
@settings(max_examples=200, deadline=None)
def test_no_plan_of_spark_shows_a_password(username: str, password: str) -> None:
    said = jaas("org.example.Module", {"username": username, "password": password})
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"
    plan = f"options: {{kafka.sasl.jaas.config -> {said}, kafka.ssl.keystore.key -> {key}, b -> c}}"
    assert re.sub(SECRETS, "*", plan) == "options: {kafka.*, kafka.ssl.keystore.key -> *, b -> c}"


@pytest.mark.feature("O4")
def test_java_is_told_of_passwords_and_files(access: KafkaAccess) -> None:
    found = access.java()
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert login_of(found.pop("sasl.jaas.config")) == (scram, {"username": "halog", "password": PASSWORD})
    assert found == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "pem of ca",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    assert mutual(access).java() == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "pem of ca",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "pem of cert",
        "ssl.keystore.key": "pem of key",
    }


@pytest.mark.feature("O4")
def test_spark_is_told_the_same(access: KafkaAccess) -> None:
    assert KafkaAccess("k:1").spark() == {"kafka.bootstrap.servers": "k:1"}
    java = {f"kafka.{key}": value for key, value in access.java().items()}
    assert access.spark() == {"kafka.bootstrap.servers": "k:1,k:2", **java}


@pytest.mark.feature("O4")
def test_java_reads_a_token_from_a_file_alone(tmp_path: Path) -> None:
    security = KafkaSecurity("sasl_plaintext", "OAUTHBEARER", token=SecretPlace(file=tmp_path / "a token"))
    assert KafkaAccess("k:1", security).java()["sasl.oauthbearer.token.endpoint.url"] == f"file://{tmp_path}/a%20token"
    with pytest.raises(ConfigError, match="Java reads a token from a file alone"):
        KafkaAccess("k:1", replace(security, token=SecretPlace(env="TOKEN"))).java()


@pytest.mark.feature("O4")
def test_it_is_sent_to_other_processes_without_a_secret(access: KafkaAccess) -> None:
    sent = pickle.dumps(access)  # as Spark sends it to its executors
    assert pickle.loads(sent) == access  # noqa: S301
    assert not any("geheim" in text for text in (repr(access), str(access), repr(sent)))


# --- what brokers refuse ---


class Refusal:
    """An error event, as librdkafka gives it."""

    def __init__(self, code: int, text: str) -> None:
        self._code, self._text = code, text

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return self._text


def server(number: int) -> KafkaAccess:
    return KafkaAccess(f"refusing-{number}:1", KafkaSecurity("sasl_ssl", "PLAIN", "eve", SecretPlace(env="P")))


@pytest.mark.feature("O4")
@pytest.mark.parametrize(
    ("number", "code", "text", "expected"),
    [
        (
            1,
            KafkaError._AUTHENTICATION,
            "sasl_ssl://h:1/b: bad (after 3ms in state X)",
            "does not let user eve in: bad: ",
        ),
        (
            11,
            KafkaError._AUTHENTICATION,
            "sasl_ssl://h:1/b: bad (after 3ms in state X, 1 identical error(s) suppressed)",
            "does not let user eve in: bad: ",
        ),
        (2, KafkaError._SSL, "certificate verify failed", "has a certificate that is not trusted"),
        (3, KafkaError._SSL, "wrong version number", "was not spoken to by TLS"),
        (4, KafkaError._TRANSPORT, "Receive failed: SSL alert number 42", "does not let user eve in"),
        (5, KafkaError._TRANSPORT, "SSL handshake failed: Disconnected", "ended the connection"),
        (6, KafkaError._TRANSPORT, "Connection refused", "does not answer: timed out"),
    ],
)
def test_what_was_refused_is_the_reason_of_what_fails(number: int, code: int, text: str, expected: str) -> None:
    access = server(number)
    assert refusals.note(access, Refusal(code, text)) == (number != 6)
    error = unreachable(access, "timed out")
    assert isinstance(error, UnreachableError)
    assert str(error).startswith(f"Kafka at refusing-{number}:1 {expected}")
    assert (refusals.lately(access, sure=True) is None) == (number in (5, 6))


@pytest.mark.feature("O4")
def test_what_a_user_may_not_do_is_told_with_his_name() -> None:
    error = unreachable(server(7), KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert "does not allow user eve" in str(error)
    assert error.evidence["refused"] == "TOPIC_AUTHORIZATION_FAILED"


class Admin:
    """Fails until its broker is up, and tells of a refusal with each poll, or twice only: librdkafka keeps silent about
    one that repeats itself, for half a minute."""

    def __init__(self, access: KafkaAccess, *refused: Any, times: int, told: int = 1 << 62) -> None:
        self._access, self._refused, self._left, self._told = access, refused, times, told

    def list_topics(self, timeout: float) -> object:
        from confluent_kafka import KafkaException

        self._left -= 1
        if self._left < 0:
            return None
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout: float) -> None:
        self._told -= 1
        if self._told >= 0:
            for one in self._refused:
                refusals.note(self._access, one)


def proved(number: int, *refused: Any, times: int = 1 << 62, told: int = 1 << 62, made: int = 9) -> None:
    """Look with at most so many clients."""
    clients = [Admin(server(number), *refused, times=times, told=told) for _ in range(made)]
    refusals.prove(server(number), clients.pop(), clients.pop)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "PROVE_S", 0.3)
    monkeypatch.setattr(refusals, "REPEATED_S", 0.3)
    monkeypatch.setattr(refusals, "SURE_S", 0.05)


@pytest.mark.feature("O4")
def test_one_refusal_of_a_broker_that_is_going_down_is_none() -> None:
    proved(8, Refusal(KafkaError._AUTHENTICATION, "not now"), times=2)


@pytest.mark.feature("O4")
def test_a_broker_that_went_away_after_a_refusal_is_away(quick: None) -> None:
    """Only a refusal that comes again later is one."""
    refusals.note(server(9), Refusal(KafkaError._AUTHENTICATION, "of an earlier process"))
    proved(9)
    with pytest.raises(UnauthorizedError, match="does not let user eve in: still"):
        proved(10, Refusal(KafkaError._AUTHENTICATION, "still"))


@pytest.mark.feature("O4")
def test_a_refusal_that_librdkafka_tells_no_more_is_asked_for_by_another_client(quick: None) -> None:
    """One more is enough: an open connection each would be a crowd at a broker that is busy refusing."""
    with pytest.raises(UnauthorizedError, match="does not let user eve in: still"):
        proved(12, Refusal(KafkaError._AUTHENTICATION, "still"), told=2, made=2)
    assert refusals.LATELY_S > 30
