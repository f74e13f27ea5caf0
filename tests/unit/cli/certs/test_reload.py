"""`halog certs reload` asks running nodes, and says what each of them answers (O4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.errors import UnauthorizedError, UnreachableError, UnsupportedRequestError
from halog.runtime.rpc import frames

pytestmark = pytest.mark.feature("O4", "N5")

Run = Callable[..., Any]
Answer = frames.CertificatesReply | Exception


def answering(cluster: Any, **answers: Answer) -> None:
    """Have each node answer so."""
    for name, answer in answers.items():

        def reload(answer: Answer = answer) -> frames.CertificatesReply:
            if isinstance(answer, Exception):
                raise answer
            return answer

        cluster.nodes[name].runtime.service._security.reload = reload


def test_nodes_without_tls_say_so(cluster: Any, halog: Run) -> None:
    ran = halog("certs", "reload", "--all", "--format", "json")
    assert ran.code == 0
    assert [(one["node"], one["outcome"]) for one in ran.json] == [("A", "off"), ("B", "off"), ("C", "off")]
    ran = halog("certs", "reload", "--node", "B", "--node", "B")
    assert (ran.code, len(ran.out.splitlines())) == (0, 2)


def test_one_that_refuses_its_files_is_exit_5_and_one_that_says_nothing_4(cluster: Any, halog: Run) -> None:
    answering(
        cluster,
        A=frames.CertificatesReply("taken", "", "node.crt", 0),
        B=frames.CertificatesReply("refused", "the key does not fit", "node.crt", 0),
        C=UnsupportedRequestError("this node runs halog 0.2 and does not know Reload"),
    )
    ran = halog("certs", "reload", "--all", "--format", "json")
    assert ran.code == 5
    assert [one["outcome"] for one in ran.json] == ["taken", "refused", "not known"]
    assert ran.json[1]["why"] == "the key does not fit"
    assert ran.json[0]["since"] == "1970-01-01T00:00:00.000+00:00"
    assert "does not know Reload" in ran.json[2]["why"]
    assert halog("certs", "reload", "--node", "A").code == 0
    ran = halog("certs", "reload", "--node", "C")
    assert (ran.code, "not known" in ran.out) == (4, True)
    cluster.commands_faults.fail("request", UnreachableError("nobody listens"))
    ran = halog("certs", "reload", "--node", "A")
    assert (ran.code, "no answer" in ran.out, "nobody listens" in ran.out) == (4, True, True)


def test_who_may_not_ask_is_told_so(cluster: Any, halog: Run) -> None:
    answering(cluster, A=UnauthorizedError("user vera may not ask node A for Reload"))
    ran = halog("certs", "reload", "--all")
    assert (ran.code, ran.out, "user vera may not ask" in ran.err) == (8, "", True)


def test_nodes_or_all_of_them_must_be_said(cluster: Any, halog: Run) -> None:
    for line in ((), ("--all", "--node", "A")):
        ran = halog("certs", "reload", *line)
        assert (ran.code, "give --node, or --all" in ran.err) == (2, True)
