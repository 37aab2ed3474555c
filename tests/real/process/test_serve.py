"""`outpace serve`: workers that are started elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
import torch
from safetensors.torch import load_file
from tests.support.command import refused
from tests.support.paths import SCRIPTS
from tests.support.served import Served

import outpace
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import run, simulate
from outpace.real.net.transport import Keys, Session, new_keys
from outpace.real.node.member import CoordinatorLink
from outpace.real.process import rendezvous
from outpace.real.process.rendezvous import Outside, write_rendezvous
from outpace.record.checkpoints import Checkpoints

CONFIG = {"task": {"kind": "script", "path": "-"}, "workers": 1, "sync": {"kind": "bsp"}}
COMPUTE = {"compute": {"kind": "constant", "mean_s": 0.1}}


def _await_checkpoint(served: Served, number: int) -> None:
    deadline = time.monotonic() + 60
    saved = Checkpoints(served.folder / "run")
    while max(saved.numbers(), default=0) < number:
        assert served.process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_workers_that_are_started_again(serve):
    slow = ("compute.kind=constant", "compute.mean_s=0.3")
    served = serve("--servers", "2", "checkpoint.every_updates=2", *slow)
    run, script = served.folder / "run", served.folder / "kept.py"
    kept = (SCRIPTS / "kept.py").read_text()
    script.write_text(f"import torch\ntorch.set_num_threads(1)\n{kept}")  # as in virtual time
    before = [served.start_script(script, rank) for rank in range(2)]
    _await_checkpoint(served, 2)
    served.process.kill()
    for worker in before:
        _, text = worker.communicate(timeout=60)
        assert worker.returncode == 1
        # The servers end with the command, so a worker may miss one of them first.
        assert "lost the coordinator" in text or "to server-" in text
    served.process.communicate()
    with pytest.raises(ConfigError, match=r"started elsewhere: use outpace serve --resume .*FILE"):
        outpace.run(resume=run)
    served.resume()
    for worker in [served.start_script(script, rank) for rank in range(2)]:
        _, text = worker.communicate(timeout=60)
        assert worker.returncode == 0, text
    code, text, summary = served.end()
    assert code == 0, text
    task = {"kind": "script", "path": str(script)}
    whole = simulate({"task": task, "workers": 2, "servers": 2, "sync": {"kind": "bsp"}, **COMPUTE})
    assert summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert summary["iterations"] == [9, 9]
    assert summary["resumed_from"].startswith("checkpoints/0000")


@pytest.mark.slow
def test_a_script_with_ddp_started_elsewhere_trains_unchanged(serve):
    served, script = serve("sync.kind=ssgd"), SCRIPTS / "ddp_trains.py"
    workers = [served.start_unchanged(script, rank, served.folder) for rank in range(2)]
    for worker in workers:
        _, text = worker.communicate(timeout=60)
        assert worker.returncode == 0, text
    code, text, summary = served.end()
    assert code == 0, text
    assert summary["iterations"] == [12, 12]
    assert summary["synchronizations"] == 12
    first, second = (torch.load(served.folder / f"{rank}.pt") for rank in range(2))
    assert first["losses"] == second["losses"]  # sums over both workers
    for name, value in load_file(served.folder / "run" / "model.safetensors").items():
        if name in first["parameters"]:
            assert torch.equal(value, first["parameters"][name])
            assert torch.equal(value, second["parameters"][name])


ENDLESS = """
import pathlib, torch, outpace

