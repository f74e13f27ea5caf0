"""This module decodes znodes. An error names the znode, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from logging import Logger
from typing import Generic, TypeVar

import msgspec

from halog.errors import CoordinatorError
from halog.ports import Coordinator

T = TypeVar("T")


class ZnodeFormat(Generic[T]):
    """A `ZnodeFormat` reads the znodes of one kind."""

    def __init__(self, decode: Callable[[bytes], T], fault: str) -> None:
        """Take `fault` for what is said of a znode that cannot be decoded, as "holds no plan"."""
        self._decode = decode
        self._fault = fault

    def decode(self, path: str, data: bytes, **evidence: object) -> T:
        """Return the value. Raises CoordinatorError, with this evidence, if it is none."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise CoordinatorError(f"znode {path} {self._fault}: {e}", **evidence) from e

    def read(self, coordinator: Coordinator, path: str, **evidence: object) -> T | None:
        """Return what stands there; None: nothing. Raises CoordinatorError as `decode`."""
        found = coordinator.get(path)
        return None if found is None else self.decode(path, found.data, **evidence)

    def read_version(self, coordinator: Coordinator, path: str, **evidence: object) -> tuple[T | None, int]:
        """Return what stands there, and the znode's version; (None, -1): nothing. Raises CoordinatorError as
        `decode`."""
        found = coordinator.get(path)
        return (None, -1) if found is None else (self.decode(path, found.data, **evidence), found.version)

    def decode_or_none(self, path: str, data: bytes | None, logger: Logger) -> T | None:
        """Return the value; None where there is none, and for what cannot be decoded, of another version perhaps: this
        is logged."""
        try:
            return None if data is None else self.decode(path, data)
        except CoordinatorError as e:
            logger.warning("%s", e)
            return None

    def read_or_none(self, coordinator: Coordinator, path: str, logger: Logger) -> T | None:
        """Return what stands there, as `decode_or_none` does."""
        found = coordinator.get(path)
        return self.decode_or_none(path, None if found is None else found.data, logger)
