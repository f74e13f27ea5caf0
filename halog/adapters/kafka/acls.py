"""This module looks at the ACLs that a Kafka cluster has for one principal, and makes those that are missing.

It never takes one away: others may rest on it. What brokers allow goes by prefixes and by rights that others imply, so
an ACL need not be there word by word; what matters is whether the operation is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.rights import CLUSTER, TOPIC, TRANSACTIONAL_ID, KafkaRight
from halog.config.kafka_security import PLAINTEXT
from halog.errors import RefusedError, UnauthorizedError

ANYBODY: Final = "User:*"
ANY_HOST: Final = "*"
HEARD_S: Final = 5.0
"""Until brokers have heard of what the controller took."""
LOOK_S: Final = 0.1

_KINDS: Final[dict[str, Any]] = {
    TOPIC: ResourceType.TOPIC,
    TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    CLUSTER: ResourceType.BROKER,  # librdkafka's word for it
}
_OPERATIONS: Final[dict[str, Any]] = {
    "read": AclOperation.READ,
    "write": AclOperation.WRITE,
    "create": AclOperation.CREATE,
    "delete": AclOperation.DELETE,
    "alter": AclOperation.ALTER,
    "describe": AclOperation.DESCRIBE,
    "describe-configs": AclOperation.DESCRIBE_CONFIGS,
}
_IMPLIED_BY: Final[dict[Any, frozenset[Any]]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Brokers read an ACL for one operation as one for another, too."""


class AclReport(NamedTuple):
    """Says which of the rights that a principal needs it has not."""

    missing: tuple[KafkaRight, ...]
    denied: tuple[KafkaRight, ...]
    """An ACL forbids these; that counts more than any that allows them."""
    made: int = 0


def look(
    access: KafkaAccess,
    principal: str,
    rights: Sequence[KafkaRight],
    *,
    apply: bool = False,
    timeout_s: float = kafka_conf.ADMIN_S,
) -> AclReport:
    """Look which rights the principal lacks, and make their ACLs if `apply`. Each question to a broker waits for
    `timeout_s`. UnauthorizedError: this process may not look at ACLs, or may not make them; RefusedError: the brokers
    have no ACLs; UnreachableError: no broker answers."""
    admin = _client(access)
    _reach(access, admin, timeout_s)
    ask = partial(_ask, access, admin, timeout_s)
    _check_allowed(access, admin, ask)
    report = _judged(ask(admin.describe_acls(_FILTER)), principal, rights)
    if not (apply and report.missing):
        return report
    for future in admin.create_acls([_binding(principal, right) for right in report.missing]).values():
        ask(future)
    after = _seen(lambda: _judged(ask(admin.describe_acls(_FILTER)), principal, rights))
    return after._replace(made=len(report.missing) - len(after.missing))


def _seen(found: Callable[[], AclReport]) -> AclReport:
    """Return what the brokers have once they know what was made: the controller takes it, and brokers hear of it some
    time later. What they do not show in time counts as missing."""
    until = time.monotonic() + HEARD_S
    while (after := found()).missing and time.monotonic() < until:
        time.sleep(LOOK_S)
    return after


def _client(access: KafkaAccess) -> Any:
    return kafka_conf.client(AdminClient, access, kafka_conf.common)


def _reach(access: KafkaAccess, admin: Any, timeout_s: float) -> None:
    """Raise UnreachableError if no broker answers in time, UnauthorizedError if they let this process not in."""
    try:
        admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        if access.security.protocol != PLAINTEXT:
            refusals.prove(access, admin, partial(_client, access))
        raise kafka_conf.unreachable(access, error.args[0], admin) from None


