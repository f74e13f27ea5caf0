"""A site whose broker allows only what an ACL allows: nodes, clients and commands of a cluster there come with the
rights that `halog acl kafka` gives them, and no more (`--site closed`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halog.adapters.kafka import acls
from halog.adapters.kafka.access import KafkaAccess
from halog.config import load_config
from halog.runtime.topics.kafka_rights import rights_of
from tests.secured import USER, SecuredSite

NODE, CLIENT, OPERATOR = USERS = "node", "client", "operator"
WORD = "a-word"


class ClosedSite:
    """The site as others see it: what a test itself asks its servers it asks in plain text, as one who may do
    everything."""

    def __init__(self, secured: SecuredSite) -> None:
        self.secured = secured
        self.word = secured.certs / "word"
        self.word.write_text(WORD)
        for user in USERS:
            secured.add_user(user, WORD)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.secured.site, name)

    def text(self, plain: str) -> str:
        """A configuration with Kafka reached as an operator. `plain`: the same in plain text."""
        return self.secured.password_table(plain, self.word).replace(*_users(USER, OPERATOR))

    def file_of(self, user: str, file: Path) -> Path:
        """The same configuration for another user."""
        path = file.with_name(f"{file.stem}-of-{user}.toml")
        text = file.read_text().replace(*_users(OPERATOR, user))
        if not path.exists() or path.read_text() != text:  # a process may be reading it
            path.write_text(text)
        return path

    def allow(self, file: Path) -> None:
        """Give each of them what it needs for this cluster."""
        config, access = load_config(file), KafkaAccess(self.secured.site.info.bootstrap)
        for user in USERS:
            found = acls.look(access, f"User:{user}", rights_of(user, config), apply=True)
            assert not found.missing


def _users(before: str, after: str) -> tuple[str, str]:
    return f'username = "{before}"', f'username = "{after}"'
