"""Answers of a copy to those who wait for them. They leave after its lock was released; nothing is decided here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from halog.core import results as res

logger = logging.getLogger("halog.partition")

Answer = Callable[[res.Result], None]


def tell_all(due: Sequence[tuple[Answer, res.Result]]) -> None:
    """One who cannot take his answer does not keep the others from theirs."""
    for answer, result in due:
        try:
            answer(result)
        except Exception:
            logger.exception("an answer could not be given")
