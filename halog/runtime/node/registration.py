"""Keeps a node registered with the coordinator: a registration ends with its session there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from halog.errors import HalogError
from halog.metadata import nodes
from halog.metadata.nodes import NodeInfo
from halog.ports import Coordinator, SessionState, UnknownResult
from halog.runtime.client.caller import Asker
from halog.runtime.host.host import Host

logger = logging.getLogger("halog.node")

AGAIN_S = 0.2
"""Pause before the coordinator is asked again for what it did not answer."""


class Registration:
    """A node's `Registration` is made when it joins, and again whenever a session was lost. `wait_s`: how long the
    registration of another run is waited for to end. `lives`: see `nodes.register`."""

    def __init__(
        self,
        coordinator: Coordinator,
        info: NodeInfo,
        wait_s: float,
        asker: Asker,
        host: Host | None,
        lives: Callable[[NodeInfo], bool | None],
    ) -> None:
        self._lives = lives
        self._coordinator = coordinator
        self.info = info
        """What the node says of itself."""
        self._wait_s = wait_s
        self._asker = asker
        self._host = host
        self.state = SessionState.CONNECTED

    def is_connected(self) -> bool:
        """Say whether the session sees registrations now."""
        return self.state is SessionState.CONNECTED

    def session_changed(self, state: SessionState) -> None:
        """Take the session's new state; called by the coordinator's thread."""
        lost_before = self.state is SessionState.LOST
        self.state = state
        logger.info("coordinator session: %s", state.value)
        if self._host is not None and (state is SessionState.LOST or lost_before):
            self._host.leasing.session_lost()
        if state is SessionState.CONNECTED and lost_before and not self._asker.closed:
            threading.Thread(target=self._register_again, name="halog-register", daemon=True).start()

    def register(self, addresses: tuple[str, ...]) -> None:
        """Register, reached at these addresses, the preferred one first. DuplicateLocationError."""
        first = addresses[0] if addresses else ""
        self.info = msgspec.structs.replace(self.info, address=first, addresses=addresses)
        nodes.register(self._coordinator, self.info, self._wait_s, self._lives)

    def _register_again(self) -> None:
        """The old session took our registration with it. Tried until it is there, or the session is lost again."""
        while not self._asker.closed and self.state is not SessionState.LOST:
            try:
                nodes.register(self._coordinator, self.info, self._wait_s, self._lives)
                break
            except (HalogError, UnknownResult) as e:
                logger.warning("could not register again, going on trying: %s", e)
                time.sleep(AGAIN_S)
        if self._host is not None:
            for copy in list(self._host.copies.values()):
                self._host.refresh_table(copy)

    def unregister(self) -> None:
        """Take the registration back, if it is this run's."""
        path = f"nodes/{self.info.name}"
        try:
            found = self._coordinator.get(path)
            if found is not None and nodes.is_registration(found.data, self.info):
                self._coordinator.delete(path)
        except (HalogError, UnknownResult) as error:
            logger.debug("could not unregister; the session will end by itself: %s", error)
