"""Keys that a later version of halog has put into an activated configuration are set aside, and put back (U1)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.config import later_keys

TABLE: dict[str, Any] = {
    "cluster": {"name": "ops"},
    "site": {"bootstrap": "a:1", "zookeeper": "b:1"},
    "zones": {"z": {"nodes": ["A"], "quorum": {"percentage": 50}}},
    "policies": {"p": {"zone": "z", "partitions": {"eu": ["A"], "us": {"nodes": ["A"], "async": []}}}},
    "nodes": {"A": {"data_dir": "a"}},
}


def with_later() -> dict[str, Any]:
    policy = {
        "zone": "z",
        "shape": {"of": "a"},
        "partitions": {"eu": ["A"], "us": {"nodes": ["A"], "async": [], "weight": 2}},
    }
    zone = {"nodes": ["A"], "quorum": {"percentage": 50, "of": "votes"}}
    return {**TABLE, "zones": {"z": zone}, "policies": {"p": policy}, "clouds": {"k": 1}}


LATER = {
    ("zones", "z", "quorum", "of"): "votes",
    ("policies", "p", "shape"): {"of": "a"},
    ("policies", "p", "partitions", "us", "weight"): 2,
    ("clouds",): {"k": 1},
}


@pytest.mark.feature("U1", "P11")
def test_what_is_not_known_is_set_aside_wherever_it_stands_and_put_back_there() -> None:
    assert later_keys.set_aside(with_later()) == (TABLE, LATER)
    assert later_keys.set_aside(TABLE) == (TABLE, {})
    assert later_keys.carried(TABLE, LATER) == with_later()


@pytest.mark.feature("U1", "P11")
def test_what_stood_in_an_entry_that_is_gone_goes_with_it() -> None:
    """And what is said now counts, as is what is no table any more."""
    new = {**TABLE, "policies": {"p": {"zone": "z", "partitions": 2, "shape": 1}}, "zones": {"y": {"nodes": ["A"]}}}
    assert later_keys.carried(new, LATER) == {**new, "clouds": {"k": 1}}


@pytest.mark.feature("U1", "P11")
def test_what_is_of_another_type_is_left_for_who_reads_it() -> None:
    odd = {"cluster": 3, "zones": ["z"], "policies": {"p": 7, "q": {"partitions": {"eu": 7}}}}
    assert later_keys.set_aside(odd) == (odd, {})
