"""A process whose threads, sockets and files nobody but it changes: `python -m tests.unit.faults.holding FILE`. Told
"things" it has one more of each, told "client" one Kafka client; it says so when it has."""

from __future__ import annotations

import socket
import sys
import threading

from confluent_kafka import Producer


def things(file: str) -> tuple[object, ...]:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    return thread, socket.socket(), open(file, "w")


def client() -> Producer:
    return Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def main(file: str) -> None:
    held: list[object] = []
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        held.append(things(file) if word == "things" else client())
        print(word, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
