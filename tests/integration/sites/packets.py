"""Three network namespaces: one for each site, and a hub between them which loses packets, as a line does.

    this process ── hub ──┬── west
                          └── east

Each stroke is a veth pair. What passes the hub from one site to the other can be dropped, each way by itself, refused,
slowed, or made to flap; this process reaches both sites whatever happens between them. A forwarder
(`halog.embedded.line`) takes a connection and holds its bytes; here nothing at all comes, no SYN is answered, and how
soon somebody is heard of again is TCP's decision.

Namespaces have no names: each is an open file of this process. Whatever ends it, the kernel takes them away, with their
devices and routes, as soon as the processes in them have ended, which do so with this one.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from halog.runtime.membership.addresses import machine

CLONE_NEWNET = 0x40000000  # os.CLONE_NEWNET, from Python 3.12 on
OWN = "/proc/thread-self/ns/net"
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
LARGEST = 1 << 16

DROPS, REFUSES = "blackhole", "unreachable"
"""What becomes of a packet: nobody hears of it; or the hub tells its sender that nobody is there."""
FAULT, DETOUR = 100, 200
"""Priorities of the hub's rules: before all others, so that what is dropped is not slowed."""
SLOW = "slow"
SLOW_TABLE = 200
JOIN_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count()


def why_not() -> str:
    """Why there can be no such thing here; "": there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    try:
        space = Namespace()
    except OSError as e:
        return f"no network namespace can be made: {e}"
    try:
        with space.inside():
            for what, tried in _NEEDED.items():
                try:
                    tried()
                except OSError as e:
                    return f"{what}: {e}"
    finally:
        space.close()
    return ""


def ip(*words: str) -> str:
    """What `ip` says, in the namespace of the calling thread. OSError: it failed, with its words."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _forward() -> None:
    """The calling thread's namespace passes packets on. What comes back from a detour comes from where it does not
    belong: that is no reason to drop it."""
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv4/conf/{which}/rp_filter").write_text("0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _tun() -> int:
    """The device `SLOW`, up, in the calling thread's namespace: there for as long as the file is open."""
    tun = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", SLOW.encode(), IFF_TUN | IFF_NO_PI))
        ip("link", "set", SLOW, "up")
    except BaseException:
        os.close(tun)
        raise
    return tun


def _switch(call: str, *args: int) -> None:
    if getattr(_libc, call)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    machine.cache_clear()  # no process of halog's changes its namespace; those of tests do


@contextmanager
def _and_back() -> Iterator[int]:
    """The calling thread is afterwards where it was: that namespace, as an open file."""
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield home
    finally:
        _switch("setns", home, CLONE_NEWNET)
        os.close(home)


_NEEDED: dict[str, Callable[[], object]] = {
    "this kernel has no veth pairs": lambda: ip("link", "add", "name", "this", "type", "veth", "peer", "name", "that"),
    "this kernel has no rules that drop": lambda: ip("rule", "add", "from", "192.0.2.1", DROPS),
    "a network namespace cannot be made to pass packets on": _forward,
    f"{TUN} makes no device": lambda: os.close(_tun()),
}
"""Of a namespace, each by what it is when it fails."""


def _path(fd: int) -> str:
    return f"/proc/{os.getpid()}/fd/{fd}"


