"""Bounded dictionaries that forget their oldest entries.

In a dict that entries leave at the front and join at the end, the first key is ever farther from the start: what was
deleted is skipped one by one until the dict is made anew. Taking the oldest one by one is quadratic, and with a full
cache of 200,000 every new entry cost a hundred times what it should. So a full cache gives up many at a time.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

SHARE = 16
"""One in so many is dropped at once: the way to the oldest is then paid for by thousands, and few are missed."""


def make_room(cache: dict[Any, Any], limit: int) -> None:
    """At most `limit` entries; beyond that the oldest go, a sixteenth of `limit` more than must."""
    if len(cache) > limit:
        for key in list(islice(cache, len(cache) - limit + limit // SHARE)):
            cache.pop(key, None)