model = torch.nn.Linear(4, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    pathlib.Path(f"trains-{outpace.rank()}").touch()
"""


@pytest.mark.slow
def test_a_worker_started_elsewhere_that_is_killed_is_done_without(serve):
    served = serve("--servers", "2")
    script = served.folder / "endless.py"
    script.write_text(ENDLESS)
    first, second = (served.start_script(script, rank) for rank in range(2))

    def train(*ranks: int) -> None:
        deadline, marks = time.monotonic() + 60, [served.folder / f"trains-{n}" for n in ranks]
        while not all(mark.exists() for mark in marks):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)

    train(0, 1)
    second.kill()
    for line in served.process.stderr:
        if line.startswith("worker-1"):
            break
    assert line.endswith("; the others continue without it\n")
    (served.folder / "trains-0").unlink()
    train(0)  # it continues
    first.kill()
    code, text, summary = served.end()
    assert code == 1
    assert text.startswith("error: worker-0 is lost: ")
    assert summary["status"] == "failed"


def connect_file(path: Path, workers: int, keys: dict[str, Keys] | None = None) -> IO[bytes]:
    """Write the file for this many workers of a run that does not exist; the file stays open."""
    experiment = experiment_from({**CONFIG, "workers": workers}, "the test")
    session = Session(1, 0, 10.0, new_keys())
    link = CoordinatorLink("coordinator", "tcp://127.0.0.1:1", session.keys.public, session)
    keys = keys or {f"worker-{number}": new_keys() for number in range(workers)}
    return write_rendezvous(path, link, keys, experiment)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "process 2 of 2"),
        ({"RANK": "0", "WORLD_SIZE": "3"}, "the run has 2 workers"),
        ({"RANK": "first", "WORLD_SIZE": "2"}, "must be whole numbers"),
        ({}, "number of this worker is unknown"),
        ({"OUTPACE_CONNECT": "/nowhere/x.json"}, "cannot read /nowhere/x.json"),
        ({"OUTPACE_CONNECT": __file__}, "was not written by outpace serve"),
    ],
)
def test_a_place_that_is_not_in_the_run_is_refused(tmp_path, monkeypatch, environment, words):
    path = tmp_path / "connect.json"
    connect_file(path, 2).close()
    for key, value in {"OUTPACE_CONNECT": str(path), **environment}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigError, match=re.escape(words)):
        outpace.rank()


class Clock:
    """Stands in for the module `time`; `then` is called once it is 30 s past the start."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.now, self._then = 0.0, then

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        before, self.now = self.now, self.now + duration_s
        if before < 30 <= self.now:
            self._then()


@pytest.mark.usefixtures("nowhere")
def test_a_worker_that_starts_before_serve_waits_for_the_file_and_says_so(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "connect.json"
    clock = Clock(lambda: connect_file(path, 1).close())
    monkeypatch.setattr(rendezvous, "time", clock)
    for key, value in (("CONNECT", path), ("RANK", 0), ("WORLD_SIZE", 1)):
        monkeypatch.setenv(f"OUTPACE_{key}", str(value))
    assert outpace.world_size() == 1
    assert 30 <= clock.now < 31
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"outpace: OUTPACE_CONNECT: {path} does not exist yet; waiting up to 60")


@pytest.mark.usefixtures("nowhere")
def test_the_place_in_a_run_is_that_of_the_launcher(tmp_path, monkeypatch):
    path = tmp_path / "connect.json"
    connect_file(path, 2).close()
    for key, value in (("OUTPACE_CONNECT", path), ("SLURM_PROCID", 1), ("SLURM_NTASKS", 2)):
        monkeypatch.setenv(key, str(value))
    assert (outpace.rank(), outpace.world_size()) == (1, 2)


def outside(tmp_path, **changes):
    settings = {"host": "127.0.0.1", "connect": tmp_path / "connect.json", **changes}
    return Outside(**settings)


def test_a_file_that_is_there_already_is_neither_overwritten_nor_removed(tmp_path):
    there = tmp_path / "connect.json"
    there.write_text("mine")
    with pytest.raises(ConfigError, match="the file exists"):
        run(CONFIG, outside=outside(tmp_path))
    assert there.read_text() == "mine"


def test_the_file_of_a_run_that_was_killed_is_replaced_and_of_one_that_goes_on_is_not(tmp_path):
    chosen = outside(tmp_path)
    assert not chosen.remove_left_over()
    with connect_file(chosen.connect, 1):
        with pytest.raises(ConfigError, match="another run may be using it"):
            chosen.require_reachable()
        assert not chosen.remove_left_over()
    chosen.require_reachable()
    assert chosen.remove_left_over()
    assert not chosen.connect.exists()


def test_a_connect_file_in_a_folder_that_is_not_there_is_refused_before_servers_start(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    arguments = ("serve", "--workers", "2", "--connect", "nowhere/connect.json", "--out", "out")
    message = refused(capsys, *arguments)
    assert message.startswith("error: --connect nowhere/connect.json: the folder nowhere does not")
    assert list(tmp_path.iterdir()) == []


def test_keys_are_never_in_a_file_that_somebody_may_have_open(tmp_path):
    path = tmp_path / "connect.json"
    guess = tmp_path / "connect.json.part"
    guess.write_text("")
    guess.chmod(0o666)
    connect_file(path, 1, {"worker-0": new_keys()}).close()
    assert guess.read_text() == ""
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("nowhere")
def test_torchrun_without_serve_is_an_error_not_several_trainings(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ConfigError, match="OUTPACE_CONNECT is not set"):
        outpace.attach(model, torch.optim.SGD(model.parameters()))


@pytest.mark.usefixtures("nowhere")
def test_a_script_with_a_process_group_of_its_own_may_log_without_a_run(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="OUTPACE_CONNECT is not set"):
        outpace.log(loss=1.0)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        outpace.log(loss=1.0)
        assert outpace.output_dir() == Path.cwd()
    finally:
        torch.distributed.destroy_process_group()
