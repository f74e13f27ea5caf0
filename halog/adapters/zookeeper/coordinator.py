"""This module implements the Coordinator port on ZooKeeper (kazoo), for one cluster under `/halog/<cluster>`.

It never uses a kazoo recipe: its locks outlive their session and its elections do not interrupt the leader (reliability
fact 6). This is ours instead:

    - States: SUSPENDED at once; LOST when ZooKeeper says so, or by our own timer one session timeout after SUSPENDED,
      whichever is first; a session silently replaced is LOST, then CONNECTED.
    - Watches are set anew at every CONNECTED and read again after each event, so the newest value is told last.
    - kazoo's threads never run a caller's code: a dispatcher does. Nor do they ever call kazoo: another dispatcher
      does. They note what happened, and return; no request waits for them (`halog.adapters.zookeeper.wakeup`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from halog.adapters.znode_size import check_size
from halog.adapters.zookeeper.access import PLAIN, QuietLogger, ZooKeeperAccess
from halog.adapters.zookeeper.access_errors import check_identity, no_rights, tls_refused
from halog.adapters.zookeeper.acls import ZnodeWalk
from halog.adapters.zookeeper.callback_thread import Dispatcher
from halog.adapters.zookeeper.collection import BATCH, PATIENCE_S, MembersWatch
from halog.adapters.zookeeper.fork import left_to_the_parent
from halog.adapters.zookeeper.reachability import LOOK_S, STEPS, lacks_chroot, no_chroot, silence
from halog.adapters.zookeeper.version_marks import MarkWriter, member_of
from halog.adapters.zookeeper.wakeup import CountingHandler
from halog.adapters.zookeeper.watch import ChildrenWatch, DataWatch, Watch
from halog.errors import ClosedError, CoordinatorError, UnreachableError, VersionError, ZnodeAccessError
from halog.ports import SessionState, UnknownResult, Versioned

log = logging.getLogger("halog.zk")
SESSION_TIMEOUT_MS = 1_000  # twice the embedded server's tick of 500 ms: the shortest ZooKeeper grants
RECONNECT_S = 0.02  # a restarted server is found within one such pause
RECONNECT_MAX_S = 0.1
ANSWER_S = 5.0  # a server that holds a request longer is as good as silent; its outcome is then unknown
END_S = 0.3
"""A command waits no longer for the end of its session. ZooKeeper ends by itself what nobody renews."""
_NO_ANSWER = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, KazooTimeoutError)


class ZkCoordinator:
    """Has one session at a time on the servers in `hosts` ("host:port,host:port")."""

    def __init__(
        self,
        hosts: str,
        cluster: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        answer_s: float = ANSWER_S,
        patience_s: float = 0.0,
        access: ZooKeeperAccess = PLAIN,
    ) -> None:
        """Prepare the session. `patience_s` says how long to wait at the beginning for servers that are there and busy,
        and for a connection that breaks meanwhile: whoever joins needs all that it asks for, until it says `joined`.
        `access` says how the servers are spoken to, and as whom."""
        self._root = f"/halog/{cluster}"
        self._hosts = hosts
        self._access = access
        self._handler = CountingHandler(access.tls)
        self._timeout_s = session_timeout_ms / 1000
        self._answer_s = answer_s
        self._patience_s = patience_s
        self._patient_until = 0.0
        self._join_by = math.inf
        """Until it says `joined`, a caller that waits for so long waits no longer for all that it asks."""
        self._hurried = False
        self._client: Any = KazooClient(
            hosts=hosts,
            timeout=self._timeout_s,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RECONNECT_S, backoff=1.5, max_delay=RECONNECT_MAX_S, max_jitter=0.1
            ),
            command_retry=KazooRetry(max_tries=0),
            handler=self._handler,
            logger=QuietLogger(log),
            **access.arguments(),
        )
        left_to_the_parent(self._client)
        self._dispatch: Dispatcher | None = None
        self._arming: Dispatcher | None = None
        """Sets watches: it calls kazoo where kazoo's own threads must not."""
        self._on_state: Callable[[SessionState], None] = lambda state: None
        self._lock = threading.Lock()
        self._state = SessionState.LOST
        self._session: object = None
        self._timer: threading.Timer | None = None
        self._watches: list[Watch | MembersWatch] = []
        self._marking = MarkWriter(self._client, self._abs, self._write)
        self._connected = threading.Event()
        self._closed = False

    # ---- session

    @property
    def session_id(self) -> int:
        """Return ZooKeeper's number of the session, 0 without one; for tests and `halog doctor`."""
        return int((self._client.client_id or (0,))[0] or 0)

    def connect(self, on_state: Callable[[SessionState], None], wait_s: float | None = None) -> None:
        self._on_state = on_state
        self._patient_until = time.monotonic() + self._patience_s
        if wait_s is not None:
            self._answer_s = min(self._answer_s, wait_s)
            self._join_by = time.monotonic() + wait_s
            self._hurried = True
        self._dispatch = Dispatcher("zk")
        self._arming = Dispatcher("zk-watches")
        self._client.add_listener(self._changed)
        self._client.start_async()
        try:
            self._begin(max(self._timeout_s, self._answer_s) if wait_s is None else wait_s)
        except BaseException:
            self.close()
            raise

    def joined(self) -> None:
        self._patient_until = 0.0
        self._join_by = math.inf

    def _begin(self, at_least_s: float) -> None:
        """Wait for a session, and check that the place to work in exists. To look why there is none is part of the
        wait."""
        now = time.monotonic()
        look_s = min(STEPS * LOOK_S, at_least_s / 2)
        if not self._connected.wait(at_least_s - look_s):
            why = tls_refused(self._hosts, self._access, self._handler.tls_error) or silence(self._hosts, look_s)
            until = now + (max(at_least_s, self._patience_s) if why.busy else at_least_s)
            if not self._connected.wait(max(0.0, until - time.monotonic())):
                raise UnreachableError(f"ZooKeeper at {self._hosts} does not answer: {why.text}", address=self._hosts)
        with suppress(*_NO_ANSWER):  # whoever asks for something next is told
            left_s = max(0.0, self._answer_by() - time.monotonic())
            if lacks_chroot(self._client, left_s):
                raise no_chroot(self._hosts, self._client.chroot)
            self._check_rights(left_s)

    def _check_rights(self, within_s: float) -> None:
        """Look whether the cluster's place is ours to use: a password that is wrong does not end a session."""
        check_identity(self._client, self._access, within_s)
        try:
            self._client.get_async(self._root).get(timeout=within_s)
        except NoAuthError:
            raise self._no_rights("read", "") from None
        except NoNodeError:
            return

    def _changed(self, kazoo_state: str) -> None:
        """Note a state and return: this runs on kazoo's connection thread. (None: kazoo keeps the listener.)"""
        if kazoo_state == KazooState.CONNECTED:
            self._on_connected()
        elif kazoo_state == KazooState.SUSPENDED:
            self._on_suspended()
        else:
            self._enter(SessionState.LOST)
            if self._client.client_state == KeeperState.CLOSED and self._dispatch is not None:
                self._dispatch.put(self._begin_again)

    def _begin_again(self) -> None:
        """Begin the conversation again: kazoo's connection thread ends for good at an answer it did not expect, and a
        node must not be alone for that."""
        if not self._closed:
            log.warning("the conversation with ZooKeeper broke; it is begun again")
            self._client.start_async()

    def _on_connected(self) -> None:
        session = self.session_id
        if self._session not in (None, session):
            self._enter(SessionState.LOST)  # handed out silently
        self._session = session
        self._enter(SessionState.CONNECTED)
        self._connected.set()
        self._arm_from(0)

    def _arm_from(self, first: int) -> None:
        """Set all watches anew, some at a time: one that fires meanwhile is read before the next ones."""
        if first < len(self._watches):
            self._later(lambda: self._arm_batch(first))

    def _arm_batch(self, first: int) -> None:
        asked = [watch.arm() for watch in self._watches[first : first + BATCH]]
        asked[-1].wait(PATIENCE_S)
        if self._client.connected:  # else the next CONNECTED begins anew
            self._arm_from(first + BATCH)

    def _on_suspended(self) -> None:
        self._enter(SessionState.SUSPENDED)
        with self._lock:
            if self._state is SessionState.SUSPENDED and not self._closed:
                self._timer = threading.Timer(self._timeout_s, self._enter, (SessionState.LOST,), {"by_timer": True})
                self._timer.name, self._timer.daemon = "halog-zk-timer", True
                self._timer.start()

    def _enter(self, state: SessionState, *, by_timer: bool = False) -> None:
        with self._lock:
            if by_timer and self._state is not SessionState.SUSPENDED:
                return  # reconnected just now
            if state is self._state or (state is SessionState.SUSPENDED and self._state is SessionState.LOST):
                return  # LOST is only left by CONNECTED
            self._state = state
            if self._timer is not None and not by_timer:
                self._timer.cancel()
            if self._dispatch is not None:
                self._dispatch.put(lambda: self._on_state(state), urgent=True)
        log.debug("session %s", state.value)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._client.remove_listener(self._changed)
        if not self._hurried:
            self._end()
            return
        ending = threading.Thread(target=self._end, name="halog-zk-end", daemon=True)
        ending.start()
        ending.join(END_S)

    def _end(self) -> None:
        """End the session. A server that does not answer is waited for as long as kazoo waits: ten seconds or more."""
        try:
            self._client.stop()
            self._client.close()
        finally:
            for own in (self._arming, self._dispatch):
                if own is not None:
                    own.close()

    # ---- reads

    def get(self, path: str) -> Versioned | None:
        self._ready()
        return self._answered(self._abs(path), self._client.get_async(self._abs(path)))

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self._ready()
        found = list[Versioned | None]()
        for first in range(0, len(paths), BATCH):
            batch = [self._abs(path) for path in paths[first : first + BATCH]]
            found += map(self._answered, batch, [self._client.get_async(path) for path in batch])
        return found

    def _answered(self, path: str, asked: Any) -> Versioned | None:
        first = [asked]
        try:
            data, stat = self._read(path, lambda: first.pop() if first else self._client.get_async(path))
        except NoNodeError:
            return None
        return Versioned(data, stat.version)

    def children(self, path: str) -> list[str]:
        self._ready()
        try:
            return sorted(self._read(path, lambda: self._client.get_children_async(self._abs(path))))
        except NoNodeError:
            return []

    def sync(self, path: str) -> None:
        self._ready()
        self._read(path, lambda: self._client.sync_async(self._abs(path)))

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        self._add(DataWatch(self._client, self._abs(path), self._soon, self._deliver, partial(changed, path)))

    def watch_children(self, path: str, changed: Callable[[list[str]], None]) -> None:
        self._add(ChildrenWatch(self._client, self._abs(path), self._soon, self._deliver, changed))

    def watch_members(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        self._add(MembersWatch(self._client, self._abs, path, self._soon, self._later, self._deliver, changed))

    def _add(self, watch: Watch | MembersWatch) -> None:
        self._watches.append(watch)
        self._soon(watch.arm)

    def _later(self, job: Callable[[], object]) -> None:
        """Run what need not be first."""
        if self._arming is not None:
            self._arming.put(job)

    def _soon(self, job: Callable[[], object]) -> None:
        """Run what one of kazoo's threads must not do itself."""
        if self._arming is not None:
            self._arming.put(job, urgent=True)

    def _deliver(self, job: Callable[[], object]) -> None:
        if self._dispatch is not None:
            self._dispatch.put(job)

    def znodes(self, patience_s: float = 0.0) -> ZnodeWalk:
        """Return a walk over the cluster's znodes, for commands that look at who may use them. `patience_s`: how long
        each step waits for a server that falls silent."""
        self._ready()
        return ZnodeWalk(self._client, self._root, self._answer_s, patience_s)

    # ---- writes

    def set(self, path: str, data: bytes, version: int) -> int:
        self._ready()
        check_size(path, data)
        try:
            if member_of(path):
                stat = self._marking.set(path, data, version)
            else:
                stat = self._write(f"set {path}", self._client.set_async(self._abs(path), data, version))
        except BadVersionError:
            raise VersionError(f"{path} does not have version {version}", path=path, version=version) from None
        except NoNodeError:
            raise CoordinatorError(f"{path} does not exist", path=path) from None
        except NoAuthError:
            raise self._no_rights("set", path) from None
        return int(stat.version)

    def confirm(self, path: str, version: int) -> None:
        """Confirm a version by a multi that only checks: the leader orders it among the writes, and a quorum agrees."""
        self._ready()
        asked = self._client.transaction()
        asked.check(self._abs(path), version)
        (found,) = self._write(f"confirm {path}", asked.commit_async())
        if isinstance(found, BadVersionError):
            raise VersionError(f"{path} does not have version {version}", path=path, version=version)
        if isinstance(found, NoAuthError):
            raise self._no_rights("confirm", path)
        if isinstance(found, Exception):
            raise CoordinatorError(f"{path} cannot be confirmed: {type(found).__name__}", path=path)

    def delete(self, path: str, version: int = -1) -> bool:
        self._ready()
        try:
            if member_of(path):
                self._marking.delete(path, version)
            else:
                self._write(f"delete {path}", self._client.delete_async(self._abs(path), version))
        except NoNodeError:
            return False
        except BadVersionError:
            raise VersionError(f"{path} does not have version {version}", path=path, version=version) from None
        except NotEmptyError:
            raise CoordinatorError(f"{path} has children", path=path) from None
        except NoAuthError:
            raise self._no_rights("delete", path) from None
        return True

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        self._ready()
        check_size(path, data)
        deadline = self._answer_by()
        while True:
            try:
                if member_of(path) and not ephemeral:
                    self._marking.create(path, data)
                else:
                    request = self._client.create_async(self._abs(path), data, ephemeral=ephemeral, makepath=True)
                    self._write(f"create {path}", request)
                return True
            except NodeExistsError:
                return ephemeral and self._is_ours(path, data)
            except NoAuthError:
                raise self._no_rights("create", path) from None
            except UnknownResult:
                if not self._reconnected(deadline):
                    raise

    def _is_ours(self, path: str, data: bytes) -> bool:
        """Say whether there is an ephemeral node of this very session with these bytes: made by a create whose reply
        was lost."""
        try:
            found, stat = self._read(path, lambda: self._client.get_async(self._abs(path)))
        except NoNodeError:
            return False
        return bool(stat.ephemeralOwner == self.session_id and found == data)

    def _reconnected(self, deadline: float) -> bool:
        while time.monotonic() < deadline and not self._closed:
            if self._client.connected:
                return True
            time.sleep(RECONNECT_S)
        return False

    # ---- requests

    def _no_rights(self, what: str, path: str) -> ZnodeAccessError:
        return no_rights(what, path if path.startswith(self._root) else self._abs(path), self._access)

    def _abs(self, path: str) -> str:
        return (self._root + "/" + path.strip("/")).rstrip("/")

    def _ready(self) -> None:
        """Check the connection before a request: without one nothing is sent (kazoo would queue it), and the outcome is
        known."""
        there = self._client.connected or self._reconnected(self._patient_until)
        if self._closed:
            raise ClosedError("the coordinator is closed")
        if not there:
            raise UnreachableError("ZooKeeper is not connected", address=self._hosts, coordinator=True)

    def _answer_by(self) -> float:
        """Return until when an answer to what is asked now is waited for."""
        return min(time.monotonic() + self._answer_s, self._join_by)

    def _read(self, path: str, ask: Callable[[], Any]) -> Any:
        """Ask, and ask again where the connection broke under it and is back in time: a read changes nothing."""
        deadline = self._answer_by()
        while True:
            try:
                return ask().get(timeout=max(0.0, deadline - time.monotonic()))
            except _NO_ANSWER as e:
                if self._closed:
                    raise ClosedError("the coordinator is closed") from None
                if isinstance(e, ConnectionLoss) and self._reconnected(deadline):
                    continue
                why = f"ZooKeeper does not answer ({type(e).__name__})"
                raise UnreachableError(why, address=self._hosts, coordinator=True) from None
            except NoNodeError:
                raise
            except NoAuthError:
                raise self._no_rights("read", path) from None
            except KazooException as e:
                raise CoordinatorError(f"ZooKeeper refused: {type(e).__name__} {e}") from None

    def _write(self, what: str, request: Any) -> Any:
        try:
            return request.get(timeout=max(0.0, self._answer_by() - time.monotonic()))
        except _NO_ANSWER as e:
            raise UnknownResult(f"{what}: no answer ({type(e).__name__})") from None
        except (NoNodeError, BadVersionError, NodeExistsError, NotEmptyError, NoAuthError):
            raise
        except KazooException as e:
            raise CoordinatorError(f"ZooKeeper refused {what}: {type(e).__name__} {e}") from None
