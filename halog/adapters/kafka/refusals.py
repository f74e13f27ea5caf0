"""This module keeps what brokers refuse, and why: librdkafka tells it beside the calls, which only time out.

It says what to do about it. It never opens a connection.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from halog.adapters.kafka.access import KafkaAccess
from halog.errors import LogAccessError, UnauthorizedError

log = logging.getLogger("halog.kafka")
LATELY_S: Final = 35.0
"""A refusal is the reason of what fails within so many seconds: longer than any call waits, and longer than the 30 for
which a client of librdkafka keeps silent about one that repeats itself."""
TOLD_S: Final = 60.0
"""The log file has it once in so many seconds."""
PROVE_S: Final = 5.0
REPEATED_S: Final = 10.0
"""So long it looks whether a refusal comes again."""
ASK_S: Final = 0.5
SURE_S: Final = 1.0
"""A broker that is going down or coming up may end a handshake: a refusal that lasts so long is one."""
DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What a broker answers to somebody it knows, who may not do what he asks for."""
_REFUSED: Final = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
_ALERT: Final = "SSL alert"
"""The other side ended TLS, and said why. librdkafka takes that for a line that broke."""
_ENDED: Final = "SSL handshake failed: Disconnected"
"""A port that knows no TLS; or a broker that is going down, or whatever stands in front of it."""


_NOISE: Final = re.compile(
    r"^\w+://\S+: |error:\w+:SSL routines::|: broker certificate could not be verified, .*"
    r"| \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)"
)
"""What differs each time, or is advice for another program."""


class _Refusal(NamedTuple):
    at: float
    told: float
    why: str
    sure: bool
    """False: it may be a broker that is away."""


_lock = threading.Lock()
_lately: dict[KafkaAccess, _Refusal] = {}
_denied: dict[tuple[KafkaAccess, str], float] = {}
"""When each of them was told last."""


def note(access: KafkaAccess, error: Any) -> bool:
    """Note an error event if it is a refusal, and say whether it is one."""
    text = error.str()
    if error.code() not in _REFUSED and not (
        error.code() == KafkaError._TRANSPORT and (_ALERT in text or _ENDED in text)
    ):
        return False
    why, now = _sentence(access, error), time.monotonic()
    with _lock:
        before = _lately.get(access)
        tells = before is None or before.why != why or now - before.told >= TOLD_S
        _lately[access] = _Refusal(now, now if tells or before is None else before.told, why, _ENDED not in text)
    if tells:
        log.warning("%s", why)
    return True


def lately(access: KafkaAccess, since: float | None = None, *, sure: bool = False) -> str | None:
    """Return why the brokers let nobody in, if that was told lately, or since then; None: it was not. `sure`: leave out
    what may be a broker that is away."""
    with _lock:
        found = _lately.get(access)
    since = time.monotonic() - LATELY_S if since is None else since
    return None if found is None or found.at < since or found.sure < sure else found.why


def prove(access: KafkaAccess, admin: Any, another: Callable[[], Any]) -> None:
    """Look whether the brokers let this process in. UnauthorizedError, which says why not. A broker that is away, or
    just starting, is no refusal: whoever asks it next finds out. `another` makes another client: one that was refused
    tells it twice, then it keeps silent."""
    began = time.monotonic()
    first, until, renewed = math.inf, began + PROVE_S, False
    while (now := time.monotonic()) < until:
        if now >= first + SURE_S and not renewed:
            admin, renewed = another(), True
        try:
            admin.list_topics(timeout=ASK_S)
            return
        except KafkaException as error:
            admin.poll(0)  # which hears why
            if error.args[0].code() in DENIED:
                raise UnauthorizedError(denied(access, error.args[0]), address=str(access)) from None
        if first == math.inf and lately(access, began, sure=True) is not None:
            first = time.monotonic()
            until = first + REPEATED_S
        why = lately(access, first + SURE_S, sure=True)
        if why is not None:
            raise UnauthorizedError(why, address=str(access))


def denied(access: KafkaAccess, error: Any) -> str:
    """Return what to say about something that a broker does not allow."""
    said = error.str() if "Request(" not in error.str() else KafkaError(error.code()).str()  # a controller's own words
    return (
        f"Kafka at {access} does not allow {_who(access)} what was asked for: {said}: "
        "give it the rights by the brokers' ACLs (`halog acl kafka --role ROLE --print` lists them)"
    )


def note_denied(access: KafkaAccess, error: Any, where: str) -> None:
    """Log that a broker does not allow something any more, now and then: whoever met it goes on trying."""
    now = time.monotonic()
    with _lock:
        tells = now - _denied.get((access, where), -TOLD_S) >= TOLD_S
        if tells:
            _denied[access, where] = now
    if tells:
        log.warning("%s: %s", where, denied(access, error))


def access_error(access: KafkaAccess, error: Any, where: str) -> LogAccessError:
    """Return the error for whoever reads or writes something that a broker does not allow."""
    return LogAccessError(f"{where}: {denied(access, error)}", address=str(access))


def _who(access: KafkaAccess) -> str:
    security = access.security
    return f"user {security.username}" if security.username is not None else "this process"


def _sentence(access: KafkaAccess, error: Any) -> str:
    text = _NOISE.sub("", error.str())
    if "certificate verify failed" in text:
        what = "has a certificate that is not trusted"
        todo = "did the authority of security.kafka.ca sign it, and does it name this host?"
    elif _ENDED in text:
        what, todo = "ended the connection", "is this a port for TLS, and is the broker up?"
    elif error.code() == KafkaError._TRANSPORT:
        what = f"does not let {_who(access)} in"
        todo = "does it trust the authority of security.kafka.cert, and is this the port for the configured protocol?"
    elif error.code() == KafkaError._SSL:
        what, todo = "was not spoken to by TLS", "is this a port for TLS, and are the files of security.kafka right?"
    elif access.security.token is not None or access.security.token_endpoint is not None:
        what, todo = f"does not let {_who(access)} in", "is the token of security.kafka one that the brokers take?"
    else:
        what = f"does not let {_who(access)} in"
        todo = "are mechanism, username and password of security.kafka as the brokers have them?"
    return f"Kafka at {access} {what}: {text}: {todo}"
