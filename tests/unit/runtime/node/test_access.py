"""Who may do what on the node channel, by the certificate that was shown (N5, Q5, O4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import pytest

from halog.adapters.memory import MemoryLog
from halog.audit import AuditEntry
from halog.backend import Work
from halog.config import SecurityConfig
from halog.config.security import ROLES
from halog.core.ids import Member
from halog.errors import FrameError, UnauthorizedError
from halog.events import Event
from halog.ports import Principal, TopicPartition
from halog.runtime.node.access import LEAST, Access
from halog.runtime.node.request_audit import AUDITED
from halog.runtime.rpc import frames, versions
from halog.runtime.rpc.errors import from_frame
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until

EVENTS = TopicPartition("test.events", 0)
USERS = {"vera": "viewer", "carl": "client", "olga": "operator"}


class Met:
    """The other end of a connection, whose certificate is verified."""

    remote = "127.0.0.1:9"
    refusal = ""
    aged = False

    def __init__(self, kind: str, name: str) -> None:
        self.principal = Principal("test", kind, name)
        self.said: list[frames.Reply] = []

    def send(self, frame: bytes) -> None:
        self.said.append(frames.decode_reply(frame))

    def offer(self, frame: bytes) -> None:
        self.send(frame)

    def close(self) -> None: ...


@pytest.fixture
def fresh() -> Iterator[Cluster]:
    """Nobody was refused anything there yet: of many refusals in a minute the audit tells the first ones apart."""
    with guarded() as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with guarded() as made:
        yield made


@contextmanager
def guarded() -> Iterator[Cluster]:
    made = Cluster(2, partitions=1, registry=Registry())
    made.config = replace(made.config, security=SecurityConfig(roles=USERS)).validate()
    with made:
        yield made


def told(cluster: Cluster, code: str) -> list[Event]:
    log = MemoryLog(cluster.broker)
    found = [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]
    return [e for e in found if e.code == code]


def leave(cluster: Cluster, *peers: Met) -> None:
    for peer in peers:
        cluster.node("A").runtime.service.on_closed(peer)


def say(cluster: Cluster, peer: Met, *said: Any) -> None:
    for frame in said:
        cluster.node("A").runtime.service.on_frame(peer, frames.encode(frame))


def hello(node: str, role: versions.Role) -> frames.Hello:
    return versions.greeting("test", Member(node, 7), role)


@pytest.mark.feature("N5", "Q5")
@pytest.mark.parametrize(
    ("peer", "greeting", "why"),
    [
        (Met("node", "C"), hello("B", "node"), "it says that it is node B, and its certificate is for node C"),
        (Met("user", "B"), hello("B", "node"), "it says that it is node B, and its certificate is for user B"),
        (Met("user", "carl"), hello("A", "client"), "it says that it is node A, and its certificate is for user carl"),
        (Met("user", "carl"), hello("x", "node"), "it says that it is node x, and its certificate is for user carl"),
        (Met("user", "eve"), hello("x", "client"), "for user eve, who has no role in [security.roles] of node A"),
    ],
    ids=["another node", "a user", "a client", "no node of the cluster", "no role"],
)
def test_nobody_takes_another_nodes_part(cluster: Cluster, peer: Met, greeting: frames.Hello, why: str) -> None:
    """A stranger's goodbye in a node's name comes to nothing: its greeting is refused by name, and told."""
    with pytest.raises(FrameError, match="is refused") as caught:
        say(cluster, peer, greeting, frames.Goodbye())
    assert why in str(caught.value)
    (answer,) = peer.said
    assert isinstance(answer, frames.ErrorReply)
    assert (answer.error, why in answer.message) == ("UnauthorizedError", True)
    wait_until(lambda: any(e.node == greeting.node for e in told(cluster, "HALOG-1008")), "nobody was told")
    assert "B" in {m.node for m in cluster.node("A").runtime.members.alive}


@pytest.mark.feature("N5")
def test_a_node_may_do_everything(cluster: Cluster) -> None:
    """Also as a client or a command of its machine, with a name of that process's own."""
    one = Met("node", "B")
    say(cluster, one, hello("halog-cli-1", "tool"), frames.StatusRequest())
    assert isinstance(one.said[-1], frames.StatusReply)
    two = Met("node", "B")
    say(cluster, two, hello("client-7", "client"), frames.HandOverRequest("test-0", "B"))
    assert not isinstance(two.said[-1], frames.ErrorReply) or two.said[-1].error != "UnauthorizedError"
    leave(cluster, one, two)


