"""This module says who may do what on the node channel: whom a certificate names, its role, and what the role may ask.

Without TLS nobody shows who he is, and whoever reaches a node may ask for everything. The rules are tables: a request
that no table names is a node's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from halog.config.security import ROLES
from halog.errors import UnauthorizedError
from halog.ports import Principal
from halog.runtime.rpc import frames

VIEWER, CLIENT, OPERATOR, NODE = ROLES

LEAST: Final[Mapping[type, str]] = {
    frames.StatusRequest: VIEWER,
    frames.Loads: VIEWER,
    frames.StateHashes: VIEWER,
    frames.Fetch: CLIENT,
    frames.LeasedFetch: CLIENT,
    frames.Scan: CLIENT,
    frames.Count: CLIENT,
    frames.MomentFetch: CLIENT,
    frames.MomentScan: CLIENT,
    frames.MomentEnd: CLIENT,
    frames.Submit: CLIENT,
    frames.PrepareRequest: CLIENT,
    frames.Decide: CLIENT,
    frames.Validate: CLIENT,
    frames.Reach: CLIENT,
    frames.Barrier: CLIENT,
    frames.Invoke: CLIENT,
    frames.AskOutcome: CLIENT,
    frames.Votes: CLIENT,  # a client brings its own transactions over several partitions to an end
    frames.HandOverRequest: OPERATOR,
    frames.Move: OPERATOR,
    frames.MappingQuestion: OPERATOR,
    frames.ReloadCertificates: OPERATOR,
}
"""The least role that may ask for it. All else is said by nodes alone: pushes, acknowledgements, goodbyes, …"""


class Access:
    """`Access` is what one node lets others do. `roles`: by user. `known`: the nodes of the configuration in force."""

    def __init__(self, node: str, roles: Mapping[str, str], known: Callable[[], Collection[str]]) -> None:
        self._node = node
        self._roles = roles
        self._known = known

    def why_not(self, principal: Principal | None, hello: frames.Hello) -> str:
        """Return why a process cannot be what its greeting says; "": it can. Whoever takes the part of a node shows
        that node's certificate; other processes have names of their own, and any certificate."""
        if principal is None:
            return ""
        acts = hello.role == "node" or hello.node in self._known()
        if acts and (principal.kind, principal.name) != ("node", hello.node):
            return f"it says that it is node {hello.node}, and its certificate is for {principal}"
        if not self.role_of(principal):
            return f"its certificate is for {principal}, who has no role in [security.roles] of node {self._node}"
        return ""

    def check(self, principal: Principal | None, request: object) -> None:
        """Raise UnauthorizedError where the role of whoever asks does not allow it."""
        if principal is None or (principal.kind == "node"):
            return
        role, least = self.role_of(principal), LEAST.get(type(request), NODE)
        if not role or ROLES.index(role) < ROLES.index(least):
            asked = name_of(request)
            raise UnauthorizedError(
                f"{principal} may not ask node {self._node} for {asked}: it takes the role {least}, and "
                f"[security.roles] there says {role or 'nothing of this user'}; nothing was done",
                principal=str(principal),
                request=asked,
                role=role,
                least=least,
                node=self._node,
            )

    def role_of(self, principal: Principal) -> str:
        """Return the role of whoever shows such a certificate; "": none."""
        return NODE if principal.kind == "node" else self._roles.get(principal.name, "")


def name_of(request: object) -> str:
    """Return the name of a request's kind, as the protocol has it."""
    return str(request.__struct_config__.tag) if isinstance(request, msgspec.Struct) else type(request).__name__
