"""A process that makes hosts and passes their messages on, late and at a limited rate.

    python relay.py '{"prefix": "10.213.7", "hosts": [[4e7, 0.001], ...]}'

Each host is a network namespace without a name, with one interface: a TAP device, whose frames this
process reads and writes. So all hosts are removed when this process ends, and it ends with its
standard input.

A host sends at most at its rate (`tc` tbf) and receives at most at its rate (here). A frame is
delayed by the sender's link and by the receiver's link. Host 0 is the machine itself, without a
limit. When all hosts are ready, the relay prints a line with the file descriptors of the
namespaces.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
MTU: Final = 9000
_BURST: Final = 64_000  # bytes
_QUEUE_S: Final = 1.0  # longest wait in the queue of tbf: the connections slow down before
_NEVER: Final = 3600.0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Host:
    """A host's interface.

    rate: bytes/s, infinite for the machine itself. delay_s: delay of its link in each direction.
    free_at: time when its link will have passed on all frames that were sent to it (s).
    """

    tap: int
    rate: float
    delay_s: float
    free_at: float = 0.0


def enter(namespace: int) -> None:
    """Move this thread to a network namespace, given by a file descriptor. Raises OSError."""
    if _libc.setns(namespace, _CLONE_NEWNET):
        _raise("setns")


def mac(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, number])


def main() -> None:
    given = json.loads(sys.argv[1])
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    hosts, namespaces = [], []
    for number, (rate, delay_s) in enumerate(given["hosts"], 1):
        if _libc.unshare(_CLONE_NEWNET):
            _raise("unshare")
        namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        tap = _interface("eth0", number, given["prefix"])
        _command(
            *("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{round(8 * rate)}bit"),
            *("burst", str(_BURST), "limit", str(round(rate * _QUEUE_S))),
        )
        hosts.append(Host(tap, rate, delay_s))
    enter(own)
    machine = Host(_interface(given["name"], 0, given["prefix"]), float("inf"), 0.0)
    print(json.dumps(namespaces), flush=True)
    relay([machine, *hosts])


def relay(hosts: list[Host]) -> None:
    """Pass frames on until standard input ends."""
    taps = [host.tap for host in hosts]
    numbers = {mac(number): number for number in range(len(hosts))}
    late: list[tuple[float, int, int, bytes]] = []  # when, order, receiver, frame
    order = 0
    stdin = sys.stdin.fileno()
    for tap in taps:
        os.set_blocking(tap, False)
    while True:
        wait = late[0][0] - time.monotonic() if late else _NEVER
        ready, _, _ = select.select([stdin, *taps], [], [], max(0.0, wait))
        if stdin in ready:
            return
        for tap in ready:
            source = taps.index(tap)
            for _ in range(64):
                try:
                    frame = os.read(tap, MTU + 64)
                except BlockingIOError:
                    break
                receiver = numbers.get(frame[:6])
                others = [n for n in range(len(hosts)) if n != source]
                for to in others if receiver is None else [receiver]:
                    host = hosts[to]
                    begins = max(time.monotonic() + hosts[source].delay_s, host.free_at)
                    host.free_at = begins + len(frame) / host.rate
                    heapq.heappush(late, (host.free_at + host.delay_s, order, to, frame))
                    order += 1
        now = time.monotonic()
        while late and late[0][0] <= now:
            _, _, to, frame = heapq.heappop(late)
            try:
                os.write(taps[to], frame)
            except OSError:  # a full queue drops the frame, as a switch does
                continue


def _interface(name: str, number: int, prefix: str) -> int:
    """Make a TAP device in this namespace, at address PREFIX.(number + 1); return its file."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    address = ":".join(f"{byte:02x}" for byte in mac(number))
    _command("ip", "link", "set", "dev", name, "address", address, "mtu", str(MTU))
    _command("ip", "address", "add", f"{prefix}.{number + 1}/24", "dev", name)
    _command("ip", "link", "set", "dev", name, "up")
    _command("ip", "link", "set", "dev", "lo", "up")
    return tap


def _command(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _raise(call: str) -> Any:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
