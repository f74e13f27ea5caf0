"""This module names the group `halog certs` with all its commands."""

from __future__ import annotations

import halog.cli.certs.create
import halog.cli.certs.reload
import halog.cli.certs.renew
import halog.cli.certs.rotate
import halog.cli.certs.show
import halog.cli.certs.sign  # noqa: F401 - their commands belong to the group
from halog.cli.certs.group import certs as certs
