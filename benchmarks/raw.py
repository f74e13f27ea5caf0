"""The baselines: what a Python program does that uses Kafka itself. Runs in processes of its own, as halog's side does.

Deliberately plain: confluent-kafka with the settings one reads in any guide for low latency, no checks, no store.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.loop import Op, closed_loop

VALUE = bytes(random.Random(7).randrange(33, 127) for _ in range(200))
_ID = struct.Struct(">q")
WAIT_S = 10.0


def producer(bootstrap: str, *, idempotent: bool) -> Any:
    """acks=all like halog's; nothing waits for company."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "enable.idempotence": idempotent,
        }
    )


def consumer(bootstrap: str, topic: str, offset: int, **more: Any) -> Any:
    """Warm: `list_topics` first, else the first half second is lost (peers/RESULTS.md)."""
    c = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "raw",
            "enable.auto.commit": False,
            "socket.nagle.disable": True,
            "fetch.queue.backoff.ms": 2,
            **more,
        }
    )
    c.list_topics(topic, timeout=WAIT_S)
    c.assign([TopicPartition(topic, 0, offset)])
    return c


class RawClient:
    """The client process of the baselines; `worker` calls its methods by name."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._plain: Any = None
        self._idempotent: Any = None
        self._replica: _Replica | None = None

    def listen(self) -> dict[str, Any]:
        """Where the second process is to send its acknowledgements."""
        self._replica = _Replica()
        return {"port": self._replica.port}

    def replicated(self, clients: int, seconds: float) -> dict[str, Any]:
        """Produce, the second process consumes and applies, its TCP acknowledgement has come back."""
        assert self._replica is not None
        self._plain = self._plain or producer(self.bootstrap, idempotent=False)
        out, wait, topic = self._plain, self._replica, self.topic

        def make(i: int) -> Op:
            def op(k: int) -> None:
                ident, lock = wait.expect()
                out.produce(topic, ident + VALUE[8:], b"k%d" % (k % 1000), partition=0)
                out.poll(0)
                if not lock.acquire(timeout=WAIT_S):
                    raise TimeoutError("the second process did not acknowledge")

            return op

        return closed_loop(make, clients, seconds)

    def acknowledged(self, clients: int, seconds: float) -> dict[str, Any]:
        """Idempotent produce until its delivery report. One caller polls itself; several share a polling thread."""
        self._idempotent = self._idempotent or producer(self.bootstrap, idempotent=True)
        if clients == 1:
            return closed_loop(self._self_polling, 1, seconds)
        running = threading.Event()
        poller = threading.Thread(target=self._poll_until, args=(running,))
        poller.start()
        try:
            return closed_loop(self._shared_polling, clients, seconds)
        finally:
            running.set()
            poller.join()

    def _self_polling(self, i: int) -> Op:
        out, topic = self._idempotent, self.topic
        done: list[Any] = []

        def op(k: int) -> None:
            done.clear()
            out.produce(topic, VALUE, b"k%d" % (k % 1000), partition=0, on_delivery=lambda e, m: done.append(e))
            while not done:
                out.poll(1)

        return op

    def _shared_polling(self, i: int) -> Op:
        out, topic, lock = self._idempotent, self.topic, threading.Lock()
        lock.acquire()

        def op(k: int) -> None:
            out.produce(topic, VALUE, b"k%d" % (k % 1000), partition=0, on_delivery=lambda e, m: lock.release())
            lock.acquire()

        return op

    def _poll_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._idempotent.poll(0.1)

    def bulk(self, count: int, values: int = 1000) -> dict[str, Any]:
        """Encode with fastavro and produce `count` records as fast as they go, until every delivery report."""
        from benchmarks.avro import encode, plain

        out = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 1 << 20})
        out.list_topics(self.topic, timeout=WAIT_S)
        objects = [plain(i) for i in range(values)]
        begin = time.perf_counter()
        for i in range(count):
            _produce(out, self.topic, encode(objects[i % values]), b"%d" % i)
        out.flush(WAIT_S)
        return {"per_s": count / (time.perf_counter() - begin)}

    def consume(self, topic: str, count: int, offset: int = OFFSET_BEGINNING) -> dict[str, Any]:
        """Merely read `count` records from `offset`: no decoding, no store; each key and value is touched."""
        begin = time.perf_counter()
        c = consumer(self.bootstrap, topic, offset, **{"isolation.level": "read_committed"})
        kept: dict[bytes, bytes] = {}
        got = 0
        while got < count:
            for m in c.consume(2000, 0.05):
                kept[m.key() or _ID.pack(got)] = m.value()
                got += 1
        took = time.perf_counter() - begin
        c.close()
        return {"s": took, "n": got}

    def writing(self, seconds: float, rate: float) -> dict[str, Any]:
        """Replicated writes at a rate; the longest time between two acknowledgements, in ms."""
        assert self._replica is not None
        self._plain = self._plain or producer(self.bootstrap, idempotent=False)
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ident, lock = self._replica.expect()
            self._plain.produce(self.topic, ident + VALUE[8:], partition=0)
            self._plain.flush(WAIT_S)
            self._replica.wait(lock)
            times.append(time.monotonic())
            time.sleep(1 / rate)
        return {"pause_ms": max(b - a for a, b in itertools.pairwise(times)) * 1000, "n": len(times)}

    def standby(self, port: int) -> dict[str, Any]:
        """Warm producer, a connection to the primary: when it breaks, write and wait for the acknowledgement."""
        out = producer(self.bootstrap, idempotent=True)
        out.produce(self.topic, VALUE, partition=0)
        out.flush(WAIT_S)
        self._primary = socket.create_connection(("127.0.0.1", port))
        self._takeover: dict[str, float] = {}
        self._watcher = threading.Thread(target=self._take_over, args=(out,))
        self._watcher.start()
        return {}

    def _take_over(self, out: Any) -> None:
        self._primary.recv(1)
        out.produce(self.topic, VALUE, partition=0)
        out.flush(WAIT_S)
        self._takeover["at"] = time.monotonic()

    def took_over(self) -> dict[str, Any]:
        """When the standby's first write was acknowledged (monotonic seconds)."""
        self._watcher.join(WAIT_S)
        return dict(self._takeover)


