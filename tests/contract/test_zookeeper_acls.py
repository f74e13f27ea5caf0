"""`halog acl zookeeper` on a real server: znodes of a cluster that was open before (N5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.zookeeper.access import PLAIN, ZooKeeperAccess
from halog.adapters.zookeeper.acls import BATCH, ZnodeWalk, look
from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.cli import main as frame
from halog.cli.cluster import doctor_checks as checks
from halog.errors import UnreachableError, ZnodeAccessError
from tests.contract.rigs_coordinator import States
from tests.secure_zookeeper import PASSWORD, Certificates, SecureSite, digest

Run = Callable[..., tuple[int, Any, str]]
NAMES = 2 * BATCH + 50

TOML = """
[cluster]
name = "{cluster}"
[site]
bootstrap = "127.0.0.1:1"
zookeeper = "{zookeeper}"
[zones.main]
nodes = ["A"]
[nodes.A]
data_dir = "A"
{security}
"""
USER = '[security.zookeeper]\nauth = "digest"\nusername = "halog"\npassword = { env = "HALOG_ZK" }\n'


@pytest.fixture
def run(secure: SecureSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command for a cluster, with this security: code, document, what was said."""
    monkeypatch.setenv("HALOG_ZK", PASSWORD)
    toml = tmp_path / "halog.toml"

    def command(cluster: str, mode: str, security: str = USER) -> tuple[int, Any, str]:
        toml.write_text(TOML.format(cluster=cluster, zookeeper=secure.site.info.zookeeper, security=security))
        capsys.readouterr()
        code = frame.main(["acl", "zookeeper", mode, "--config", str(toml), "--format", "json"])
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return code, json.loads(said.out) if said.out else None, said.err

    return command


def opened(secure: SecureSite, cluster: str, access: ZooKeeperAccess) -> ZkCoordinator:
    c = ZkCoordinator(secure.site.info.zookeeper, cluster, access=access)
    c.connect(States())
    return c


@pytest.mark.feature("N5", "O4")
def test_a_cluster_that_was_open_is_closed_and_opened_again(secure: SecureSite, run: Run) -> None:
    """Under a session that is the user already, and one that is nobody. What is done is done once; what a stranger may
    not do he is told, and nothing was changed."""
    member = opened(secure, "gate", digest(closed=False))
    member.create("/partitions/p-0", b"0")
    member.create("/nodes/A", b"1", ephemeral=True)
    stranger = opened(secure, "gate", PLAIN)
    assert stranger.set("/partitions/p-0", b"1", 0) == 1
    code, found, said = run("gate", "--check")
    assert (code, found["open"], found["given"]) == (4, len(found["wrong"]), 0)
    assert {"path": "/halog/gate/partitions/p-0", "owners": "everybody"} in found["wrong"]
    assert "znodes do not belong to digest user halog alone" in said
    code, done, said = run("gate", "--apply")
    assert (code, done["wrong"], done["given"]) == (0, [], len(found["wrong"])), said
    assert run("gate", "--apply")[:2] == (0, {**done, "given": 0})
    code, checked, said = run("gate", "--check")
    assert (code, checked["open"]) == (0, 0)
    assert said == f"{checked['znodes']} znodes belong to digest user halog alone\n"
    assert member.set("/partitions/p-0", b"2", 1) == 2
    with pytest.raises(ZnodeAccessError):
        stranger.set("/partitions/p-0", b"3", 2)
    for security, mode in (("", "--check"), ("", "--apply"), (USER.replace("halog", "eve"), "--apply")):
        code, _, said = run("gate", mode, security)
        assert code == 8
        assert "/halog/gate, which belongs to somebody else" in said
    code, back, said = run("gate", "--apply", f'{USER}acl = "open"\n')
    assert (code, back["given"]) == (0, checked["znodes"] - 1), said  # /halog stays as it is
    assert stranger.set("/partitions/p-0", b"3", 2) == 3
    assert run("gate", "--check", f'{USER}acl = "open"\n')[0] == 4
    assert run("gate", "--apply", "")[0] == 5
    stranger.close()
    member.close()


