"""Importing the light parts pulls in nothing else: Spark executors import `halog.errors` and `mappers`."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
before = set(sys.modules)
import {module}
ours = {{m for m in set(sys.modules) - before if m.split('.')[0] in ('halog', 'confluent_kafka', 'kazoo', 'rocksdict')}}
print(sorted(ours))
"""


@pytest.mark.parametrize(
    ("module", "loaded"), [("halog", ["halog"]), ("halog.errors", ["halog", "halog.errors"]), ("mappers", [])]
)
def test_light_modules_stay_light(module: str, loaded: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)], capture_output=True, text=True, check=True
    )
    assert set(names_in(done.stdout)) - {"halog", "halog.errors"} == set(loaded) - {"halog", "halog.errors"}


def names_in(text: str) -> list[str]:
    """The printed list."""
    return [name.strip(" '\n") for name in text.strip("[]\n").split(",") if name.strip(" '\n")]