def _produce(out: Any, topic: str, value: bytes, key: bytes) -> None:
    while True:
        try:
            out.produce(topic, value, key, partition=0)
            return
        except BufferError:
            out.poll(0.05)


class _Replica:
    """The client's view of the second process: who waits for which acknowledgement."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._waiting: dict[bytes, threading.Lock] = {}
        self._count = itertools.count(1)
        self.gone = threading.Event()
        threading.Thread(target=self._receive, daemon=True).start()

    def expect(self) -> tuple[bytes, threading.Lock]:
        """An identifier, and a lock that is released when it is acknowledged."""
        ident, lock = _ID.pack(next(self._count)), threading.Lock()
        lock.acquire()
        self._waiting[ident] = lock
        return ident, lock

    def wait(self, lock: threading.Lock) -> None:
        """Until acknowledged, or nobody is there to do so."""
        while not self.gone.is_set() and not lock.acquire(timeout=0.001):
            pass

    def _receive(self) -> None:
        while True:
            sock, _ = self._server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.gone.clear()
            held = b""
            while data := sock.recv(65536):
                held = self._release(held + data)
            self.gone.set()

    def _release(self, data: bytes) -> bytes:
        whole = len(data) // 8 * 8
        for at in range(0, whole, 8):
            lock = self._waiting.pop(data[at : at + 8], None)
            if lock is not None:
                lock.release()
        return data[whole:]


class RawReplica:
    """The second process: consumes, applies to a dict, acknowledges over TCP."""

    def __init__(self, bootstrap: str, topic: str, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._consumer = consumer(bootstrap, topic, OFFSET_END)
        self._consumer.poll(0.5)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        store: dict[bytes, bytes] = {}
        while True:
            first = self._consumer.poll(1.0)
            if first is None:
                continue
            batch = [first, *self._consumer.consume(500, 0)]
            for m in batch:
                store[m.key()] = m.value()
            self._sock.sendall(b"".join(m.value()[:8] for m in batch))

    def ready(self) -> dict[str, Any]:
        """It was started, so it is."""
        return {}


class RawPrimary:
    """A process to be killed: holds a standby's connection."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._held.append(self._server.accept()[0])

    def port(self) -> dict[str, Any]:
        """Where the standby connects."""
        return {"port": self._server.getsockname()[1]}
