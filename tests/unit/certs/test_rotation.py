"""An authority is replaced step by step; every step may be the last one of its process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.certs.certificate import issuer_among
from halog.certs.inventory import Inventory, trusted_authorities
from halog.certs.issuance import create, create_authority, renew, to_renew
from halog.certs.keys import fits, read_key
from halog.certs.rotation import Rotation
from halog.certs.rotation_plan import RotationPhase, read_plan
from halog.certs.verification import FAIL, verify
from halog.errors import ConfigError, NothingToDoError, RefusedError
from tests.unit.certs.conftest import CLUSTER, NOW, Made, holder
from tests.unit.certs.killed import killed_at_each_step

pytestmark = pytest.mark.feature("O4")


def rotation(made: Made) -> Rotation:
    return Rotation(made.directory, made.key)


def begin(made: Made) -> None:
    rotation(made).begin(CLUSTER, NOW)


def renew_all(made: Made) -> None:
    stems = [h.stem for h in to_renew(made.directory, None, NOW)]
    renew(made.directory, stems, CLUSTER, made.key, NOW)


def all_are_trusted(made: Made) -> bool:
    inventory = Inventory.read(made.directory)
    return len(inventory.holders) == 2 and all(
        issuer_among(h.certificate, inventory.authorities) is not None for h in inventory.holders
    )


def key_signs(made: Made, number: int = 0) -> bool:
    return fits(read_key(made.key), trusted_authorities(made.directory)[number])


def keys(made: Made) -> list[str]:
    return [n for n in made.directory.names() if n.startswith("ca.") and n.endswith(".key")]


@pytest.fixture
def anew(tmp_path: Path) -> Callable[[], Made]:
    """A directory with two nodes' certificates, each time another one."""
    numbers = itertools.count()

    def prepare() -> Made:
        made = Made(tmp_path / str(next(numbers)))
        made.make("A")
        made.make("B")
        return made

    return prepare


@pytest.fixture
def pair(anew: Callable[[], Made]) -> Made:
    return anew()


def test_from_one_authority_to_the_next(pair: Made) -> None:
    (old,) = trusted_authorities(pair.directory)
    begin(pair)
    new, kept = trusted_authorities(pair.directory)
    assert kept == old
    assert (key_signs(pair), keys(pair)) == (True, ["ca.key", "ca.old.key"])
    with pytest.raises(RefusedError, match=r"has issued node\.A, node\.B; nothing was changed.*renew --all"):
        rotation(pair).finish()
    renew_all(pair)
    assert to_renew(pair.directory, None, NOW) == []
    with pytest.raises(RefusedError, match=r"may still be needed by C at 10\.0\.0\.7:1; nothing was changed"):
        rotation(pair).finish(["C at 10.0.0.7:1"])
    assert trusted_authorities(pair.directory) == [new, old]
    rotation(pair).finish()
    assert trusted_authorities(pair.directory) == [new]
    assert (all_are_trusted(pair), keys(pair), read_plan(pair.directory)) == (True, ["ca.key"], None)
    with pytest.raises(NothingToDoError, match="no rotation is under way"):
        rotation(pair).finish()


def test_begin_is_repeated_without_a_third_authority(pair: Made) -> None:
    begin(pair)
    before = trusted_authorities(pair.directory)
    with pytest.raises(NothingToDoError, match=r"a rotation is under way since .*rotate-ca status"):
        begin(pair)
    assert trusted_authorities(pair.directory) == before


def test_aborting_goes_back_at_once_if_the_new_one_has_issued_nothing(pair: Made) -> None:
    before, key = trusted_authorities(pair.directory), pair.text("ca.key")
    begin(pair)
    assert rotation(pair).abort().phase is RotationPhase.FINISH
    assert (trusted_authorities(pair.directory), pair.text("ca.key"), keys(pair)) == (before, key, ["ca.key"])
    with pytest.raises(NothingToDoError):
        rotation(pair).abort()


def test_aborting_leaves_nobody_with_a_certificate_that_nobody_trusts(pair: Made) -> None:
    """What the new one has issued is in use: both are trusted until it is reissued."""
    before, key = trusted_authorities(pair.directory), pair.text("ca.key")
    begin(pair)
    renew(pair.directory, ["A"], CLUSTER, pair.key, NOW)
    plan = rotation(pair).abort()
    assert (plan.phase, plan.back, plan.signing) == (RotationPhase.REISSUE, True, before[0])
    assert (all_are_trusted(pair), pair.text("ca.key"), len(trusted_authorities(pair.directory))) == (True, key, 2)
    with pytest.raises(RefusedError, match=r"has issued node\.A; nothing was changed"):
        rotation(pair).finish()
    with pytest.raises(NothingToDoError):
        begin(pair)
    assert [h.stem for h in to_renew(pair.directory, None, NOW)] == ["node.A"]
    renew_all(pair)
    rotation(pair).finish()
    assert (all_are_trusted(pair), trusted_authorities(pair.directory), keys(pair)) == (True, before, ["ca.key"])


def test_the_leaving_authority_signs_nothing(pair: Made) -> None:
    begin(pair)
    with pytest.raises(RefusedError, match=r"ca\.old\.key: is the key of the authority that is being replaced"):
        create(pair.directory, holder("C"), pair.directory.place("ca.old.key"), NOW)
    with pytest.raises(RefusedError, match="a rotation of the authority is under way; nothing was changed"):
        create_authority(pair.directory, CLUSTER, NOW, overwrite=True)


