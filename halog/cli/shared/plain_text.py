"""This module says which nodes take plain text from other machines, as they tell in their status (N5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain_text_of(said: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what to tell an operator of each such node, by node. One of an older halog does not say."""
    told = {node: status.get("plain_text") for node, status in sorted(said.items())}
    return {node: _text(plain) for node, plain in told.items() if isinstance(plain, Mapping)}


def _text(plain: Mapping[str, Any]) -> str:
    until = plain.get("until") or "no day that its file names"
    return f"takes plain text at {plain.get('address')} until {until} (node_tls is {plain.get('node_tls')})"
