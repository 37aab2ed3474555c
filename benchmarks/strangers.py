"""Attack a real run from outside, without a key, and compare it with an undisturbed one.

python -m benchmarks.strangers bsp ssgd --seconds 60

Everything happens on this machine, at the ports of processes that this script has started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # not a line for each refused connection
import torch.distributed
import zmq

dist: Any = torch.distributed
STEP_S = 0.1
HOST = "127.0.0.1"
BASE = [
    "workers=3",
    "seed=7",
    "batch_size=8",
    "compute.kind=constant",
    f"compute.mean_s={STEP_S}",
    "optimizer.lr=0.05",
    "deterministic=true",
]
KINDS = {  # options of the run; True if its result is always the same
    "asp": (["servers=2", "sync.kind=asp"], False),
    "bsp": (["servers=2", "sync.kind=bsp"], True),
    "ssgd": (["sync.kind=ssgd"], True),
    "hpsgd": (["sync.kind=hpsgd"], False),
    "gossip": (["sync.kind=gossip"], False),
    "serve": (["servers=2", "sync.kind=bsp"], True),  # the workers are scripts started apart
}
SCRIPT = """
import outpace, torch
torch.manual_seed(outpace.rank())
model = torch.nn.Linear(64, 10)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
while True:
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\0%s" + bytes(32)  # of ZeroMQ, with the mechanism
_READY = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


class Run:
    """A run with its processes, of which memory and file descriptors are watched."""

    def __init__(self, kind: str, seconds: float, folder: Path, *, insecure: bool) -> None:
        config = folder / "run.yaml"
        config.write_text("task: {kind: digits-mlp}\n")
        steps = f"stop.iterations={int(seconds / STEP_S)}"
        outpace = [sys.executable, "-m", "outpace"]
        command = [*outpace, "run", str(config), *BASE]
        if kind == "serve":
            connect = str(folder / "connect.json")
            command = [*outpace, "serve", "--workers", "3", "--connect", connect]
            command += [BASE[1], *BASE[3:5], BASE[6]]
        command += [*KINDS[kind][0], steps, "--out", str(folder / "out")]
        command += ["--insecure"] if insecure else []
        self.summary = folder / "out" / "summary.json"
        self.output = folder / "output"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
            self.workers = []
            for rank in range(3 if kind == "serve" else 0):
                place = {"OUTPACE_RANK": str(rank), "OUTPACE_WORLD_SIZE": "3"}
                environment = os.environ | place | {"OUTPACE_CONNECT": connect}
                script = [sys.executable, "-c", SCRIPT]
                self.workers.append(
                    subprocess.Popen(script, stdout=output, stderr=output, env=environment)
                )
        self.most_mb: dict[int, float] = {}
        self.most_files: dict[int, int] = {}
        self.last_files: dict[int, int] = {}

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def pids(self) -> list[int]:
        """Return the process ids of the run."""
        started = [self.process, *self.workers]
        return [pid for each in started for pid in descendants(each.pid)]

    def end(self) -> None:
        for each in (self.process, *self.workers):
            each.terminate()
            each.wait()

    def look(self) -> None:
        """Note the memory and the open files of all processes."""
        for pid in self.pids():
            with contextlib.suppress(OSError, StopIteration):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
                count = len(os.listdir(f"/proc/{pid}/fd"))
                self.most_mb[pid] = max(self.most_mb.get(pid, 0), rss / 1024)
                self.most_files[pid] = max(self.most_files.get(pid, 0), count)
                self.last_files[pid] = count

    def ports(self) -> list[int]:
        """Return the ports of servers, coordinator and store. Gloo's in workers are open."""
        own = set[str]()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("worker-"):
                    continue
                for each in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        own.add(os.readlink(f"/proc/{pid}/fd/{each}"))
        found = []
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:  # it listens
                found.append(int(fields[1].rsplit(":", 1)[1], 16))
        return found

    def result(self) -> dict[str, Any]:
        summary = json.loads(self.summary.read_text())
        return {
            "status": summary["status"],
            "digest": summary["parameters_digest"][:12],
            "applied": summary["gradients_applied"],
            "seconds": round(summary["wall_time_s"], 1),
            "largest process, MB": round(max(self.most_mb.values())),
            "all processes, MB": round(sum(self.most_mb.values())),
            "open files, at most": sorted(self.most_files.values()),
            "open files at the end": sorted(self.last_files.values()),
        }