def test_keys_that_are_kept_elsewhere_are_found_there(pair: Made, tmp_path: Path) -> None:
    safe = tmp_path / "safe"
    safe.mkdir()
    pair.key.rename(safe / "root.key")
    pair.key = safe / "root.key"
    begin(pair)
    assert sorted(p.name for p in safe.iterdir()) == ["root.key", "root.old.key"]
    renew_all(pair)
    rotation(pair).finish()
    assert (all_are_trusted(pair), [p.name for p in safe.iterdir()], keys(pair)) == (True, ["root.key"], [])


def test_an_authority_that_is_not_halogs_can_be_left(pair: Made, tmp_path: Path) -> None:
    """Its key is with somebody else; others that are trusted stay."""
    pair.key.unlink()
    other = Made(tmp_path / "other")
    foreign = pair.directory.place("ca.crt")
    foreign.write_text(pair.text("ca.crt") + other.text("ca.crt"))
    old, third = trusted_authorities(pair.directory)
    begin(pair)
    assert trusted_authorities(pair.directory)[1:] == [old, third]
    assert keys(pair) == ["ca.key"]
    renew_all(pair)
    rotation(pair).finish()
    assert trusted_authorities(pair.directory)[1:] == [third]


def test_a_former_key_is_not_overwritten(pair: Made) -> None:
    pair.directory.place("ca.old.key").write_text("kept by somebody")
    with pytest.raises(RefusedError, match=r"ca\.old\.key: is in the way.*nothing was changed"):
        begin(pair)
    assert (pair.text("ca.old.key"), read_plan(pair.directory)) == ("kept by somebody", None)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"form": 1}', '{"form": 1, "phase": "x"}', "null", "\x00"])
def test_a_damaged_plan_is_named(pair: Made, content: str) -> None:
    pair.directory.place("rotation.json").write_text(content)
    with pytest.raises(ConfigError, match=r"rotation\.json: is damaged"):
        rotation(pair).finish()


def test_a_later_plan_is_named(pair: Made) -> None:
    pair.directory.place("rotation.json").write_text('{"form": 2}')
    with pytest.raises(ConfigError, match=r"rotation\.json: was written by a later halog"):
        rotation(pair).finish()


# --- killed ---


def test_begin_goes_on_where_it_was_killed(anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    for made in killed_at_each_step(monkeypatch, anew, begin):
        assert all_are_trusted(made)
        plan = read_plan(made.directory)
        if plan is not None and plan.phase is RotationPhase.BEGIN:
            with pytest.raises(RefusedError, match=r"interrupted.*rotate-ca begin"):
                create(made.directory, holder("C"), made.key, NOW)
        if plan is None or plan.phase is RotationPhase.BEGIN:
            begin(made)
        assert (len(trusted_authorities(made.directory)), key_signs(made)) == (2, True)
        assert keys(made) == ["ca.key", "ca.old.key"]
        renew_all(made)
        rotation(made).finish()
        assert (all_are_trusted(made), len(trusted_authorities(made.directory))) == (True, 1)


def test_begin_that_was_killed_is_aborted(anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    was = dict[Path, str]()

    def prepare() -> Made:
        made = anew()
        was[made.directory.path] = made.text("ca.crt") + made.text("ca.key")
        return made

    for made in killed_at_each_step(monkeypatch, prepare, begin):
        if read_plan(made.directory) is not None:
            rotation(made).abort()
        assert made.text("ca.crt") + made.text("ca.key") == was[made.directory.path]
        assert all_are_trusted(made)


def test_renewals_go_on_where_they_were_killed(anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare() -> Made:
        made = anew()
        begin(made)
        return made

    for made in killed_at_each_step(monkeypatch, prepare, renew_all):
        assert all_are_trusted(made)
        renew_all(made)
        assert not [f for f in verify(made.directory, CLUSTER, NOW)[1] if f.result == FAIL]
        rotation(made).finish()
        assert all_are_trusted(made)


def test_finish_goes_on_where_it_was_killed(anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare() -> Made:
        made = anew()
        begin(made)
        renew_all(made)
        return made

    for made in killed_at_each_step(monkeypatch, prepare, lambda made: rotation(made).finish()):
        assert all_are_trusted(made)
        plan = read_plan(made.directory)
        if plan is not None and plan.phase is RotationPhase.FINISH:
            with pytest.raises(RefusedError, match="rotate-ca finish"):
                rotation(made).abort()
        if plan is not None:
            rotation(made).finish()
        assert (all_are_trusted(made), key_signs(made), keys(made)) == (True, True, ["ca.key"])


@pytest.mark.parametrize("issued", [0, 1, 2])
def test_abort_goes_on_where_it_was_killed(
    anew: Callable[[], Made], monkeypatch: pytest.MonkeyPatch, issued: int
) -> None:
    old = dict[Path, str]()

    def prepare() -> Made:
        made = anew()
        old[made.directory.path] = made.text("ca.crt")
        begin(made)
        renew(made.directory, ["A", "B"][:issued], CLUSTER, made.key, NOW)
        return made

    for made in killed_at_each_step(monkeypatch, prepare, lambda made: rotation(made).abort()):
        assert all_are_trusted(made)
        if read_plan(made.directory) is not None:
            rotation(made).abort()
        assert key_signs(made)
        if issued:
            renew_all(made)
            rotation(made).finish()
        assert (all_are_trusted(made), made.text("ca.crt")) == (True, old[made.directory.path])
        assert (key_signs(made), keys(made)) == (True, ["ca.key"])
