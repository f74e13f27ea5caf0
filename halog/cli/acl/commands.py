"""This module names the group `halog acl` with all its commands."""

from __future__ import annotations

import halog.cli.acl.kafka
import halog.cli.acl.zookeeper  # noqa: F401 - its commands belong to the group
from halog.cli.acl.group import acl as acl
