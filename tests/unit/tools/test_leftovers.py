"""What belongs to a run of the container tests that was killed, and what to one that goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.containers.available import is_left, run_name

SAYS = "from tests.containers.available import run_name; print(run_name(), flush=True); input()"


@pytest.mark.feature("O3")
def test_a_run_is_left_when_its_process_has_ended() -> None:
    assert not is_left(run_name())
    argv = [sys.executable, "-c", SAYS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        run = other.stdout.readline().strip()
        assert not is_left(run)
        other.kill()
    assert is_left(run)


@pytest.mark.feature("O3")
def test_a_run_is_left_though_another_process_has_its_number() -> None:
    """As after the machine was started again: the same numbers are given to others."""
    number, _, began = run_name().partition("-")
    assert is_left(f"{number}-{int(began) - 1}")
