"""What is given on the command line and can not be what it should is a usage error, whatever it is: exit code 2, and
nothing is changed."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from halog.cli import main as frame
from halog.signals import STOPPING
from tests.unit.cli.conftest import TOML, Cluster, running
from tests.unit.cli.every_command import CALLS
from tests.unit.cli.test_unknown_names import SITES, state

HUGE = "9" * 30
DEEP = "[" * 100_000
NO_TEXT = b"\xff\xfe".decode("utf-8", "surrogateescape")
GET = ("get",)
DELETE = ("delete", "--cluster", "ops")
SETTLE = ("conflicts", "settle", "--as", "source")
EXPLAIN = ("mapper", "explain")

KEYS = [
    ("Flight", "UA"),
    ("Flight", "UA", "1", "2"),
    ("Aircraft", "N1", "N2"),
    ("Flight", '["UA"]'),
    ("Flight", '["UA", 1, 2]'),
    ("Flight", '["UA", "x"]'),
    ("Flight", '["UA", true]'),
    ("Flight", '["UA", 1e400]'),
    ("Flight", "[1"),
    ("Flight", '{"a": 1}'),
    ("Flight", DEEP),
    ("Flight", "UA", "x"),
    ("Flight", "UA", HUGE),
    ("Aircraft", NO_TEXT),
]

WRONG: list[tuple[str, ...]] = [
    *((*command, *key) for command in (GET, DELETE, SETTLE, EXPLAIN) for key in KEYS if command != EXPLAIN or key[1:]),
    *((*command, "Aircraft", "--key-bytes", said) for command in (GET, DELETE) for said in ("zz", "123", "0x80", "-1")),
    *((*command, "Aircraft") for command in (GET, DELETE, SETTLE, EXPLAIN)),
    (*GET, "Aircraft", "N1", "--key-bytes", "80"),
    *((*SETTLE, "Flight", "UA", "1", "--fields", said) for said in ("{", "[1]", "1", "NaN", '{"a": ' * 100_000)),
    *(("log", "hold", "p-0", "x", "--for", said) for said in ("1x", "-1h", "0s", "90", "1.5h", "1h30m", HUGE + "s")),
    *(("partition", "designate", "p-0", "A", "--for", said) for said in ("soon", "")),
    ("log", "hold", "p-0", "a/b", "--for", "1h"),
    *(("log", "hold", "p-0", "x", "--for", "1h", "--offset", said) for said in ("-1", "x", HUGE)),
    ("log", "hold", "p-0", "x", "--for", "1h", "--reason", NO_TEXT),
    *(("log", "tail", "p-0", "-n", said) for said in ("-1", "x", HUGE)),
    *(("list", "Aircraft", "-n", said) for said in ("0", "x", HUGE)),
    *(("events", "-n", said) for said in ("-1", "x", HUGE)),
    *(("events", "--since", said) for said in ("yesterday", "2026-13-01", "", NO_TEXT)),
    ("events", "--code", "12x"),
    ("events", "--severity", "loud"),
    *(("txn", "list", "--outcomes", said) for said in ("-1", "x", HUGE)),
    *(("txn", "show", said) for said in ("zz", "00", "0" * 33)),
    *(("status", "--timeout", said) for said in ("0", "-1", "x", "nan", "inf", "1e300", "3e6")),
    *(("config", "show", "--version", said) for said in ("0", "x", HUGE)),
    *(("config", "diff", "--version", said) for said in ("0", "x", HUGE)),
    ("config", "activate", "--on", HUGE),
    ("config", "activate", "--comment", NO_TEXT),
    *(("partition", "require", "p-0", said) for said in ("x", "-1", HUGE)),
    ("partition", "priority", "p-0", "A", "highish"),
    *(("partition", "migrate", "p-0", "--nodes", said) for said in ("", ",", "B,B", "A,B,A")),
    *(("partition", "define", "p-0", "--node", "A", "--nodes", said) for said in ("", ",", "A,A")),
    *(("partition", "replicate", "p-0", "--nodes", said) for said in ("", ",", "B,B")),
    *(("partition", "migrate", "p-0", "--nodes", "A", "--sync", said) for said in ("-1", "x", HUGE)),
    *(("partition", "migrate", "p-0", "--nodes", "A", "--copy-rate", said) for said in ("-1", "x", "10MB", HUGE)),
    ("plan", "apply", "--at-once", HUGE),
    ("plan", "apply", "--at-once", "0"),
    *((*EXPLAIN, "--distribution", "--sample", said) for said in ("0", "x", HUGE)),
    *((*EXPLAIN, "--distribution", "--nodes", said) for said in ("0", "x", HUGE)),
    *((*EXPLAIN, "--distribution", "--partitions", said) for said in ("0", "x", HUGE)),
    ("recover", "--from-logs", "--store", "B"),
    ("recover", "--from-logs", "--store", "=x"),
    ("recover", "--from-logs", "--store", "B="),
    ("recover", "--from-logs", "--store", "B=no-such-directory"),
    ("restore", "--source", "west", "--from", "p-0"),
    ("restore", "--source", "west", "--active", "p-0="),
    ("up", "--kafka-port", "99999"),
    ("up", "--kafka-port", "x"),
    ("up", "--sites", "a,a"),
    ("demo", "--rows", "1"),
    ("demo", "--seed", "x"),
    ("node", "start", "--name", "A", "--switch-interval-us", "1"),
]

FILES: list[tuple[str, ...]] = [
    ("status", "--config", "NONE"),
    ("status", "--config", "DIRECTORY"),
    ("doctor", "--config", "NONE"),
    ("node", "start", "--config", "NONE"),
    ("config", "check", "NONE"),
    ("config", "check", "DIRECTORY"),
    ("config", "check", "BINARY"),
    ("config", "activate", "NONE"),
    ("config", "diff", "NONE"),
    ("import", "NONE"),
    ("import", "DIRECTORY"),
    ("export", "-o", "NONE/all.jsonl"),
    ("export", "-o", "DIRECTORY"),
    ("conflicts", "export", "-o", "NONE/all.jsonl"),
    ("conflicts", "export", "-o", "DIRECTORY"),
    ("history", "p-0", "--discarded", "--export", "NONE/all.jsonl"),
    ("history", "p-0", "--discarded", "--export", "DIRECTORY"),
    ("mapper", "explain", "Flight", "--distribution", "--keys", "NONE"),
    ("mapper", "explain", "Flight", "--distribution", "--keys", "DIRECTORY"),
    ("mapper", "explain", "Flight", "--distribution", "--keys", "BINARY"),
    ("mapper", "explain", "Flight", "--distribution", "--keys", "WRONG"),
    ("restore", "--source", "west", "--checkpoint", "BINARY"),
    ("rebalance", "--policy", "p", "--checkpoint", "BINARY"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all calls: none of them changes anything."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        toml = TOML.replace("[zones.home]", SITES + "[zones.home]").replace("[site]", '[site]\nname = "east"')
        with running(Cluster(tmp_path_factory.mktemp("arguments"), toml), monkeypatch) as made:
            made.create(made.Aircraft(tail="N1"), made.Flight(carrier="UA", flight=1))
            yield made


def named(words: tuple[str, ...]) -> str:
    return " ".join(w if len(w) < 40 else f"{w[:10]}…" for w in words).encode("ascii", "backslashreplace").decode()


@pytest.mark.feature("O1")
@pytest.mark.parametrize("words", WRONG, ids=named)
def test_what_can_not_be_what_it_should_is_a_usage_error(
    shared: Cluster, halog: Callable[..., Any], words: tuple[str, ...]
) -> None:
    before = state(shared)
    ran = halog(*words)
    assert (ran.code, ran.out) == (2, ""), ran
    assert "Error: " in ran.err or ran.err.startswith("halog: "), ran
    assert "bug" not in ran.err
    assert state(shared) == before


@pytest.mark.feature("O1")
@pytest.mark.parametrize("words", FILES, ids=named)
def test_a_file_that_is_not_there_or_something_else_is_a_usage_error(
    shared: Cluster, halog: Callable[..., Any], tmp_path: Path, words: tuple[str, ...]
) -> None:
    places = {name: str(tmp_path / name.lower()) for name in ("NONE", "DIRECTORY", "BINARY", "WRONG")}
    Path(places["DIRECTORY"]).mkdir()
    Path(places["BINARY"]).write_bytes(b"\xff\x00{")
    Path(places["WRONG"]).write_text("UA x\n")
    given = [places.get(word.split("/")[0], word) + ("/all.jsonl" if "/" in word else "") for word in words]
    before = state(shared)
    ran = halog(*given)
    assert (ran.code, ran.out) == (2, ""), ran
    assert next(p for p in places.values() if any(p in g for g in given)) in ran.err
    assert state(shared) == before


@pytest.mark.feature("O1")
def test_keys_that_are_right_are_found_by_words_json_and_bytes(shared: Cluster, halog: Callable[..., Any]) -> None:
    """So the errors above are of what is wrong in them."""
    shown = [halog("get", "Flight", *key, "--format", "json").json for key in (("UA", "1"), (json.dumps(["UA", 1]),))]
    assert shown[0] == shown[1]
    none = halog("get", "Flight", "--key-bytes", "80A0")
    assert (none.code, "no Flight has the key of the bytes 80a0" in none.err) == (2, True)


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for call in CALLS:
        first, *rest = call.split()
        module, _, attribute = frame.COMMANDS[first][0].partition(":")
        command: Any = getattr(import_module(module), attribute)
        for name in rest:
            command = command.get_command(click.Context(command), name)
        yield from ((call, parameter) for parameter in command.params)


@pytest.mark.feature("O1")
def test_numbers_of_every_command_have_bounds() -> None:
    """A mistyped one of thirty digits would not fit a frame, a file or a library."""
    free = {("demo", "seed"), ("up", "kafka_port"), ("up", "zookeeper_port")}  # any seed; ports are judged by the site
    for call, parameter in parameters():
        kind, numbers = parameter.type, (click.types.IntParamType, click.types.FloatParamType)
        if isinstance(kind, numbers) and (call, parameter.name) not in free:
            assert isinstance(kind, click.IntRange | click.FloatRange), (call, parameter.name)
            assert kind.min is not None, (call, parameter.name)
            assert kind.max is not None, (call, parameter.name)


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "Aircraft", "-n", "0"), "0 is not in the range x>=1"),
        (("list", "Aircraft", "-n", "9000000000"), "9000000000 is more than 1000000000"),
        (("status", "--timeout", "0"), "0.0 is not in the range x>=0.05"),
        (("status", "--timeout", "3e6"), "3e6 is more than 2000000 seconds"),
    ],
)
def test_a_number_that_is_out_of_its_range_is_told_the_end_it_is_beyond(
    shared: Cluster, halog: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    assert told in halog(*words).err


def test_a_node_that_does_not_start_leaves_logger_and_signals_as_they_were(tmp_path: Path) -> None:
    """A program may call commands in its own process, as tests do."""

    def now() -> tuple[Any, ...]:
        logger = logging.getLogger("halog")
        handlers = [signal.getsignal(each) for each in STOPPING]
        return logger.level, logger.propagate, list(logger.handlers), handlers

    before = now()
    (tmp_path / "halog.toml").write_text("x = 1")
    assert frame.main(["node", "start", "--config", str(tmp_path / "halog.toml"), "--log-level", "debug"]) == 2
    assert now() == before
