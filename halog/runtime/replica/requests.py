"""This module gives a copy's answers to those who wait for them. They leave after its lock was released; nothing is
decided here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from halog.core import results as res

logger = logging.getLogger("halog.partition")

Answer = Callable[[res.Result], None]


def tell_all(due: Sequence[tuple[Answer, res.Result]]) -> None:
    """Give each answer; a receiver that fails does not keep the others from theirs."""
    for answer, result in due:
        try:
            answer(result)
        except Exception:
            logger.exception("an answer could not be given")
