"""A directory of certificates, made with a fixed clock."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from halog.certs.authority import Holder
from halog.certs.directory import CertsDirectory
from halog.certs.hosts import host_names
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.inventory import AUTHORITY_KEY
from halog.certs.issuance import create, create_authority

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
CLUSTER = "fleet"


def holder(name: str = "A", kind: HolderKind = HolderKind.NODE, *hosts: str, cluster: str = CLUSTER) -> Holder:
    return Holder(HolderIdentity.of(cluster, kind, name), host_names(hosts))


class Made:
    """A directory with an authority, and a short way to make certificates in it."""

    def __init__(self, path: Path, cluster: str = CLUSTER) -> None:
        self.cluster = cluster
        self.directory = CertsDirectory(path)
        self.key = path / AUTHORITY_KEY
        create_authority(self.directory, cluster, NOW)

    def make(
        self, name: str, kind: HolderKind = HolderKind.NODE, *hosts: str, now: dt.datetime = NOW, days: int = 365
    ) -> str:
        who = holder(name, kind, *hosts, cluster=self.cluster)
        create(self.directory, who, self.key, now, days)
        return who.identity.stem

    def text(self, name: str) -> str:
        return self.directory.place(name).read_text()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests end processes, not machines: nothing needs to be on the disk, which may take 50 ms each time."""
    monkeypatch.setattr("os.fsync", lambda number: None)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "certs")
