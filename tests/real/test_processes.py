"""`outpace run` as a separate process: how it ends, and that nothing remains of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from tests.kills.command import is_alive
from tests.support.cluster import until
from tests.support.warm import Warm

from outpace.experiment.running import run
from outpace.record import folder as files

pytestmark = pytest.mark.slow
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

BASE: dict[str, Any] = {
    "task": {"kind": "python", "target": "task.py:make_task"},
    "workers": 3,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 0.02},
    "sync": {"kind": "ssp", "staleness": 2},
    "evaluate": {"every_s": 0.3},
    "stop": {"iterations": 100_000},
}
# Its loss leaves a byte in a file for each call, named after the process.
TASK = """\
import multiprocessing, pathlib
import torch
import outpace

def make_task():
    name = multiprocessing.current_process().name
    path = pathlib.Path(__file__).with_name(name + ".calls")

    def loss(output, target):
        if output.requires_grad:
            with path.open("a") as file:
                file.write(".")
        return torch.nn.functional.cross_entropy(output, target)

    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    return outpace.Task(torch.nn.Linear(5, 2), loss, (x[:200], y[:200]), (x[200:], y[200:]))
"""


class Command:
    """A running `outpace run`, the leader of a separate process group.

    warm: forks it with all imports done; None: a new Python imports everything.
    """

    def __init__(self, warm: Warm | None, here: Path, config: dict[str, Any]) -> None:
        self.here, self.out = here, here / "out"
        (here / "config.yaml").write_text(json.dumps(config))
        command = ["run", "config.yaml", "--out", "out"]
        with (here / "stdout").open("w") as stdout, (here / "stderr").open("w") as stderr:
            streams = {"stdout": stdout.fileno(), "stderr": stderr.fileno()}
            options: dict[str, Any] = {"cwd": here, "start_new_session": True, **streams}
            if warm is None:
                started = [sys.executable, "-m", "outpace", *command]
                self.process: Any = subprocess.Popen(started, **options)
            else:
                self.process = warm.outpace(*command, **options)

    @property
    def calls(self) -> int:
        path = self.here / "worker-0.calls"
        return path.stat().st_size if path.exists() else 0

    def going(self, iterations: int = 5) -> None:
        until(lambda: self.process.poll() is not None or self.calls >= iterations)
        assert self.process.poll() is None, self.stderr

    def pid(self, name: str) -> int:
        (pid,) = (pid for pid in self.alive() if _read(pid, "comm").strip() == name.encode())
        return pid

    def alive(self) -> list[int]:
        """Return all running processes of the command: they have the same current folder."""
        pids = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
        return [pid for pid in pids if _folder(pid) == str(self.here) and is_alive(pid)]

    def ends(self) -> int:
        """Return the exit code, and require that all its processes have ended."""
        until(lambda: self.process.poll() is not None, 20.0)
        self.leaves_nothing()
        assert "Traceback" not in self.stderr
        return int(self.process.returncode)

    def leaves_nothing(self) -> None:
        until(lambda: not self.alive(), 3.0)

    @property
    def stderr(self) -> str:
        return (self.here / "stderr").read_text()

    @property
    def error(self) -> str:
        """Return the only line on stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    def summary(self, status: str) -> dict[str, Any]:
        """Return the summary of a folder, which must be valid."""
        summary = json.loads((self.out / files.SUMMARY).read_text())
        assert summary["status"] == status
        assert pq.read_table(self.out / files.TRACE).num_rows > 0
        metrics = pq.read_table(self.out / files.METRICS).to_pylist()
        assert metrics
        assert summary["accuracy"] == metrics[-1]["accuracy"]
        assert load_file(self.out / files.MODEL)["weight"].shape == (2, 5)
        assert (self.out / files.REPORT).stat().st_size > 1_000_000
        return dict(summary)

    def clean_up(self) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _folder(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path, warm: Warm) -> Iterator[Start]:
    """Return a function that starts a Command in a separate folder, and clean up after it.

    cold: True: the start includes the imports that a user waits for.
    """
    started: list[Command] = []

    def begin(*, cold: bool = False, **changes: Any) -> Command:
        (tmp_path / "task.py").write_text(TASK)
        started.append(Command(None if cold else warm, tmp_path, {**BASE, **changes}))
        return started[-1]

    yield begin
    for command in started:
        command.clean_up()


# -- interrupted -------------------------------------------------------------------


OWN_HANDLER = """\
import os, pathlib, signal, time
import torch, outpace

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("called"))
model = torch.nn.Linear(2, 1)
model, optimizer = outpace.attach(model, torch.optim.Adam(model.parameters()))
calls = pathlib.Path(f"worker-{outpace.rank()}.calls")
step = 0
while not (told and step % 5 == 0):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    step += 1
    calls.write_text("." * step)
told += ["saved"] if optimizer.state_dict()["state"] else []
outpace.finish()
pathlib.Path(f"told-{outpace.rank()}").write_text(" ".join([*told, "finished"]))
"""