class Namespace:
    """One with a loopback of its own."""

    def __init__(self) -> None:
        with _and_back():
            _switch("unshare", CLONE_NEWNET)
            self._fd = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
            ip("link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """As `ip` understands it."""
        return _path(self._fd)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is in it: processes, threads and sockets that it makes meanwhile stay there for good."""
        with _and_back():
            _switch("setns", self._fd, CLONE_NEWNET)
            yield

    def close(self) -> None:
        """It lives on for as long as anybody is inside."""
        os.close(self._fd)


class Net:
    """The hub and the two at its ends, by name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.device = f"hl{os.getpid()}n{next(_numbers)}"
        """This process's end of the way to the hub."""
        self._dropped: dict[str, str] = {}
        """Toward whom nothing passes: what becomes of it."""
        self.cuts = 0
        """How often it was cut since it began to flap."""
        self._slow = ExitStack()
        """What a slow line has, to be taken away."""
        self._flapping: _Flapping | None = None
        self._lock = threading.Lock()
        with ExitStack() as made:
            self.hub = self._opened(made)
            self.ends = {name: self._opened(made) for name in self.names}
            block = _free_block()
            self.addresses = {name: f"{block}.{6 + 4 * n}" for n, name in enumerate(self.names)}
            """IPv4, by name; all reach each other under these."""
            self._join(block)
            self._made = made.pop_all()

    @staticmethod
    def _opened(made: ExitStack) -> Namespace:
        space = Namespace()
        made.callback(space.close)
        return space

    def _join(self, block: str) -> None:
        with _and_back() as home, self.hub.inside():
            _forward()
            ip("link", "add", "name", "out", "type", "veth", "peer", "name", self.device, "netns", _path(home))
            self._up("out", f"{block}.2/30")
            for n, name in enumerate(self.names):
                there = self.ends[name]
                ip("link", "add", "name", name, "type", "veth", "peer", "name", "line", "netns", there.path)
                self._up(name, f"{block}.{5 + 4 * n}/30")
                with there.inside():
                    self._up("line", f"{self.addresses[name]}/30")
                    ip("route", "add", "default", "via", f"{block}.{5 + 4 * n}")
        self._up(self.device, f"{block}.1/30")
        ip("route", "add", f"{block}.0/24", "via", f"{block}.2")

    @staticmethod
    def _up(device: str, address: str) -> None:
        ip("addr", "add", address, "dev", device)
        ip("link", "set", device, "up")

    # --- faults ---

    def drop(self, toward: Sequence[str], how: str = DROPS) -> None:
        """What goes to these does not arrive; all else does. Each change is in force when its call returns."""
        with self._lock, self.hub.inside():
            for name in self.names:
                wanted = how if name in toward else ""
                had = self._dropped.pop(name, "")
                if wanted == had:
                    self._dropped |= {name: had} if had else {}
                    continue
                if wanted:
                    ip("rule", "add", "priority", str(FAULT), *self._from_other(name), wanted)
                    self._dropped[name] = wanted
                if had:
                    ip("rule", "del", "priority", str(FAULT), *self._from_other(name), had)

    def _from_other(self, name: str) -> tuple[str, ...]:
        (other,) = (n for n in self.names if n != name)
        return "from", self.addresses[other], "to", self.addresses[name]

    def slow(self, seconds: float) -> None:
        """Each packet takes so much longer, each way. This kernel has no netem: packets that cross take a detour
        through this process."""
        self._end_slow()
        if not seconds:
            return
        with self.hub.inside(), ExitStack() as made:
            made.callback(_Slow(seconds).close)
            ip("route", "add", "default", "dev", SLOW, "table", str(SLOW_TABLE))  # gone with the device
            for name in self.names:
                self.detour("add", name)
                made.callback(self.detour, "del", name)
            self._slow = made.pop_all()

    def detour(self, verb: str, name: str) -> None:
        (other,) = (n for n in self.names if n != name)
        table = ("table", str(SLOW_TABLE))
        ip("rule", verb, "priority", str(DETOUR), "iif", other, *self._from_other(name), *table)

    def _end_slow(self) -> None:
        slow = self._slow
        self._slow = ExitStack()
        with self.hub.inside():
            slow.close()

    def flap(self, open_s: float, cut_s: float) -> None:
        """Open, cut, open, … until told otherwise."""
        self._end_flapping()
        self.cuts = 0
        self._flapping = _Flapping(self, open_s, cut_s)

    def _end_flapping(self) -> None:
        flapping = self._flapping
        self._flapping = None
        if flapping is not None:
            flapping.close()

    def heal(self) -> None:
        """All passes at once again. What was dropped is lost; TCP sends it anew when it thinks fit."""
        self._end_flapping()
        self.drop(())
        self._end_slow()

    def close(self) -> None:
        """Of no use any more. The kernel takes away what nobody is inside of."""
        self.heal()
        with suppress(OSError):  # now, not when the kernel comes to it
            ip("link", "del", self.device)
        self._made.close()


def _free_block() -> str:
    """The first three numbers of a network that nobody on this machine uses, of those set aside for tests."""
    used = ip("-o", "addr") + ip("route")
    free = [block for n in range(1, 255) if f"{(block := f'198.18.{n}')}." not in used]
    return random.choice(free)


class _Flapping:
    """A thread that cuts and heals."""

    def __init__(self, net: Net, open_s: float, cut_s: float) -> None:
        self._net = net
        self._phases = (((), open_s), (net.names, cut_s))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flapping", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for toward, seconds in itertools.cycle(self._phases):
            self._net.drop(toward)
            self._net.cuts += bool(toward)
            if self._end.wait(seconds):
                return

    def close(self) -> None:
        self._end.set()
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "the line does not stop flapping"


class _Slow:
    """A tun device of the calling thread's namespace, up: what is sent there comes back from there a while later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held = deque[tuple[float, bytes]]()
        self._tun = _tun()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="slow line", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            wait = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            ready, _, _ = select.select([self._tun, self._woken], [], [], wait)
            if self._woken in ready:
                return
            if self._tun in ready:
                self._take()
            self._give()

    def _take(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._held.append((time.monotonic() + self._seconds, os.read(self._tun, LARGEST)))

    def _give(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            with suppress(OSError):  # no room: lost, as packets are
                os.write(self._tun, self._held.popleft()[1])

    def close(self) -> None:
        """The device is gone, and what was held is lost."""
        os.close(self._wake)
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "the slow line does not end"
        os.close(self._tun)
        os.close(self._woken)
