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

State = tuple[int, int, int]
"""What changes when the file does, as far as that can be seen without reading it."""

_lock = threading.Lock()
_living: dict[KafkaAccess, weakref.WeakKeyDictionary[Any, State | None]] = {}
"""The clients, and the file as it was before each of them read it."""


def may_change(access: KafkaAccess) -> bool:
    """Say whether these clients have a password that stands in a file."""
    security = access.security
    by_password = security.has_sasl and security.mechanism in BY_PASSWORD
    return by_password and security.password is not None and security.password.file is not None


def state_of(access: KafkaAccess) -> State | None:
    """Return how the file is now; None: it cannot be seen."""
    password = access.security.password
    assert password is not None
    assert password.file is not None
    try:
        at = os.stat(password.file)
    except OSError:
        return None
    return at.st_mtime_ns, at.st_size, at.st_ino


def followed(make: Any) -> Any:
    """Return a kind of client that can be found as long as it lives; those of the library cannot."""
    return _findable(make) if isinstance(make, type) else make


@functools.cache
def _findable(make: type) -> type:
    return type(make.__name__, (make,), {})


def follow(access: KafkaAccess, client: Any, state: State | None) -> None:
    """Find this client when the password changes. `state`: the file's, from before the client read it."""
    with _lock:
        _living.setdefault(access, weakref.WeakKeyDictionary())[client] = state


class PasswordWatch:
    """A `PasswordWatch` looks at one file, on a thread of its own, until it is closed."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._refused: State | None = None
        """The file that could not be used."""
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
        state = state_of(self._access)
        if state is None or state == self._refused:
            return False
        with _lock:
            stale = [client for client, seen in _living.get(self._access, {}).items() if seen != state]
        if not stale:
            return False
        try:
            found = self._access.librdkafka()
        except ConfigError as error:
            log.warning("the password of Kafka at %s changed, and cannot be used: %s", self._access, error)
            self._refused = state
            return False
        for client in stale:
            try:
                client.set_sasl_credentials(found["sasl.username"], found["sasl.password"])
            except (KafkaException, RuntimeError) as error:  # it is closed just now
                log.debug("a client keeps its password: %s", error)
            follow(self._access, client, state)
        log.info("the password of Kafka at %s was read anew, for connections to come", self._access)
        return True

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
