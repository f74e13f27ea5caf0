"""This module replaces the authority of a cluster step by step, so that everybody trusts what everybody presents.

`begin` makes the new authority; `ca.crt` holds both. What the old one signed is reissued, and presented everywhere.
Then `finish` drops the old one. `abort` turns round: the old one signs again and the new one leaves, in the same steps.
Each step is one file that is replaced, and may be repeated: a command that was killed is given again and goes on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from halog.certs.authority import AUTHORITY_DAYS, Authority
from halog.certs.certificate import certificate_pem, identity_of
from halog.certs.directory import SECRET_MODE, CertsDirectory, NewFile
from halog.certs.inventory import AUTHORITIES, KEY, Inventory, trusted_authorities
from halog.certs.keys import fits, key_pem, read_key
from halog.certs.rotation_plan import PLAN, RotationPhase, RotationPlan, read_plan, write_plan
from halog.errors import ConfigError, NothingToDoError, RefusedError

SHOWN = 10
"""An error names so many certificates."""


class Rotation:
    """A `Rotation` changes the authority of one directory. The authority's keys stand beside `key_path`."""

    def __init__(self, directory: CertsDirectory, key_path: Path) -> None:
        self._directory = directory
        self._keys = CertsDirectory(key_path.parent)
        self._key = key_path.name
        stem = key_path.name.removesuffix(KEY)
        self._old_key = f"{stem}.old{KEY}"
        self._next_key = f"{stem}.next{KEY}"

    def begin(self, cluster: str, now: dt.datetime, days: int = AUTHORITY_DAYS) -> RotationPlan:
        """Make a new authority, which signs from now on, and let both be trusted."""
        with self._directory.writing():
            plan = read_plan(self._directory)
            if plan is None:
                plan = self._planned(cluster, now, days)
            elif plan.phase is RotationPhase.FINISH:
                raise RefusedError("the last rotation is being finished; give `halog certs rotate-ca finish` again")
            elif plan.phase is RotationPhase.REISSUE or plan.back:
                raise NothingToDoError(
                    f"a rotation is under way since {plan.since}; nothing was changed. `halog certs rotate-ca status` "
                    "says what is next"
                )
            return self._let_both_be_trusted(plan)

    def finish(self, presented: Collection[str] = ()) -> RotationPlan:
        """Drop the leaving authority. RefusedError while one of its certificates is in the directory or, as
        `presented` says, in use."""
        with self._directory.writing():
            plan = self._under_way()
            if plan.phase is RotationPhase.BEGIN:
                raise RefusedError(
                    f"the rotation was interrupted; give `halog certs rotate-ca {'abort' if plan.back else 'begin'}` "
                    "again"
                )
            if plan.phase is RotationPhase.REISSUE:
                left = self._to_reissue(plan)
                if left:
                    raise RefusedError(
                        f"the leaving authority has issued {_few(left)}; nothing was changed. Reissue them: `halog "
                        "certs renew --all`",
                        certificates=left,
                    )
                if presented:
                    raise RefusedError(
                        f"the leaving authority may still be needed by {_few(presented)}; nothing was changed. Bring "
                        "the new certificates there, and let them be taken",
                        nodes=[*presented],
                    )
            return self._drop(plan)

    def abort(self) -> RotationPlan:
        """Let the authority that was there before sign again, and the new one leave: at once if it has issued nothing,
        else behind the same steps."""
        with self._directory.writing():
            plan = self._under_way()
            if plan.phase is RotationPhase.FINISH:
                if plan.back:
                    return self._drop(plan)
                raise RefusedError(
                    "the rotation is being finished, and one authority is trusted no more; give `halog certs rotate-ca "
                    "finish` again"
                )
            if not plan.back:
                plan = RotationPlan(RotationPhase.BEGIN, plan.leaving, plan.signing, plan.since, back=True)
                write_plan(self._directory, plan)
            if plan.phase is RotationPhase.BEGIN:
                plan = self._let_both_be_trusted(plan)
            return plan if self._to_reissue(plan) else self._drop(plan)

    def _planned(self, cluster: str, now: dt.datetime, days: int) -> RotationPlan:
        trusted = trusted_authorities(self._directory)
        made = Authority.create(cluster, now, days)
        plan = RotationPlan(
            RotationPhase.BEGIN, made.certificate, self._signing_among(trusted), now.isoformat(timespec="seconds")
        )
        if self._keys.place(self._old_key).exists():
            raise RefusedError(
                f"{self._keys.place(self._old_key)}: is in the way: the present authority's key would be kept there; "
                "nothing was changed. Move it elsewhere"
            )
        self._keys.write(NewFile(self._next_key, key_pem(made.key), SECRET_MODE))
        write_plan(self._directory, plan)
        return plan

    def _signing_among(self, trusted: list[x509.Certificate]) -> x509.Certificate:
        """Return the authority that signs at present: that of the key, or the first one where the key is elsewhere."""
        path = self._keys.place(self._key)
        if not path.exists():
            return trusted[0]
        return Authority.read(trusted, path).certificate

    def _let_both_be_trusted(self, plan: RotationPlan) -> RotationPlan:
        """Bring the directory from the phase `BEGIN` to `REISSUE`. Trust comes first: nothing is signed by an authority
        that the directory does not name yet."""
        self._trust([plan.signing, plan.leaving, *self._others(plan)])
        self._place_keys(plan)
        settled = replace(plan, phase=RotationPhase.REISSUE)
        write_plan(self._directory, settled)
        return settled

    def _drop(self, plan: RotationPlan) -> RotationPlan:
        plan = replace(plan, phase=RotationPhase.FINISH)
        write_plan(self._directory, plan)
        self._trust([plan.signing, *self._others(plan)])
        if self._fits(self._old_key, plan.leaving):
            self._keys.remove(self._old_key)
        self._directory.remove(PLAN)
        return plan

    def _trust(self, certificates: list[x509.Certificate]) -> None:
        self._directory.write(NewFile(AUTHORITIES, certificate_pem(certificates)))

    def _others(self, plan: RotationPlan) -> list[x509.Certificate]:
        """Return the authorities of `ca.crt` that the rotation is not about: they stay."""
        return [c for c in trusted_authorities(self._directory) if c not in (plan.signing, plan.leaving)]

    def _to_reissue(self, plan: RotationPlan) -> list[str]:
        return [h.stem for h in Inventory.read(self._directory).issued_by(plan.leaving)]

    def _place_keys(self, plan: RotationPlan) -> None:
        """Move keys until the signing authority's has the plain name. A key is known by what it fits, so it does not
        matter how far an earlier command came. A key that is elsewhere stays there."""
        while move := self._next_move(plan):
            self._keys.rename(*move)

    def _next_move(self, plan: RotationPlan) -> tuple[str, str] | None:
        is_free = {name: not self._keys.place(name).exists() for name in (self._key, self._old_key, self._next_key)}
        if self._fits(self._key, plan.leaving):
            return self._key, self._old_key if is_free[self._old_key] else self._next_key
        for name in (self._old_key, self._next_key):
            if is_free[self._key] and self._fits(name, plan.signing):
                return name, self._key
        if is_free[self._old_key] and self._fits(self._next_key, plan.leaving):
            return self._next_key, self._old_key
        return None

    def _fits(self, name: str, certificate: x509.Certificate) -> bool:
        path = self._keys.place(name)
        return path.exists() and fits(read_key(path), certificate)

    def _under_way(self) -> RotationPlan:
        plan = read_plan(self._directory)
        if plan is None:
            raise NothingToDoError("no rotation is under way; nothing was changed")
        return plan


def signing_authority(directory: CertsDirectory, key_path: Path, cluster: str) -> Authority:
    """Return the authority that signs now. RefusedError while a rotation was interrupted, where the key is of the
    authority that leaves, and where the authority is another cluster's."""
    plan = read_plan(directory)
    if plan is not None and plan.phase is not RotationPhase.REISSUE:
        again = "finish" if plan.phase is RotationPhase.FINISH else "abort" if plan.back else "begin"
        raise RefusedError(
            f"a rotation of the authority was interrupted; nothing was changed. Give `halog certs rotate-ca {again}` "
            "again"
        )
    found = Authority.read(trusted_authorities(directory), key_path)
    if plan is not None and found.certificate == plan.leaving:
        raise RefusedError(
            f"{key_path}: is the key of the authority that is being replaced; nothing was signed. Name the file of the "
            "other one with --ca-key"
        )
    told = identity_of(found.certificate)
    if told is not None and told.cluster != cluster:
        raise ConfigError(f"the authority is that of cluster {told.cluster}, not of {cluster}; nothing was signed")
    return found


def _few(names: Collection[str]) -> str:
    shown = [*names][:SHOWN]
    return ", ".join(shown) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")
