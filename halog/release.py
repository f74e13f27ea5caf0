"""This module names the release of halog that this is."""

from __future__ import annotations

RELEASE = "0.2.0.dev0"