def _check_allowed(access: KafkaAccess, admin: Any, ask: Callable[[Any], Any]) -> None:
    """Raise UnauthorizedError if this process may not look at ACLs, RefusedError if there are none: librdkafka shows an
    empty list in both cases."""
    found = ask(admin.describe_cluster(include_authorized_operations=True))
    allowed = set(found.authorized_operations or ())
    if not allowed & {AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.ALL}:
        said = refusals.denied(access, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
        raise UnauthorizedError(said, address=str(access))
    resource = ConfigResource(ResourceType.BROKER, str(found.nodes[0].id))
    settings = ask(admin.describe_configs([resource])[resource])
    if "authorizer.class.name" in settings and not settings["authorizer.class.name"].value:
        raise RefusedError(
            f"Kafka at {access} has no authorizer (authorizer.class.name): whoever it lets in may do everything",
            address=str(access),
        )


def own_lack(access: KafkaAccess, rights: Sequence[KafkaRight], timeout_s: float) -> list[KafkaRight]:
    """Return the rights to topics that this process lacks, as the brokers say. They tell nobody of transactional ids,
    or of topics that are not there yet, and of themselves only who may describe them. A topic that may not even be
    described is not told of."""
    admin = _client(access)
    _reach(access, admin, timeout_s)
    named = {
        t: [r for r in rights if r.resource == TOPIC and _names(r, t)]
        for t in admin.list_topics(timeout=timeout_s).topics
    }
    topics = sorted(topic for topic, wanted in named.items() if wanted)
    if not topics:
        return []
    asked = admin.describe_topics(TopicCollection(topics), include_authorized_operations=True)
    return [
        right._replace(name=topic, prefixed=False)
        for topic in topics
        for allowed in [set(_ask(access, admin, timeout_s, asked[topic]).authorized_operations or ())]
        for right in named[topic]
        if not allowed & _sufficient(right)
    ]


def _sufficient(right: KafkaRight) -> set[Any]:
    """Return the operations of which one is enough."""
    operation = _OPERATIONS[right.operation]
    return {operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())}


def _names(right: KafkaRight, topic: str) -> bool:
    return topic.startswith(right.name) if right.prefixed else topic == right.name


def _ask(access: KafkaAccess, admin: Any, timeout_s: float, future: Any) -> Any:
    try:
        return future.result(timeout_s)
    except TimeoutError:
        raise kafka_conf.unreachable(access, KafkaError(KafkaError._TIMED_OUT), admin) from None
    except KafkaException as e:
        error = e.args[0]
        if error.code() in refusals.DENIED:
            raise UnauthorizedError(refusals.denied(access, error), address=str(access)) from None
        raise kafka_conf.unreachable(access, error, admin) from None


_ANY: Any = None
_FILTER: Final = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)


def _binding(principal: str, right: KafkaRight) -> Any:
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    operation = _OPERATIONS[right.operation]
    return AclBinding(
        _KINDS[right.resource], right.name, pattern, principal, ANY_HOST, operation, AclPermissionType.ALLOW
    )


def _judged(acls: Iterable[Any], principal: str, rights: Sequence[KafkaRight]) -> AclReport:
    ours = [acl for acl in acls if acl.principal in (principal, ANYBODY)]
    allowing = [a for a in ours if a.permission_type == AclPermissionType.ALLOW and a.host == ANY_HOST]
    denying = [a for a in ours if a.permission_type == AclPermissionType.DENY]
    missing = tuple(r for r in rights if not any(_covers(acl, r) for acl in allowing))
    return AclReport(missing, tuple(r for r in rights if any(_forbids(acl, r) for acl in denying)))


def _covers(acl: Any, right: KafkaRight) -> bool:
    """Say whether the ACL is for all that the right names."""
    if acl.restype != _KINDS[right.resource] or acl.operation not in _sufficient(right):
        return False
    if acl.resource_pattern_type == ResourcePatternType.PREFIXED:
        return right.name.startswith(acl.name)
    return acl.name == "*" or (acl.name == right.name and not right.prefixed)


def _forbids(acl: Any, right: KafkaRight) -> bool:
    """Say whether the ACL is for some of what the right names."""
    if acl.restype != _KINDS[right.resource] or acl.operation not in (_OPERATIONS[right.operation], AclOperation.ALL):
        return False
    if acl.resource_pattern_type == ResourcePatternType.PREFIXED:
        return right.name.startswith(acl.name) or (right.prefixed and acl.name.startswith(right.name))
    return acl.name == "*" or acl.name == right.name or (right.prefixed and acl.name.startswith(right.name))