def descendants(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from descendants(int(child))


class Attack:
    """The attacks of a process without a key, again and again, at one port."""

    def __init__(self, port: int) -> None:
        self.port, self.rounds = port, 0
        self._held: list[socket.socket] = []
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.linger = 0
        self._sockets: list[zmq.Socket[bytes]] = []
        public, secret = zmq.curve_keypair()
        for mechanism in ("null", "plain", "curve"):
            each = self._context.socket(zmq.DEALER)
            each.routing_id = b"worker-0"
            each.sndhwm = 4
            if mechanism == "plain":
                each.plain_username, each.plain_password = b"worker-0", b"0"
            if mechanism == "curve":
                each.curve_serverkey, each.curve_publickey = zmq.curve_keypair()[0], public
                each.curve_secretkey = secret
            each.connect(f"tcp://{HOST}:{port}")
            self._sockets.append(each)
        self._steps: list[Callable[[], None]] = [
            self._noise,
            self._hold_connections,
            self._begin_long_commands,
            self._send_many_frames,
        ]

    def round(self) -> None:
        for step in self._steps:
            with contextlib.suppress(OSError, zmq.Again):
                step()
        if self.rounds % 50 == 0:
            self._use_as_store()
        self.rounds += 1

    def close(self) -> None:
        for each in self._held:
            each.close()
        self._context.destroy(linger=0)

    def _connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), 0.2)

    def _noise(self) -> None:
        for data in (os.urandom(300), b"GET / HTTP/1.1\r\n\r\n", bytes(9)):
            with self._connect() as connection:
                connection.sendall(data)

    def _hold_connections(self) -> None:
        self._held.append(self._connect())
        if len(self._held) > 400:
            self._held.pop(0).close()

    def _begin_long_commands(self) -> None:
        """Announce a command of 4 MB in the handshake, and send all of it but the end."""
        connection = self._connect()
        self._held.append(connection)
        mechanism = (b"NULL", b"PLAIN", b"CURVE")[self.rounds % 3].ljust(20, b"\0")
        size = (1 << 22) - 100
        connection.sendall(_GREETING % mechanism)
        connection.sendall(b"\x06" + size.to_bytes(8, "big") + bytes(size - 1000))

    def _send_many_frames(self) -> None:
        """Send messages, and frames of a message that has no end."""
        for each in self._sockets:
            with contextlib.suppress(zmq.Again):
                each.send_multipart([bytes(1 << 20)] * 4, zmq.NOBLOCK)
        with self._connect() as connection:
            connection.sendall(_GREETING % b"NULL".ljust(20, b"\0") + _READY)
            for _ in range(20):
                connection.sendall(b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20))

    def _use_as_store(self) -> None:
        """Overwrite and fill a rendezvous of torch.distributed."""
        with contextlib.suppress(RuntimeError):
            store = dist.TCPStore(HOST, self.port, is_master=False, timeout=timedelta(seconds=0.3))
            store.set("group 0/0/0", "x")
            for number in range(30):
                store.set(f"{self.port} {self.rounds} {number}", "x" * (1 << 20))


def attack(run: Run) -> int:
    """Attack each port of the run until it ends; return the number of rounds."""
    attacks: dict[int, Attack] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            run.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        while not run.is_over:
            for port in run.ports():
                if port not in attacks:
                    attacks[port] = Attack(port)
            for each in attacks.values():
                each.round()
            time.sleep(0.02)
    finally:
        over.set()
        watcher.join()
        for each in attacks.values():
            each.close()
    print(f"  attacked {len(attacks)} ports, {sum(a.rounds for a in attacks.values())} rounds")
    return len(attacks)


def leave_alone(run: Run) -> int:
    while not run.is_over:
        run.look()
        time.sleep(0.25)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.strangers", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"{', '.join(KINDS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--insecure", action="store_true")
    options = parser.parse_args()
    failed = False
    for kind in options.kinds or KINDS:
        results = []
        for what in (leave_alone, attack):
            with tempfile.TemporaryDirectory() as folder:
                run = Run(kind, options.seconds, Path(folder), insecure=options.insecure)
                try:
                    what(run)
                finally:
                    run.end()
                results.append(run.result())
                if results[-1]["status"] != "complete":
                    print(run.output.read_text(errors="replace")[-3000:])
        alone, attacked = results
        same = ["status", "applied", *(["digest"] if KINDS[kind][1] else [])]
        failed |= any(alone[key] != attacked[key] for key in same)
        print(kind, "alone:   ", alone)
        print(kind, "attacked:", attacked, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
