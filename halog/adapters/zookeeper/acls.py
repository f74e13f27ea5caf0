"""This module looks at the ACLs of a cluster's znodes, and sets those that are otherwise than they should be.

It walks in batches, from above, so what is set stays reachable for the rest of the walk. To set an ACL changes neither
data nor versions: nodes that run notice nothing. A walk that was ended half-way is done again, and sets what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL

from halog.adapters.zookeeper.access import ALL, WORLD, ZnodeOwner
from halog.errors import CoordinatorError, UnreachableError

BATCH: Final = 200
AGAIN_S: Final = 0.2
"""Between two attempts at a batch, where the server falls silent."""
T = TypeVar("T")
SHARED: Final = "/halog"
"""The znode above those of all clusters of a ZooKeeper. It may belong to whoever made it, but not to everybody."""


class ZnodeRights(NamedTuple):
    """Says who may do what to a znode. `acl` is None where this process may not even look."""

    path: str
    acl: tuple[ACL, ...] | None

    @property
    def is_open(self) -> bool:
        """Say whether everybody has a right to it."""
        return self.acl is not None and any(tuple(entry.id) == tuple(WORLD) for entry in self.acl)

    @property
    def owners(self) -> str:
        """Say who has rights, and which if they are not all."""
        if self.acl is None:
            return "somebody else, who does not show it"
        return ", ".join(map(_told, self.acl))

    def fits(self, wanted: Sequence[ACL]) -> bool:
        """Say whether this is the ACL that is wanted. What is above all clusters need only not be open."""
        if self.path == SHARED and not self.is_open:
            return True
        return self.acl is not None and set(self.acl) == set(wanted)


def _told(entry: ACL) -> str:
    who = str(ZnodeOwner(*entry.id))
    return who if entry.perms == ALL else f"{who} ({', '.join(entry.acl_list).lower()})"


class ZnodeWalk:
    """A `ZnodeWalk` goes over all znodes of a cluster, and the one above them. `client`: kazoo's, connected. Where
    the server falls silent, a batch is asked for again for `patience_s`, then that is an UnreachableError."""

    def __init__(self, client: Any, root: str, within_s: float, patience_s: float = 0.0) -> None:
        self._client = client
        self._root = root
        self._within_s = within_s
        self._patience_s = patience_s

    def rights(self) -> Iterator[list[ZnodeRights]]:
        """Yield them in batches. What goes meanwhile is left out; what comes may be."""
        yield self._patiently(partial(self._looked, [SHARED]))
        level = [self._root]
        while level:
            below = list[str]()
            for first in range(0, len(level), BATCH):
                paths = level[first : first + BATCH]
                found, names = self._patiently(partial(self._looked_below, paths))
                below += names
                yield found
            level = below

    def give(self, paths: Sequence[str], wanted: Sequence[ACL]) -> list[str]:
        """Set the ACL of znodes; return those that belong to somebody else."""
        return self._patiently(partial(self._given, paths, list(wanted)))

    def _patiently(self, batch: Callable[[], T]) -> T:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return batch()
            except UnreachableError:
                if time.monotonic() >= until:
                    raise
            time.sleep(AGAIN_S)

    def _given(self, paths: Sequence[str], wanted: list[ACL]) -> list[str]:
        asked = [self._client.set_acls_async(path, wanted) for path in paths]
        return [path for path, done in zip(paths, map(self._answer, asked), strict=True) if done == REFUSED]

    def _looked_below(self, paths: Sequence[str]) -> tuple[list[ZnodeRights], list[str]]:
        """Return also the paths of what is below these."""
        asked = [self._client.get_children_async(path) for path in paths]
        found = self._looked(paths)
        answers = zip(paths, map(self._answer, asked), strict=True)
        return found, [f"{path}/{name}" for path, names in answers if isinstance(names, list) for name in names]

    def _looked(self, paths: Sequence[str]) -> list[ZnodeRights]:
        asked = [self._client.get_acls_async(path) for path in paths]
        answers = zip(paths, map(self._answer, asked), strict=True)
        return [ZnodeRights(p, None if a == REFUSED else tuple(a[0])) for p, a in answers if a != GONE]

    def _answer(self, asked: Any) -> Any:
        try:
            return asked.get(timeout=self._within_s)
        except NoNodeError:
            return GONE
        except NoAuthError:
            return REFUSED
        except _NO_ANSWER as lost:
            said = f"ZooKeeper does not answer ({type(lost).__name__}); give the command again, it goes on"
            raise UnreachableError(said) from None
        except KazooException as error:
            said = f"ZooKeeper does not tell: {type(error).__name__}; give the command again, it goes on"
            raise CoordinatorError(said) from None


_NO_ANSWER: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    OperationTimeoutError,
    KazooTimeoutError,
)
GONE: Final = "gone"
REFUSED: Final = "refused"

Progress = Callable[[int, int], None]
"""Is told how many znodes were looked at, and how many of them set."""


class ZnodeReport(NamedTuple):
    """Says what a walk found and did. `wrong` are the znodes that are still otherwise than wanted."""

    znodes: int
    given: int
    open: int
    wrong: list[ZnodeRights]


def look(walk: ZnodeWalk, wanted: Sequence[ACL], *, apply: bool, progress: Progress) -> ZnodeReport:
    """Compare each ACL with the one that is wanted, and set it with `apply`."""
    seen, given, still_open, wrong = 0, 0, 0, list[ZnodeRights]()
    for batch in walk.rights():
        differing = [rights for rights in batch if not rights.fits(wanted)]
        refused = set(walk.give([r.path for r in differing], wanted)) if apply else {r.path for r in differing}
        left = [rights for rights in differing if rights.path in refused]
        seen, given, wrong = seen + len(batch), given + len(differing) - len(left), wrong + left
        still_open += sum(rights.is_open for rights in left)
        progress(seen, given)
    return ZnodeReport(seen, given, still_open, wrong)
