"""This module names the release of halog that this is, and the highest level that it knows (U1)."""

from __future__ import annotations

from typing import Final

RELEASE = "0.3.0.dev0"

LEVEL: Final = 1
"""The highest level of a cluster that this halog knows: what it can read, and may write once the cluster is there."""
