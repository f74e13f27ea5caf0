"""This module bounds dictionaries: they forget their oldest entries.

Entries leave a dict at the front and join at the end, and deleted ones are skipped one by one until the dict is
rebuilt. So the first key is ever farther from the start, and taking the oldest entries one by one is quadratic: with a
full cache of 200,000 every new entry cost a hundred times what it should. So a full cache drops many entries at a time.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

SHARE = 16
"""One entry in so many is dropped at once. Thousands of entries then share the cost of the way to the oldest, and few
are missed."""


def make_room(cache: dict[Any, Any], limit: int) -> None:
    """Remove the oldest entries beyond `limit`, and a sixteenth of `limit` more."""
    if len(cache) > limit:
        for key in list(islice(cache, len(cache) - limit + limit // SHARE)):
            cache.pop(key, None)
