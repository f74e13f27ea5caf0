"""`halog certs` as people and scripts give it: what it says, what it exits with, where it looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.cli.shared import certificate_library
from tests.unit.cli.conftest import Ran

pytestmark = pytest.mark.feature("O4", "N5")

Halog = Callable[..., Any]


@pytest.fixture
def certs(halog: Halog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs `halog certs …` in a directory of its own, where nothing is."""
    monkeypatch.setattr("os.fsync", lambda number: None)
    monkeypatch.delenv("HALOG_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *words: halog("certs", *words)


@pytest.fixture
def begun(certs: Callable[..., Ran]) -> Callable[..., Ran]:
    """The same, with an authority and three certificates."""
    for words in (
        ("create-ca", "--cluster", "fleet"),
        ("create-node", "A", "--host", "10.0.0.5"),
        ("create-user", "alice", "--role", "operator"),
        ("create-server", "kafka", "--host", "localhost"),
    ):
        assert certs(*words).code == 0
    return certs


def names() -> list[str]:
    return sorted(p.name for p in Path("certs").iterdir() if not p.name.startswith("."))


def test_each_certificate_that_is_made_is_shown(certs: Callable[..., Ran]) -> None:
    ran = certs("create-ca", "--cluster", "fleet", "--format", "json")
    assert (ran.code, ran.json["identity"], ran.json["file"]) == (0, "halog://fleet/ca", "certs/ca.crt")
    ran = certs("create-node", "A", "--host", "a.example.org", "--host", "::1", "--format", "json")
    shown = {k: ran.json[k] for k in ("identity", "hosts", "file", "key", "kind", "name", "cluster")}
    assert shown == {
        "identity": "halog://fleet/node/A",
        "hosts": ["a.example.org", "::1"],
        "file": "certs/node.A.crt",
        "key": "certs/node.A.key",
        "kind": "node",
        "name": "A",
        "cluster": "fleet",
    }
    ran = certs("create-server", "zookeeper", "--host", "localhost")
    assert (ran.code, "identity     halog://fleet/server/zookeeper\n" in ran.out, ran.err) == (0, True, "")


def test_list_and_check(begun: Callable[..., Ran]) -> None:
    ran = begun("list", "--format", "json")
    told = [(c["kind"], c["name"], c["identity"], c["key"] is not None) for c in ran.json["certificates"]]
    assert told == [
        ("ca", "", "halog://fleet/ca", True),
        ("server", "kafka", "halog://fleet/server/kafka", True),
        ("node", "A", "halog://fleet/node/A", True),
        ("user", "alice", "halog://fleet/user/alice", True),
    ]
    assert begun("list").out.splitlines()[0].split()[:3] == ["name", "kind", "identity"]
    ran = begun("check")
    assert (ran.code, ran.err) == (0, "3 certificates are well\n")
    Path("certs/node.A.key").chmod(0o644)
    ran = begun("check", "--format", "json")
    assert (ran.code, ran.json["ok"], ran.json["certificates"]) == (4, False, 3)
    assert {"file": "node.A.key", "result": "fail", "advice": "chmod 600 certs/node.A.key"}.items() <= ran.json[
        "findings"
    ][0].items()


def test_what_ends_soon_is_said_and_renewed(begun: Callable[..., Ran]) -> None:
    assert begun("create-node", "B", "--days", "20").code == 0
    assert begun("list").err == "warning: certs/node.B.crt ends in 19 days: halog://fleet/node/B\n"
    assert (begun("check").code, begun("renew", "--all", "--within", "10d", "--format", "json").out) == (0, "null\n")
    ran = begun("renew", "--all", "--within", "30d", "--format", "json")
    assert [c["name"] for c in ran.json["renewed"]] == ["B"]
    assert begun("list").err == ""


def test_a_certificate_whose_key_is_elsewhere_is_left_and_named(begun: Callable[..., Ran], tmp_path: Path) -> None:
    Path("certs/node.A.key").rename(tmp_path / "away.key")
    ran = begun("renew", "--all", "--format", "json")
    assert (ran.code, len(ran.json["renewed"]), ran.json["without_key"]) == (4, 2, ["node.A"])
    assert "node.A: its key is not here" in ran.err
    ran = begun("renew", "A")
    assert (ran.code, "nothing was renewed" in ran.err) == (5, True)


def test_a_request_goes_from_one_machine_to_the_other(begun: Callable[..., Ran], tmp_path: Path) -> None:
    there = ("--certs-dir", tmp_path / "machine")
    ran = begun("create-node", "B", "--host", "10.0.0.6", "--csr", "--cluster", "fleet", *there)
    assert (ran.code, "halog certs sign --csr node.B.csr" in ran.err) == (0, True)
    ran = begun("sign", "--csr", tmp_path / "machine/node.B.csr", "--format", "json")
    assert (ran.code, ran.json["identity"], ran.json["hosts"], ran.json["key"]) == (
        0,
        "halog://fleet/node/B",
        ["10.0.0.6"],
        None,
    )
    for name in ("node.B.crt", "ca.crt"):
        (tmp_path / "machine" / name).write_bytes(Path("certs", name).read_bytes())
    assert begun("check", *there).code == 0
    assert begun("renew", "B", "--csr", *there).code == 0
    ran = begun("sign", "--csr", tmp_path / "machine/node.B.csr")
    assert (ran.code, "is there already; nothing was signed" in ran.err) == (5, True)


def test_the_authority_is_replaced(begun: Callable[..., Ran]) -> None:
    assert begun("rotate-ca", "status", "--format", "json").json == {"state": "none", "next": None}
    assert begun("rotate-ca", "finish").code == 0
    ran = begun("rotate-ca", "begin", "--format", "json")
    assert (ran.code, ran.json["state"], ran.json["to_reissue"]) == (
        0,
        "both trusted",
        ["kafka", "node.A", "user.alice"],
    )
    assert (begun("check").code, begun("list", "--format", "json").json["certificates"][1]["kind"]) == (0, "ca")
    ran = begun("rotate-ca", "finish")
    assert (ran.code, "has issued kafka, node.A, user.alice; nothing was changed" in ran.err) == (5, True)
    assert begun("renew", "--all").code == 0
    status = begun("rotate-ca", "status", "--format", "json").json
    assert (status["state"], status["to_reissue"], status["next"]) == (
        "all reissued",
        [],
        "halog certs rotate-ca finish",
    )
    assert "next        halog certs rotate-ca finish\n" in begun("rotate-ca", "status").out
    ran = begun("rotate-ca", "finish", "--format", "json")
    assert (ran.code, ran.json["state"]) == (0, "finished")
    assert (begun("check").code, [n for n in names() if n.startswith(("ca", "rot"))]) == (0, ["ca.crt", "ca.key"])


def test_a_rotation_is_taken_back(begun: Callable[..., Ran]) -> None:
    before = Path("certs/ca.crt").read_text()
    assert begun("rotate-ca", "begin").code == 0
    ran = begun("rotate-ca", "abort", "--format", "json")
    assert (ran.code, ran.json["state"], Path("certs/ca.crt").read_text()) == (0, "none", before)
    assert begun("rotate-ca", "abort", "--format", "json").out == "null\n"


# --- where it looks ---


def test_the_configuration_tells_the_cluster_and_the_directory(certs: Callable[..., Ran], tmp_path: Path) -> None:
    """Its other keys are not read: a cluster whose certificates are still missing may have one that cannot be run."""
    place = tmp_path / "etc"
    place.mkdir()
    (place / "halog.toml").write_text('[cluster]\nname = "shop"\n[security]\ncerts_dir = "tls"\n')
    ran = certs("create-ca", "--config", place / "halog.toml", "--format", "json")
    assert (ran.code, ran.json["cluster"], ran.json["file"]) == (0, "shop", str(place / "tls/ca.crt"))
    (tmp_path / "halog.toml").write_text('[cluster]\nname = "shop"\n')
    ran = certs("create-ca", "--format", "json")
    assert (ran.json["cluster"], ran.json["file"]) == ("shop", "certs/ca.crt")
    ran = certs("create-node", "A", "--cluster", "fleet")
    assert (ran.code, "the cluster is shop, not fleet; nothing was changed" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "toml",
    ["cluster = 1", "[cluster]\nname = 1", "[cluster]\nname = []", "[security]\ncerts_dir = 7", "security = 1", "["],
)
def test_a_configuration_that_tells_something_else_is_named(certs: Callable[..., Ran], toml: str) -> None:
    Path("halog.toml").write_text(toml)
    ran = certs("create-ca", "--cluster", "fleet")
    assert (ran.code, ran.out, ran.err.startswith("halog: halog.toml: ")) == (2, "", True)
    assert not Path("certs").exists()


def test_a_configuration_that_is_named_must_be_there(certs: Callable[..., Ran]) -> None:
    ran = certs("create-ca", "--config", "none.toml")
    assert (ran.code, "none.toml: cannot be read" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create-ca",), "the cluster's name is not known"),
        (("create-ca", "--cluster", "a/b"), "the cluster name 'a/b' must be 1 to 100"),
        (("create-node", "A", "--cluster", "fleet"), "there is no authority yet"),
        (("list",), "certs: there is no such directory"),
        (("check",), "certs: there is no such directory"),
        (("renew", "--all"), "certs: there is no such directory"),
        (("sign", "--csr", "none.csr", "--cluster", "fleet"), "none.csr: cannot be read"),
    ],
)
def test_before_there_is_anything(certs: Callable[..., Ran], words: tuple[str, ...], said: str) -> None:
    ran = certs(*words)
    assert (ran.code, ran.out, said in ran.err, ran.err.count("\n")) == (2, "", True, 1), ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create-node", "../x"), 2, "the node name '../x' must be"),
        (("create-node", "Ä"), 2, "the node name '\\xc4' must be"),
        (("create-user", "A" * 101), 2, "the user name 'AAA"),
        (("create-node", "B", "--host", "a:1"), 2, "the host 'a:1' is neither"),
        (("create-node", "B", "--days", "0"), 2, "0 is not in the range"),
        (("create-node", "B", "--csr", "--overwrite"), 2, "--csr neither signs nor replaces a key"),
        (("create-user", "bob", "--role", "root"), 2, "is not one of"),
        (("create-server", "kafka2", "--host", "a"), 2, "is not one of"),
        (("create-server", "kafka"), 2, "Missing option '--host'"),
        (("create-node", "A"), 5, "node.A.key: is there already; nothing was changed"),
        (("create-ca",), 5, "rotate-ca begin"),
        (("create-node", "B", "--cluster", "shop"), 2, "the authority is that of cluster fleet, not of shop"),
        (("renew",), 2, "give names, or --all"),
        (("renew", "A", "--all"), 2, "give names, or --all"),
        (("renew", "A", "--within", "3d"), 2, "--within goes with --all"),
        (("renew", "B"), 2, "there is no certificate B; known are kafka, node.A, user.alice: see `halog certs list`"),
        (("renew", "A", "alice", "--csr"), 2, "--csr makes one request"),
        (("renew", "kafka", "--csr"), 2, "is not for a node or a user"),
        (("sign", "--csr", "certs/ca.crt"), 2, "ca.crt: holds no request"),
        (("list", "--certs-dir", "certs/ca.crt"), 2, "is a file"),
    ],
)
def test_what_is_refused_changes_nothing(
    begun: Callable[..., Ran], words: tuple[str, ...], code: int, said: str
) -> None:
    def state() -> dict[str, bytes]:
        return {n: Path("certs", n).read_bytes() for n in names()}

    before = state()
    ran = begun(*words)
    assert (ran.code, ran.out, said in ran.err) == (code, "", True), ran
    assert state() == before


def test_without_the_library_it_says_how_to_get_it(certs: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_library, "find_spec", lambda name: None)
    ran = certs("create-ca", "--cluster", "fleet")
    assert (ran.code, ran.err.count("\n"), "pip install 'halog[certs]'" in ran.err) == (1, 1, True)
    assert certs("create-ca", "--help").code == 0
    assert not Path("certs").exists()


def test_no_secret_is_ever_said(begun: Callable[..., Ran]) -> None:
    keys = [line for n in names() if n.endswith(".key") for line in Path("certs", n).read_text().splitlines()[1:-1]]
    ran = [begun(*words, "--format", f) for words in (("list",), ("check",), ("renew", "A")) for f in ("json", "table")]
    said = json.dumps([(r.out, r.err) for r in ran])
    assert keys
    assert not [line for line in keys if line in said]