@linux
def test_a_script_with_its_own_handler_of_sigterm_leaves_its_loop_and_saves(start, tmp_path):
    (tmp_path / "own.py").write_text(OWN_HANDLER)
    script = {"kind": "script", "path": "own.py"}
    command = start(task=script, workers=2, servers=1, sync={"kind": "bsp"}, evaluate={})
    command.going()
    for pid in command.alive():  # as a cluster does
        os.kill(pid, signal.SIGTERM)
    assert command.ends() == 130
    for worker in (0, 1):
        assert (command.here / f"told-{worker}").read_text() == "called saved finished"


@linux
def test_an_interrupted_run_ends_in_order_with_the_parameters_that_it_has(start):
    command = start()
    command.going(iterations=20)
    os.killpg(command.process.pid, signal.SIGINT)
    while "interrupted" not in (command.out / files.SUMMARY).read_text():
        time.sleep(0.02)  # faster than a user
        os.killpg(command.process.pid, signal.SIGINT)
    assert command.ends() == 130
    assert command.error.startswith("interrupted")
    summary = command.summary("partial")
    assert summary["error"] == "interrupted"
    assert summary["wall_time_s"] > 0
    assert min(summary["iterations"]) > 0
    torch.manual_seed(0)
    initial = torch.nn.Linear(5, 2).weight
    assert not torch.equal(load_file(command.out / files.MODEL)["weight"], initial)
    times = pq.read_table(command.out / "timing.parquet").column("what").to_pylist()
    assert {"probe", "compute"} <= set(times)


@linux
def test_parameters_lost_with_a_server_are_those_evaluated_last(start):
    command = start(evaluate={"every_updates": 10})
    command.going(iterations=20)
    os.kill(command.pid("server-1"), signal.SIGKILL)
    assert command.ends() == 1
    summary = command.summary("failed")
    assert summary["error"] == (
        "server-1 was killed by SIGKILL before it was done; set checkpoint, for example "
        "checkpoint: {every_s: 30}, so that a run continues after such a loss"
    )
    model = load_file(command.out / files.MODEL)
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    output = x[200:] @ model["weight"].T + model["bias"]
    assert summary["accuracy"] == pytest.approx(
        (output.argmax(dim=1) == (x[200:, 0] > 0)).float().mean().item()
    )


@linux
def test_ctrl_c_while_it_starts_leaves_no_process(start):
    command = start(cold=True)
    summary = command.out / files.SUMMARY
    until(lambda: summary.exists() or len(command.alive()) > 1)
    time.sleep(0.5)
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.ends() == 130
    assert command.error.startswith("interrupted")
    if summary.exists():  # otherwise the fork server existed, and the run had not begun
        assert json.loads(summary.read_text())["status"] == "partial"


@linux
def test_nothing_outlives_a_killed_run(start):
    command = start(cold=True)
    command.going()
    alive = command.alive()
    assert len(alive) >= 1 + 3 + 2 + 1  # itself, workers, servers, fork server
    new = [pid for pid in alive if b"multiprocessing.forkserver" in _read(pid, "cmdline")]
    assert new == [], "the fork server is a copy of the command, and so are its processes"
    command.process.kill()
    command.leaves_nothing()
    assert json.loads((command.out / files.SUMMARY).read_text())["status"] == "partial"


# -- what runs -----------------------------------------------------------------------------


# After its last iteration it waits until the time of the run is over.
SAVES_LATE = """\
import pathlib, time
import torch
import outpace
from outpace.tasks.data.digits import digits_mlp

task = digits_mlp()
model, optimizer = outpace.attach(task.model, torch.optim.SGD(task.model.parameters(), lr=0.1))
begun = time.monotonic()
try:
    while True:
        model(task.train[0][:8]).sum().backward()
        optimizer.step()
finally:
    time.sleep(max(0.0, begun + 0.9 - time.monotonic()))
    pathlib.Path({path!r}).touch()
"""


def test_a_script_may_save_for_longer_than_the_time_of_the_run(tmp_path):
    (tmp_path / "train.py").write_text(SAVES_LATE.format(path=str(tmp_path / "saved")))
    task = {"kind": "script", "path": str(tmp_path / "train.py")}
    stop = {"iterations": 2, "virtual_time_s": 0.6}
    result = run({"task": task, "workers": 1, "sync": {"kind": "bsp"}, "stop": stop})
    assert result.summary["iterations"] == [2]
    assert (tmp_path / "saved").exists()
