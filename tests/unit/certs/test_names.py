"""Names and hosts that people, scripts and attackers may give: taken as they are, or refused by name."""

from __future__ import annotations

import ipaddress
import string
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from halog.certs.authority import Authority, Holder
from halog.certs.certificate import alternative_names, certificate_pem, identity_of
from halog.certs.hosts import host_names, host_texts
from halog.certs.identity import HolderIdentity, HolderKind, parse_identity, single_identity
from halog.certs.keys import make_key
from halog.errors import ConfigError
from tests.unit.certs.conftest import NOW

pytestmark = pytest.mark.feature("O4", "N5")

PLAIN = string.ascii_letters + string.digits + "._-"
NAMES = st.text(PLAIN, min_size=1, max_size=100).filter(lambda name: name not in (".", ".."))
AUTHORITY = Authority.create("fleet", NOW)
HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/etc/passwd",
    "A\n",
    "A\x00",
    " A",
    "Ä",
    "A" * 101,
    "А",
    "%2e",
    "A?b",
    "\ud800",
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", [HolderKind.NODE, HolderKind.USER])
def test_a_hostile_name_is_refused_and_shown_plainly(kind: HolderKind, name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HolderIdentity.of("fleet", kind, name)
    assert f"the {kind} name {name[:110]!a} must be 1 to 100" in refused.value.message
    assert refused.value.message.isprintable()
    assert refused.value.message.isascii()


@pytest.mark.parametrize("name", [*HOSTILE, "kafka2", "Kafka"])
def test_no_other_server_is_made_up(name: str) -> None:
    with pytest.raises(ConfigError, match="known are kafka, zookeeper"):
        HolderIdentity.of("fleet", HolderKind.SERVER, name)


@pytest.mark.parametrize("cluster", HOSTILE)
def test_a_hostile_cluster_is_refused(cluster: str) -> None:
    with pytest.raises(ConfigError, match="the cluster name"):
        HolderIdentity.of(cluster, HolderKind.NODE, "A")


@given(st.text(max_size=120), st.text(max_size=120), st.sampled_from([HolderKind.NODE, HolderKind.USER]))
def test_any_text_is_a_name_with_a_file_of_its_own_or_is_refused(cluster: str, name: str, kind: HolderKind) -> None:
    try:
        found = HolderIdentity.of(cluster, kind, name)
    except ConfigError:
        return
    assert Path(found.stem).name == found.stem
    assert len(f".{found.stem}.crt.part") <= 255
    assert parse_identity(found.uri) == found


@given(NAMES, NAMES, st.sampled_from([HolderKind.NODE, HolderKind.USER]))
@settings(max_examples=30)
def test_every_plain_name_comes_back_from_its_certificate(cluster: str, name: str, kind: HolderKind) -> None:
    who = Holder(HolderIdentity.of(cluster, kind, name))
    made = AUTHORITY.sign(who, make_key().public_key(), NOW)
    assert identity_of(made) == who.identity
    assert certificate_pem([made]).startswith(b"-----BEGIN CERTIFICATE-----\n")


@given(NAMES, NAMES)
def test_no_two_holders_have_one_file(name: str, other: str) -> None:
    kinds = (HolderKind.NODE, HolderKind.USER)
    found = [HolderIdentity.of("fleet", kind, n) for kind in kinds for n in {name, other}]
    servers = [HolderIdentity.of("fleet", HolderKind.SERVER, n) for n in ("kafka", "zookeeper")]
    stems = [one.stem for one in [*found, *servers, HolderIdentity.of("fleet", HolderKind.CA)]]
    assert len(set(stems)) == len(stems)


@given(NAMES)
@settings(max_examples=20)
def test_an_authority_has_a_name_of_the_allowed_length(cluster: str) -> None:
    assert len(Authority.create(cluster, NOW).certificate.subject.rfc4514_string()) <= 64 + len("CN=")


@given(st.text(max_size=80))
def test_a_uri_that_is_not_written_as_ours_is_nobodys(text: str) -> None:
    for uri in (text, f"halog://{text}", f"halog://fleet/node/{text}", f"halog://fleet/{text}"):
        found = parse_identity(uri)
        assert found is None or found.uri == uri


def test_a_certificate_for_two_is_for_neither() -> None:
    assert single_identity(["halog://fleet/node/A"]) == HolderIdentity("fleet", HolderKind.NODE, "A")
    assert single_identity(["https://x", "halog://fleet/node/A"]) == HolderIdentity("fleet", HolderKind.NODE, "A")
    assert single_identity(["halog://fleet/node/A", "halog://fleet/user/x"]) is None
    assert single_identity(["halog://fleet/node/A", "Halog://fleet/user/x"]) is None
    assert single_identity([]) is None


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("A.Example.ORG", "a.example.org"),
        ("localhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("10.0.0.5", "10.0.0.5"),
        ("[2001:db8::5]", "2001:db8::5"),
        ("2001:0db8::5", "2001:db8::5"),
        ("my_host", "my_host"),
    ],
)
def test_a_host_is_taken(host: str, found: str) -> None:
    assert host_texts(host_names([host, host])) == [found]


@pytest.mark.parametrize(
    "host",
    [
        *(
            "",
            ".",
            "a..b",
            "a b",
            "a\n",
            "-a",
            "a-",
            "a" * 64,
            "a." * 130 + "a",
            "\ud800",
            "*.example.org",
            "bücher.example",
        ),
        *("a:7400", "10.0.0.5:7400", "10.0.0", "1.2.3.4.5", "10.0.0.0/8", "fe80::1%eth0", "http://a", "a/b"),
    ],
)
def test_what_is_no_host_is_refused_by_name(host: str) -> None:
    with pytest.raises(ConfigError) as refused:
        host_names(["a.example.org", host])
    assert f"the host {host[:253]!a}" in refused.value.message
    assert refused.value.message.isprintable()


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(ConfigError, match="101 hosts are more"):
        host_names(f"h{i}" for i in range(101))


@given(st.one_of(st.text(max_size=60), st.ip_addresses().map(str)))
@settings(max_examples=60)
def test_any_text_is_a_host_that_comes_back_or_is_refused(host: str) -> None:
    try:
        hosts = host_names([host])
    except ConfigError:
        return
    made = AUTHORITY.sign(Holder(HolderIdentity("fleet", HolderKind.NODE, "A"), hosts), make_key().public_key(), NOW)
    (found,) = host_texts(alternative_names(made))
    try:
        assert ipaddress.ip_address(found) == ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        assert found == host.lower()
