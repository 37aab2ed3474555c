"""The batch script for SLURM and the manifest for Kubernetes, whose commands are run here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.support.paths import EXAMPLES

WORKERS = 2
LIMIT_S = 120.0
# Before the job is queued again, it never ends; afterwards it ends after ten more steps.
TRAIN = """
import itertools, pathlib, torch, outpace

model = torch.nn.Linear(4, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
ends = pathlib.Path("requeued").exists()
for step in range(10) if ends else itertools.count():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5:
        pathlib.Path(f"trains-{outpace.rank()}").touch()
"""
# Starts the workers of a job, and fails if one of them fails.
SRUN = """#!/bin/bash
for number in $(seq 0 $((SLURM_NTASKS - 1))); do SLURM_PROCID=$number "$@" & all+=($!); done
code=0
for each in "${all[@]}"; do wait "$each" || code=$?; done
exit $code
"""
SCONTROL = """#!/bin/bash
[ "$1 $2" = "requeue 7" ] && touch requeued
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a script, and programs that take the place of SLURM's."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "bin").mkdir()
    outpace = f'#!/bin/bash\nexec "{sys.executable}" -m outpace "$@"\n'
    python = f'#!/bin/bash\nexec "{sys.executable}" "$@"\n'
    programs = {"srun": SRUN, "scontrol": SCONTROL, "outpace": outpace, "python": python}
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def started(place: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return a list of processes; at the end they are killed, with all their descendants."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        kill(process)


def start(
    command: list[str], place: Path, started: list[subprocess.Popen[str]], **more: str
) -> subprocess.Popen[str]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "PATH": path, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill all processes that a job has started, as the end of a job or of a pod does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        process.communicate()


def wait_for(process: subprocess.Popen[str], *paths: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while not all(path.exists() for path in paths):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def batch(place: Path, started: list[subprocess.Popen[str]], *arguments: str):
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": str(WORKERS)}
    short = {"OUTPACE_HOST": "127.0.0.1", "OUTPACE_GRACE_S": "1"}
    script = str(EXAMPLES / "slurm.sbatch")
    return start(["bash", script, *arguments], place, started, **job, **short)


@pytest.mark.slow
def test_a_job_of_slurm_takes_a_checkpoint_before_its_time_is_over_and_goes_on(place, started):
    job = batch(place, started, "train.py")
    wait_for(job, *(place / f"trains-{number}" for number in range(WORKERS)))
    os.kill(job.pid, signal.SIGUSR1)
    run = place / "runs" / "job-7"
    wait_for(job, place / "requeued", run / "checkpoints" / "000002")
    kill(job)
    job = batch(place, started, "train.py")
    output = job.communicate(timeout=LIMIT_S)[0]
    assert job.returncode == 0, output
    assert summary(run)["status"] == "complete"
    assert summary(run)["resumed_from"] is not None
    assert not (place / "runs" / "job-7.json").exists()


def pods() -> dict[str, Any]:
    """Return the Job of the manifest by name."""
    found = YAML(typ="safe").load_all((EXAMPLES / "kubernetes.yaml").read_text())
    return {each["metadata"]["name"]: each["spec"] for each in found}


def container(name: str) -> dict[str, Any]:
    (found,) = pods()[name]["template"]["spec"]["containers"]
    return dict(found)


def command(name: str, place: Path) -> list[str]:
    found = container(name)
    (text,) = found["args"]
    return [*found["command"], text.replace("/app/train.py", str(place / "train.py"))]


def values(name: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(name)["env"] if "value" in each}


@pytest.mark.slow
def test_the_pods_of_kubernetes_find_each_other(place, started):
    (place / "requeued").touch()
    shared = {"SHARED": str(place / "shared"), "HOST": "127.0.0.1"}
    (place / "shared").mkdir()
    serve = start(command("outpace-serve", place), place, started, **shared)
    size = values("outpace-workers")["OUTPACE_WORLD_SIZE"]
    for number in range(pods()["outpace-workers"]["completions"]):
        more = {**shared, "JOB_COMPLETION_INDEX": str(number), "OUTPACE_WORLD_SIZE": size}
        start(command("outpace-workers", place), place, started, **more)
    output = serve.communicate(timeout=LIMIT_S)[0]
    assert serve.returncode == 0, output
    assert summary(place / "shared" / "run")["iterations"] == [10] * 4
    shutil.rmtree(place / "shared")
