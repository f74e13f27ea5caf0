"""This module names the group `halog upgrade` with all its commands."""

from __future__ import annotations

import halog.cli.upgrade.can_rollback
import halog.cli.upgrade.finish
import halog.cli.upgrade.plan
import halog.cli.upgrade.start  # noqa: F401 - their commands belong to the group
from halog.cli.upgrade.group import upgrade as upgrade
