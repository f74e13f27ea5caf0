"""A supervisor that somebody is quicker than: `python -m tests.integration.embedded.overtaken LAUNCH SERVER`.
When it has chosen ports for the first time another program takes that one of them."""

from __future__ import annotations

import socket
import sys

from halog.embedded import ports, supervisor
from halog.embedded.model import LOOPBACK, Ports


def overtake(server: str) -> None:
    choose, others = ports.choose, list[socket.socket]()

    def chosen(saved: Ports | None, *asked: int | str | None) -> Ports:
        found = choose(saved, *asked)  # type: ignore[arg-type]
        if not others:
            others.append(socket.create_server((LOOPBACK, getattr(found, server))))
        return found

    ports.choose = chosen  # type: ignore[assignment]


if __name__ == "__main__":
    overtake(sys.argv[2])
    sys.exit(supervisor.main())
