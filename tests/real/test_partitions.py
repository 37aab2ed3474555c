"""A real run whose network is cut: hosts are network namespaces, which only root can make."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from outpace.record.status import Status, read_status

LIMIT_S = 120.0
SCRIPT = """
import time, torch, outpace

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(20, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
inputs = torch.randn(64, 20, generator=torch.Generator().manual_seed(outpace.rank()))
for _ in range(100_000):
    (model(inputs) - inputs[:, :1]).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""


class Hosts:
    """Two network namespaces with a cable between them."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.names = [f"outpace-{os.getpid()}-{side}" for side in "ab"]
        self.addresses = [f"10.77.{number}.{host}" for host in (1, 2)]
        self._ends = [f"o{os.getpid()}{side}" for side in "ab"]

    def __enter__(self) -> Hosts:
        for name in self.names:
            _ip("netns", "add", name)
        a, b = self.names
        end_a, end_b = self._ends
        _ip("link", "add", end_a, "netns", a, "type", "veth", "peer", "name", end_b, "netns", b)
        for name, address, end in zip(self.names, self.addresses, self._ends, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            for each in ("lo", end):
                _ip("-n", name, "link", "set", each, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            _ip("netns", "del", name)

    def cut(self) -> None:
        _ip("-n", self.names[1], "link", "set", self._ends[1], "down")

    def mend(self) -> None:
        _ip("-n", self.names[1], "link", "set", self._ends[1], "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def can_make_hosts() -> bool:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with Hosts():
            return True
    except subprocess.CalledProcessError:
        return False


class Run:
    """`outpace serve` and workers 0 and 1 on the first host, worker 2 on the second."""

    def __init__(self, folder: Path, hosts: Hosts, stack: ExitStack) -> None:
        self.folder, self._hosts, self._stack = folder, hosts, stack
        (folder / "train.py").write_text(SCRIPT)
        options = ["--workers", "3", "--servers", "2", "--host", hosts.addresses[0]]
        options += ["--connect", "connect.json", "--out", "run", "sync={kind: asp}"]
        self.serve = self._start(0, "serve", [sys.executable, "-m", "outpace", "serve", *options])
        self.wait_until("connect.json", (folder / "connect.json").exists)
        self.workers = [
            self._start(worker == 2, f"worker-{worker}", [sys.executable, "train.py"], worker)
            for worker in range(3)
        ]
        self.wait_until("iterations of all", lambda: min(self.iterations(), default=0) > 5)

    def _start(
        self, host: int, name: str, command: list[str], worker: int = 0
    ) -> subprocess.Popen[bytes]:
        place = {"RANK": str(worker), "WORLD_SIZE": "3", "OUTPACE_CONNECT": "connect.json"}
        with (self.folder / f"{name}.txt").open("wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._hosts.names[host], *command],
                cwd=self.folder,
                env={**os.environ, **place},
                stdout=output,
                stderr=output,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def status(self) -> Status:
        found = read_status(self.folder / "run")
        unknown = Status(command="serve", process=0, host="", since=0, at=0, phase="starting")
        return unknown if found is None else found

    def iterations(self) -> list[int]:
        found = self.status().processes
        return [each.iteration or 0 for each in found if each.name.startswith("worker")]

    def state(self, name: str) -> str:
        return next((each.state for each in self.status().processes if each.name == name), "")

    def wait_until(self, what: str, is_there: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not is_there():
            assert time.monotonic() < until, f"{LIMIT_S} s without {what}: {self.said}"
            time.sleep(0.1)

    @property
    def said(self) -> str:
        files = sorted(self.folder.glob("*.txt"))
        return "\n".join(f"{file.stem}: {file.read_text()}" for file in files)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Run, Hosts]]:
    if not can_make_hosts():
        pytest.skip("network namespaces cannot be made here")
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts())
        yield Run(tmp_path, hosts, stack), hosts


@pytest.mark.slow
def test_a_worker_that_is_cut_off_from_the_others_is_lost_after_its_lease_and_told(run):
    """No process can take its place: it was started by hand. The others continue without it."""
    made, hosts = run
    hosts.cut()
    made.wait_until("the loss of worker-2", lambda: made.state("worker-2") == "lost")
    others = made.iterations()[:2]
    made.wait_until("others that continue", lambda: min(made.iterations()[:2]) > max(others) + 10)
    hosts.mend()
    made.workers[2].wait(LIMIT_S)
    assert made.workers[2].returncode != 0
    assert "worker-2" in (made.folder / "worker-2.txt").read_text()
    made.serve.send_signal(signal.SIGINT)
    made.serve.wait(LIMIT_S)
    summary = json.loads((made.folder / "run" / "summary.json").read_text())
    assert summary["status"] == "partial"
