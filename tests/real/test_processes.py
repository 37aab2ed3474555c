"""`outpace run` as a process of its own: how it ends, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.forkserver
import os
import pty
import select
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
from tests.support.warm import Warm

from outpace.errors import RunError
from outpace.experiment.running import run
from outpace.real.coordinator import coordinator
from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
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
import multiprocessing, pathlib, time
import torch
import outpace

def make_task():
    name = multiprocessing.current_process().name
    {at_start}
    path = pathlib.Path({here!r}) / (name + ".calls")
    calls = 0

    def loss(output, target):
        nonlocal calls
        if output.requires_grad:
            {before}
            calls += 1
            with path.open("a") as file:
                file.write(".")
        return torch.nn.functional.cross_entropy(output, target)

    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    return outpace.Task(torch.nn.Linear(5, 2), loss, (x[:200], y[:200]), (x[200:], y[200:]))
"""


def write_task(here: Path, before: str = "pass", at_start: str = "pass") -> None:
    """`before` is done before each loss, `at_start` when the task is made."""
    text = TASK.format(here=str(here), before=before, at_start=at_start)
    (here / "task.py").write_text(text)


def until(condition: Callable[[], Any], what: str, limit_s: float = 60.0) -> Any:
    """Return the value of the condition as soon as it is true."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.01)
    return found


class Command:
    """A running `outpace run`, leader of a process group of its own.

    warm: forks it with all imports done; None: a new Python imports everything.
    """

    def __init__(
        self, warm: Warm | None, here: Path, arguments: tuple[str, ...], config: dict[str, Any]
    ) -> None:
        self.here, self.out = here, here / "out"
        (here / "config.yaml").write_text(json.dumps(config))
        command = ["run", "config.yaml", "--out", "out", *arguments]
        with (here / "stdout").open("w") as stdout, (here / "stderr").open("w") as stderr:
            streams = {"stdout": stdout.fileno(), "stderr": stderr.fileno()}
            options: dict[str, Any] = {"cwd": here, "start_new_session": True, **streams}
            if warm is None:
                started = [sys.executable, "-m", "outpace", *command]
                self.process: Any = subprocess.Popen(started, **options)
            else:
                self.process = warm.outpace(*command, **options)

    def calls(self, name: str) -> int:
        path = self.here / f"{name}.calls"
        return path.stat().st_size if path.exists() else 0

    def going(self, name: str = "worker-0", iterations: int = 5) -> None:
        until(
            lambda: self.process.poll() is not None or self.calls(name) >= iterations,
            f"{name} computes",
        )
        assert self.process.poll() is None, self.stderr

    def pid(self, name: str) -> int:
        (pid,) = (pid for pid in self.alive() if _read(pid, "comm").strip() == name.encode())
        return pid

    def alive(self) -> list[int]:
        """All processes that have come from it: its folder is that of all of them."""
        pids = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
        return [pid for pid in pids if _folder(pid) == str(self.here) and not _is_zombie(pid)]

    def ends(self, limit_s: float = 20.0) -> int:
        """Return the exit code; no process that it started outlives it."""
        until(lambda: self.process.poll() is not None, "the command ends", limit_s)
        self.leaves_nothing()
        assert "Traceback" not in self.stderr
        return int(self.process.returncode)

    def leaves_nothing(self) -> None:
        until(lambda: not self.alive(), "all processes are gone", 3.0)

    @property
    def stderr(self) -> str:
        return (self.here / "stderr").read_text()

    @property
    def error(self) -> str:
        """The only line on stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    @property
    def stdout(self) -> str:
        return (self.here / "stdout").read_text()

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


def _is_zombie(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"])


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path, warm: Warm) -> Iterator[Start]:
    """Starts a Command in a folder of its own, and cleans up after it.

    cold: with the imports that a user waits for, too.
    """
    started: list[Command] = []

    def begin(
        *arguments: str,
        cold: bool = False,
        before: str = "pass",
        at_start: str = "pass",
        **changes: Any,
    ) -> Command:
        here = tmp_path / str(len(started))
        here.mkdir()
        write_task(here, before, at_start)
        started.append(Command(None if cold else warm, here, arguments, {**BASE, **changes}))
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
    script = {"kind": "script", "path": "../own.py"}
    command = start(task=script, workers=2, servers=1, sync={"kind": "bsp"}, evaluate={})
    command.going()
    for pid in command.alive():  # as a cluster does
        os.kill(pid, signal.SIGTERM)
    assert command.ends() == 130
    for worker in (0, 1):
        assert (command.here / f"told-{worker}").read_text() == "called saved finished"