@pytest.mark.feature("N5", "O4", "Q5")
@pytest.mark.parametrize(
    ("user", "request_", "least"),
    [
        ("vera", frames.Fetch("test-0", [b"k"], 0), "client"),
        ("vera", frames.Submit("test-0", bytes(16), Work((), ())), "client"),
        ("vera", frames.HandOverRequest("test-0", "B"), "operator"),
        ("carl", frames.HandOverRequest("test-0", "B"), "operator"),
        ("carl", frames.ReloadCertificates(), "operator"),
        ("olga", frames.Goodbye(), "node"),
        ("olga", frames.KeepAlive(1, {}), "node"),
    ],
)
def test_a_request_beyond_a_role_is_refused_by_name(cluster: Cluster, user: str, request_: Any, least: str) -> None:
    """The connection goes on, nothing was done, and the history says who asked for what."""
    peer = Met("user", user)
    say(cluster, peer, hello(f"of-{user}", "tool"), request_)
    answer = peer.said[-1]
    assert isinstance(answer, frames.ErrorReply)
    error = from_frame(answer)
    assert isinstance(error, UnauthorizedError)
    assert (error.exit_code, error.evidence["least"], error.evidence["role"]) == (8, least, USERS[user])
    assert f"user {user} may not ask node A for {request_.__struct_config__.tag}" in error.message
    wait_until(lambda: any(e.node == f"user {user}" for e in told(cluster, "HALOG-1140")), "nobody was told")
    say(cluster, peer, frames.StatusRequest())
    assert isinstance(peer.said[-1], frames.StatusReply)
    leave(cluster, peer)


def test_every_request_has_a_role_and_no_control_frame_has() -> None:
    """What no table names is for nodes; a request that is added must be given a role."""
    assert set(LEAST) == set(get_args(frames.Request))
    assert set(LEAST.values()) < set(ROLES)
    access = Access("A", {"olga": "operator"}, lambda: ["A"])
    for kind in get_args(frames.Control):
        if kind is frames.Goodbye:
            with pytest.raises(UnauthorizedError):
                access.check(Principal("test", "user", "olga"), frames.Goodbye())


@pytest.mark.feature("O4", "Q5")
def test_whatever_operators_change_is_in_the_audit() -> None:
    """A question is not."""
    asked = {kind for kind, least in LEAST.items() if least == "operator"}
    assert asked - {frames.MappingQuestion} == set(AUDITED)


@pytest.mark.feature("O4", "Q5")
def test_what_hosting_nodes_ask_each_other_is_not_in_the_audit_and_what_others_ask_is(fresh: Cluster) -> None:
    """Refusals are, with whom the certificate names; so is one that is refused at its greeting."""
    log, tp = MemoryLog(fresh.broker), TopicPartition("test.audit", 0)

    def noted(principal: str) -> list[AuditEntry]:
        found = [AuditEntry.from_bytes(e.value) for e in log.read(tp, *log.bounds(tp))]
        return [e for e in found if e.principal == principal]

    viewer, stranger = Met("user", "vera"), Met("user", "mallory")
    say(fresh, viewer, hello("cli-9", "tool"), frames.ReloadCertificates())
    with pytest.raises(FrameError, match="no role"):
        say(fresh, stranger, hello("cli-10", "tool"))
    wait_until(lambda: bool(noted("user mallory")), "they are in the audit")
    assert [(e.command, e.outcome) for e in noted("user vera") if e.process == "cli-9"] == [("Reload", "refused")]
    assert [(e.command, e.process, e.role, e.proven) for e in noted("user mallory")] == [("Hello", "cli-10", "", True)]
    leave(fresh, viewer)
    wants, move = fresh.node("A").runtime.service._audit.wants, frames.Move("test-0", [])
    assert [wants(move, "B"), wants(move, "job-1"), wants(frames.HandOverRequest("test-0", "B"), "B")] == [
        False,
        True,
        True,
    ]


def test_without_tls_everybody_may_do_everything() -> None:
    access = Access("A", {}, lambda: ["A", "B"])
    assert access.why_not(None, hello("B", "node")) == ""
    access.check(None, frames.Goodbye())
