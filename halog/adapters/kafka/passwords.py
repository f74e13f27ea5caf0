"""This module gives clients that run another password, once the file that holds it was replaced (N5, O4).

A connection that stands keeps what it began with; the next one shows the new password. So the old one may be taken
back when all processes have looked: there is no restart.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from typing import Any, Final

from confluent_kafka import KafkaException

from halog.adapters.kafka.access import KafkaAccess
from halog.config.kafka_security import BY_PASSWORD
from halog.errors import ConfigError

log = logging.getLogger("halog.kafka")

LOOK_S: Final = 2.0
"""How often the file is looked at: one call to the kernel."""

_lock = threading.Lock()
_living: dict[KafkaAccess, weakref.WeakSet[Any]] = {}


def may_change(access: KafkaAccess) -> bool:
    """Say whether these clients have a password that stands in a file."""
    security = access.security
    by_password = security.has_sasl and security.mechanism in BY_PASSWORD
    return by_password and security.password is not None and security.password.file is not None


@functools.cache
def followed(make: Any) -> Any:
    """Return a kind of client that can be found as long as it lives; those of the library cannot."""
    return type(make.__name__, (make,), {}) if isinstance(make, type) else make


def follow(access: KafkaAccess, client: Any) -> None:
    """Find this client when the password changes."""
    with _lock:
        _living.setdefault(access, weakref.WeakSet()).add(client)


class PasswordWatch:
    """A `PasswordWatch` looks at one file, on a thread of its own, until it is closed."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._seen = self._state()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="halog-kafka-password", daemon=True)

    def begin(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(LOOK_S)

    def look(self) -> bool:
        """Look once; say whether clients were given another password."""
        state = self._state()
        if state == self._seen or state is None:
            return False
        try:
            found = self._access.librdkafka()
        except ConfigError as error:
            log.warning("the password of Kafka at %s changed, and cannot be used: %s", self._access, error)
            self._seen = state
            return False
        self._seen = state
        with _lock:
            clients = list(_living.get(self._access, ()))
        for client in clients:
            try:
                client.set_sasl_credentials(found["sasl.username"], found["sasl.password"])
            except (KafkaException, RuntimeError) as error:  # it is closed just now
                log.debug("a client keeps its password: %s", error)
        log.info("the password of Kafka at %s was read anew, for connections to come", self._access)
        return True

    def _state(self) -> tuple[int, int, int] | None:
        password = self._access.security.password
        assert password is not None
        assert password.file is not None
        try:
            at = os.stat(password.file)
        except OSError:
            return None
        return at.st_mtime_ns, at.st_size, at.st_ino

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