@pytest.mark.feature("N5")
def test_what_was_stopped_half_way_goes_on(secure: SecureSite, run: Run) -> None:
    """A walk that ends after some batches leaves the rest for the next one, which sets that alone. Ephemeral znodes are
    given as well; what belongs to somebody else is named, and stays."""
    user = digest(closed=False)
    c = opened(secure, "half", user)
    for n in range(NAMES):
        c.create(f"/records/{n}", b"")

    class EndedError(Exception):
        """Stands for Ctrl-C."""

    def ended(seen: int, given: int) -> None:
        if given > BATCH:
            raise EndedError

    with pytest.raises(EndedError):
        look(c.znodes(60), user.closed_acl, apply=True, progress=ended)
    _, left, _ = run("half", "--check")
    assert 0 < left["open"] < NAMES
    c._client.create("/halog/half/records/theirs", b"", acl=digest("other").closed_acl)
    code, done, said = run("half", "--apply")
    assert done is not None, said
    assert (code, done["given"]) == (4, left["open"])
    assert [one["path"] for one in done["wrong"]] == ["/halog/half/records/theirs"]
    assert done["open"] == 0
    c.close()


@pytest.mark.feature("N5")
def test_a_server_that_falls_silent_is_waited_for(secure: SecureSite) -> None:
    """Under any batch, and nothing is done twice or left out; one that stays silent is told."""
    user = digest(closed=False)
    c = opened(secure, "silent", user)
    for n in range(3):
        c.create(f"/records/{n}/below", b"")

    class Silent(ZnodeWalk):
        """Has no answer some times before each that it has; `for_good`: none any more behind the second."""

        asked = 0
        for_good = False

        def _answer(self, asked: Any) -> Any:
            answer = super()._answer(asked)
            self.asked += 1
            if self.asked % 7 == 3 or (self.for_good and self.asked > 2):
                raise UnreachableError("ZooKeeper does not answer")
            return answer

    walk = Silent(c._client, "/halog/silent", 30, 60)
    found = look(walk, user.closed_acl, apply=True, progress=lambda *_: None)
    assert (found.given, found.open, found.wrong) == (found.znodes - 1, 0, [])
    assert found == look(c.znodes(), user.closed_acl, apply=False, progress=lambda *_: None)._replace(given=found.given)
    silent = Silent(c._client, "/halog/silent", 30, 0.5)
    silent.for_good = True
    with pytest.raises(UnreachableError):
        look(silent, user.closed_acl, apply=True, progress=lambda *_: None)
    c.close()


@pytest.mark.feature("N5", "Q4")
def test_the_doctor_says_why_zookeeper_cannot_be_used(secure: SecureSite, run: Run, tmp_path: Path) -> None:
    """By TLS as by plain text; a password that is wrong is found at the cluster's znodes."""
    c = opened(secure, "ward", digest())
    c.create("/partitions/p-0", b"0")
    certificates = secure.certificates
    stranger = Certificates(tmp_path / "stranger").place("ca.crt")

    def asked(address: str, security: str) -> dict[str, tuple[str, str]]:
        toml = tmp_path / "doctor.toml"
        toml.write_text(TOML.format(cluster="ward", zookeeper=address, security=security))
        return {f.name: (f.result, f.detail) for f in checks.zookeeper(checks.DoctorTarget.find(toml, None))}

    sealed = f'{USER}tls = "required"\nca = '
    well = asked(secure.sealed, f'{sealed}"{certificates.place("ca.crt")}"\n')
    assert well["zookeeper"] == ("ok", secure.sealed)
    assert "znodes" not in well
    wrong = asked(secure.site.info.zookeeper, USER.replace("halog", "eve"))
    assert wrong["zookeeper"][0] == "ok"
    assert wrong["znodes"][0] == "fail"
    assert "does not let digest user eve read /halog/ward" in wrong["znodes"][1]
    (result, detail) = asked(secure.sealed, f'{sealed}"{stranger}"\n')["zookeeper"]
    assert (result, "its certificate is not trusted" in detail) == ("fail", True), detail
    (result, detail) = asked(secure.sealed, USER)["zookeeper"]
    assert (result, "speaks TLS, and this process does not" in detail) == ("fail", True), detail
    (result, detail) = asked(secure.sealed, f'{sealed}"{tmp_path}/gone"\n')["zookeeper"]
    assert (result, "security.zookeeper.ca: " in detail) == ("fail", True), detail
    c.close()


@pytest.mark.feature("N5")
def test_what_is_wanted_is_said_without_a_server(run: Run) -> None:
    code, found, _ = run("any", "--print")
    assert (code, found) == (
        0,
        {"cluster": "any", "wanted": "digest user halog", "znodes": ["/halog", "/halog/any"]},
    )


def test_a_cluster_that_does_not_exist_has_no_znodes(run: Run) -> None:
    code, found, said = run("ghost", "--check")
    assert (code, found) == (3, None)
    assert "cluster ghost does not exist at this site yet" in said
