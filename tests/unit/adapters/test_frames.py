"""The channel's framing: whatever the pieces, the same frames; a hostile length costs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from halog.adapters.tcp.framing import Unpacker, format_address, pack, parse_address
from halog.errors import FrameError


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 97), min_size=1))
def test_any_cutting_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    """The stream cut anywhere yields the frames that went in, and nothing is left over."""
    stream = b"".join(map(pack, frames))
    unpack, got, at, n = Unpacker(), [], 0, 0
    while at < len(stream):
        step = cuts[n % len(cuts)]
        got += unpack.feed(stream[at : at + step])
        at, n = at + step, n + 1
    assert got == frames
    assert unpack.is_empty


def test_a_length_over_the_limit_is_refused_before_its_bytes_come() -> None:
    """The four bytes of the length are enough."""
    with pytest.raises(FrameError, match="101"):
        Unpacker(limit=100).feed(b"\0\0\0\x65")
    assert Unpacker(limit=100).feed(b"\0\0\0\x64" + bytes(100)) == [bytes(100)]


def test_packing_over_the_limit_names_both_sizes() -> None:
    """A frame the other side would refuse is not sent."""
    with pytest.raises(FrameError, match=r"101 bytes.*100"):
        pack(bytes(101), limit=100)


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "node-a.example:7000"])
def test_addresses_round_trip(text: str) -> None:
    """host:port, with brackets for IPv6."""
    assert format_address(parse_address(text)) == text
