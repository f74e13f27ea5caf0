"""A rotation replaces the authority of a cluster, and its plan stands in a file of the certificates directory.

The plan says which authority signs from now on and which one leaves, and what the last command was about. It is written
before what it tells is begun, so a command that was killed is repeated and goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cryptography import x509

from halog.certs.certificate import certificate_pem
from halog.certs.directory import CertsDirectory, NewFile, read_public
from halog.errors import ConfigError

PLAN: Final = "rotation.json"
FORM: Final = 1


class RotationPhase(StrEnum):
    """Says how far a rotation is."""

    BEGIN = "begin"
    """Both authorities become trusted; the keys take their places."""
    REISSUE = "reissue"
    """Both are trusted, and what the leaving one has signed is to be reissued."""
    FINISH = "finish"
    """The leaving one is dropped."""


@dataclass(frozen=True)
class RotationPlan:
    """A `RotationPlan` is what a rotation is to do. `back`: it goes back to the authority that was there before."""

    phase: RotationPhase
    signing: x509.Certificate
    leaving: x509.Certificate
    since: str
    back: bool = False


def read_plan(directory: CertsDirectory) -> RotationPlan | None:
    """Return the plan of the rotation that is under way. ConfigError if its file was damaged."""
    path = directory.place(PLAN)
    if not path.exists():
        return None
    try:
        told: dict[str, Any] = json.loads(read_public(path))
        if told["form"] != FORM:
            raise ConfigError(f"{path}: was written by a later halog; go on with that one")
        return RotationPlan(
            RotationPhase(told["phase"]),
            x509.load_pem_x509_certificate(told["signing"].encode()),
            x509.load_pem_x509_certificate(told["leaving"].encode()),
            str(told["since"]),
            bool(told["back"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: is damaged; put it back from a copy. If there is none, remove it: what is trusted stays in ca.crt"
        ) from error


def write_plan(directory: CertsDirectory, plan: RotationPlan) -> None:
    """Write the plan in place of the former one."""
    told = {
        "form": FORM,
        "phase": plan.phase,
        "signing": certificate_pem([plan.signing]).decode(),
        "leaving": certificate_pem([plan.leaving]).decode(),
        "since": plan.since,
        "back": plan.back,
    }
    directory.write(NewFile(PLAN, json.dumps(told, indent=2).encode() + b"\n"))
