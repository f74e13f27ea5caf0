"""The registry of operational messages: its codes, its texts, and the table in the operator's guide."""

from __future__ import annotations

import base64
import re
import string
from pathlib import Path

import pytest

from halog.errors import RecordFormatError
from halog.events import DISCARDED, ITEMS, KINDS, REMOVED, TEXT_CHARS, TOO_FEW, Event, EventPlace, event, lean

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operations.md"
AT = EventPlace("fleet", "A", "p-0", 3, 17)


@pytest.mark.feature("Q4", "O2")
def test_the_guides_table_and_the_registry_agree() -> None:
    """Every code with its name and severity stands in docs/guides/operations.md, and no other."""
    rows = re.findall(r"^\| `(HALOG-\d{4})` \| ([^|]+) \| (\w+) \|", GUIDE.read_text(), re.MULTILINE)
    assert rows == [(k.code, k.name, k.severity) for k in KINDS.values()]


@pytest.mark.feature("Q4")
def test_codes_and_names_are_unique_and_of_one_form() -> None:
    """A code is `HALOG-` and four digits, ascending; two messages never share a name."""
    codes = list(KINDS)
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"HALOG-1\d{3}", code) for code in codes)
    assert len({k.name for k in KINDS.values()}) == len(KINDS)
    assert {k.severity for k in KINDS.values()} <= {"info", "warning", "error"}


@pytest.mark.feature("Q4")
@pytest.mark.parametrize("code", KINDS)
def test_every_text_says_why(code: str) -> None:
    """A template names the cause, and it ends up in the text with everything else."""
    kind = KINDS[code]
    names = {name for _, name, _, _ in string.Formatter().parse(kind.text) if name}
    assert "cause" in names
    more = {name: f"<{name}>" for name in names - {"partition", "node", "cause"}}
    made = event(kind, AT, name="A/1/1", time_ms=5, node="B", cause="it rained", more=more)
    assert made.text.endswith("it rained")
    assert all(value in made.text for value in more.values())
    assert "{" not in made.text


@pytest.mark.feature("Q4", "O2")
def test_an_event_survives_its_bytes() -> None:
    """What a node writes any node reads: every field, and what is particular to its kind."""
    more = {"count": 2, "of_epoch": 2, "transactions": [{"tx": "00ff", "lsn": 9}]}
    made = event(DISCARDED, AT, name="A/1/1", time_ms=1_700_000_000_000, node="A", cause="fenced", more=more)
    assert Event.from_bytes(made.to_bytes()) == made
    assert made.text == "partition p-0: 2 transactions of epoch 2 were discarded: fenced"
    assert (made.cluster, made.partition, made.by, made.epoch, made.lsn) == ("fleet", "p-0", "A", 3, 17)


def test_a_field_of_a_newer_version_is_passed_over_and_anything_else_is_refused() -> None:
    """Nodes of two versions share a history; bytes that are no event are named."""
    made = event(REMOVED, AT, name="A/1/1", time_ms=5, node="B", cause="it left")
    newer = made.to_bytes().replace(b'{"id"', b'{"colour":"red","id"', 1)
    assert Event.from_bytes(newer) == made
    with pytest.raises(RecordFormatError, match="no event"):
        Event.from_bytes(b"\x00\x01")


def test_a_text_without_its_facts_is_an_error() -> None:
    """A template is never half filled."""
    with pytest.raises(KeyError):
        event(TOO_FEW, AT, name="A/1/1", time_ms=5, node="A", cause="B left")


@pytest.mark.feature("Q4")
def test_whatever_is_put_into_an_event_it_is_short_and_can_be_encoded() -> None:
    """Texts, lists and what is inside them: an event fits any topic."""
    more = {"count": 2, "of_epoch": 2, "transactions": [{"tx": "\udc80" * 5_000}] * 5_000}
    made = event(DISCARDED, AT, name="A/1/1", time_ms=5, node="\ud800B", cause="x" * 10_000, more=more)
    assert Event.from_bytes(made.to_bytes()) == made
    assert (made.node, len(made.cause), len(made.more["transactions"])) == ("?B", TEXT_CHARS, ITEMS)
    assert made.more["transactions"][0] == {"tx": "?" * TEXT_CHARS}


@pytest.mark.feature("Q4", "X9")
def test_records_in_an_event_are_whole_and_can_be_left_out() -> None:
    """As base64, however long; without them everything else is still told."""
    data = bytes(range(256)) * 40
    told = {"tx": "00", "lsn": 9, "bytes": len(data)}
    more = {"count": 1, "of_epoch": 2, "transactions": [{**told, "record": data}]}
    made = event(DISCARDED, AT, name="A/1/1", time_ms=5, node="A", cause="fenced", more=more)
    (found,) = Event.from_bytes(made.to_bytes()).more["transactions"]
    assert base64.b64decode(found["record"]) == data
    assert lean(made) == event(
        DISCARDED, AT, name="A/1/1", time_ms=5, node="A", cause="fenced", more={**more, "transactions": [told]}
    )