@linux
@pytest.mark.parametrize(
    ("how", "changes"),
    [
        ("Ctrl-C twice", {}),
        ("SIGTERM", {"servers": 1, "sync": {"kind": "hpsgd"}, "evaluate": {"every_updates": 3}}),
    ],
)  # SIGHUP: a terminal that is closed
def test_an_interrupted_run_ends_in_order_with_the_parameters_that_it_has(start, how, changes):
    command = start(cold=how != "SIGTERM", **changes)
    command.going(iterations=20)
    if how == "SIGTERM":
        command.process.send_signal(signal.SIGTERM)
    else:
        os.killpg(command.process.pid, signal.SIGINT)
        while "interrupted" not in (command.out / files.SUMMARY).read_text():
            time.sleep(0.02)  # faster than any hand
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
def test_a_run_whose_terminal_is_closed_ends_in_order(tmp_path):
    """It gets SIGHUP then, and whatever it prints is an error."""
    write_task(tmp_path)
    (tmp_path / "config.yaml").write_text(json.dumps(BASE))
    command = [sys.executable, "-m", "outpace", "run", "config.yaml", "--out", "out"]
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # even if nohup started the tests
        os.chdir(tmp_path)
        os.execv(sys.executable, command)

    def is_computing() -> bool:
        while select.select([terminal], [], [], 0)[0]:  # else the live view waits to be read
            os.read(terminal, 1 << 16)
        calls = tmp_path / "worker-0.calls"
        return calls.exists() and calls.stat().st_size >= 5

    try:
        until(is_computing, "worker-0 computes")
        os.close(terminal)
        ended = until(lambda: os.waitpid(process, os.WNOHANG)[1], "it ends", 20.0)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    assert os.waitstatus_to_exitcode(ended) == 130
    summary = files.read_summary(tmp_path / "out")
    assert (summary["status"], summary["error"]) == ("partial", "interrupted")
    assert pq.read_table(tmp_path / "out" / files.TRACE).num_rows > 0


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
@pytest.mark.parametrize(("cold", "after_s"), [(True, 0.5), (False, 0.05)])
def test_ctrl_c_while_it_starts_leaves_no_process(start, cold, after_s):
    command = start(cold=cold)
    summary = command.out / files.SUMMARY
    until(lambda: summary.exists() or (cold and len(command.alive()) > 1), "it starts")
    time.sleep(after_s)
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.ends() == 130
    assert command.error.startswith("interrupted")
    if not cold or summary.exists():  # else the fork server was there, and the run had not begun
        assert json.loads(summary.read_text())["status"] == "partial"


@linux
def test_a_process_whose_start_was_interrupted_does_not_stay(monkeypatch):
    launcher = LocalLauncher(RealClock(), lambda *_: None, print)
    launcher.start(Role("first", time.sleep, (60,)))  # so that there is a fork server
    first = launcher.pids["first"]
    read_signed = multiprocessing.forkserver.read_signed
    lost = []

    def interrupted(fd: int) -> int:
        lost.append(read_signed(fd))  # the fork server says which process it started
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launcher.start(Role("lost", time.sleep, (60,)))
    monkeypatch.undo()
    assert launcher.pids == {"first": first}
    until(lambda: _is_zombie(lost[0]), "it has ended")
    assert not _is_zombie(first)
    launcher.stop()
    until(lambda: _is_zombie(first), "the other one, too, once it was stopped")


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


# -- a process of the run is lost ------------------------------------------------------


@linux
def test_what_the_task_raises_is_said_with_worker_and_iteration(start):
    before = "if name == 'worker-1' and calls == 3: raise ValueError('no luck')"
    command = start(before=before)
    assert command.ends(60) == 1
    assert command.error.startswith(
        "error: the task raised in worker 1, iteration 3: ValueError: no luck"
    )
    command.summary("failed")


# -- what runs -----------------------------------------------------------------------------


def test_a_real_run_says_what_of_virtual_time_it_ignores():
    said: list[str] = []
    config = {**DIGITS, "stop": {"iterations": 2}, "compute": {"kind": "measured"}}
    result = run({**config, "colocate": True}, log=said.append)
    assert [line.split()[0] for line in said] == ["colocate", "compute"]
    assert result.experiment.compute is None


DIGITS: dict[str, Any] = {
    **BASE,
    "task": {"kind": "digits-mlp"},
    "workers": 2,
    "evaluate": {},
    "batch_size": 8,
}


def test_a_worker_that_does_not_come_back_when_time_is_over_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(coordinator, "WIND_DOWN_S", 1.0)
    monkeypatch.setattr(coordinator, "EARLY_END_S", 0.5)
    write_task(tmp_path, "if calls == 3 and name != 'worker-0': time.sleep(60)")
    with pytest.raises(RunError, match=r"^worker-1, worker-2 did not finish within 1 s$"):
        run({**BASE, "stop": {"virtual_time_s": 0.5}})


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


def test_evaluations_follow_the_clock():
    result = run({**DIGITS, "evaluate": {"every_s": 0.2}, "stop": {"virtual_time_s": 1.1}})
    first, *times, last = result.metrics["time_s"].to_pylist()
    assert first == 0
    assert last >= 1.1
    # A busy machine makes an evaluation late, or leaves it out, but makes none early.
    due = [int(time_s / 0.2) for time_s in times]
    assert due == sorted(set(due))
    assert due[0] >= 1
