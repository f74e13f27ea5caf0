"""What every child runs: `benchmarks.worker ROLE JSON_ARGS`, behind `halog.testing.child`.

Reads one command per line from stdin, `{"do": name, ...arguments}`, calls that method of its role and answers one
line, `{"ok": …}` or `{"error": …}`. Roles are fixed here.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any


def role(name: str) -> Callable[..., Any]:
    """What a child can be; imported only when it is."""
    if name == "app":
        from benchmarks.app import App

        return App
    if name == "traffic":
        from benchmarks.traffic import Traffic

        return Traffic
    from benchmarks import raw, raw_push

    return {
        "raw": raw.RawClient,
        "raw-replica": raw.RawReplica,
        "raw-primary": raw.RawPrimary,
        "raw-store": raw_push.RawStore,
        "raw-pusher": raw_push.RawPusher,
    }[name]


def main() -> int:
    """Serve commands until stdin ends."""
    faulthandler.register(signal.SIGUSR1)  # stacks into the log of a child that hangs
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints must not be taken for an answer
    level = os.environ.get("BENCH_LOG", "WARNING")
    logging.basicConfig(level=level, format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
    actor = role(sys.argv[1])(**json.loads(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(answer(actor, json.loads(line))), file=answers)
    os._exit(0)


def answer(actor: object, command: dict[str, Any]) -> dict[str, Any]:
    """Do one command."""
    try:
        return {"ok": getattr(actor, command.pop("do"))(**command)}
    except Exception as e:
        traceback.print_exc()
        return {"error": f"{type(e).__name__}: {e}"}


def lines(stream: IO[bytes]) -> Any:
    """One answer; BrokenPipeError if the child has ended."""
    line = stream.readline()
    if not line:
        raise BrokenPipeError("the child has ended")
    return json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
