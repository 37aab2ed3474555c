"""Outpace has the same results on a GPU as plain PyTorch, and errors say what to do."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.training import (
    STEPS,
    WITHOUT_SERVERS,
    ddp,
    launch,
    mean_gradient_training,
    plain,
    require_averaged,
    require_close,
    require_collectives,
    script,
)
from tests.support.paths import SCRIPTS
from tests.support.saved_runs import give_up, once_saved

import outpace
from outpace.errors import RunError
from outpace.experiment.running import run

# Other releases of torch have other warnings.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

# -- with servers ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["sgd", "adamw"])
def test_each_gradient_of_one_worker_is_that_of_plain_pytorch(tmp_path, device, case):
    (found,) = launch(tmp_path, case, device)
    expected = plain(case, device)
    assert len(found["gradients"]) == 5 * STEPS
    require_close(found["gradients"], expected["gradients"], 1e-6)
    require_close(found["parameters"], expected["parameters"], 1e-5)


def test_a_fused_step_is_taken_by_the_servers(tmp_path, device):
    (found,) = launch(tmp_path, "fused", device)
    require_close(found["parameters"], plain("fused", device)["parameters"], 1e-5)


def test_a_step_that_grad_scaler_skips_is_skipped_by_the_servers(tmp_path, device):
    (found,) = launch(tmp_path, "scaled", device)
    expected = plain("scaled", device)
    assert expected["gradients"][0].tolist() == [256.0, 256.0, 128.0, 128.0, 128.0]
    require_close(found["gradients"], expected["gradients"], 0)
    require_close(found["parameters"], expected["parameters"], 1e-6)


def test_two_workers_on_one_gpu_step_along_the_mean_of_their_gradients(tmp_path, device):
    found = launch(tmp_path, "sgd", device, workers=2)
    expected = mean_gradient_training(device, 2, lr=0.1, momentum=0.9)
    require_close(found[0]["parameters"], expected, 1e-5)
    require_close(found[0]["parameters"], found[1]["parameters"], 0)


def test_parts_are_pushed_in_backward(tmp_path, device):
    """If the parameters are on a GPU, the hooks run in a thread of torch."""
    (found,) = launch(tmp_path, "sgd", device, overlap="backward", non_finite="stop")
    require_close(found["gradients"], plain("sgd", device)["gradients"], 1e-6)


def test_a_worker_that_trains_on_the_cpu_does_not_begin_to_use_a_gpu(tmp_path, gpu):
    (found,) = launch(tmp_path, "untouched", gpu)
    assert not found["gradients"][0]


# -- without servers -----------------------------------------------------------------------------


@pytest.mark.parametrize("sync", WITHOUT_SERVERS, ids=lambda sync: sync["kind"])
def test_workers_that_share_a_gpu_average(tmp_path, device, sync):
    """NCCL refuses two ranks on a GPU, so they exchange over Gloo, from the CPU."""
    require_averaged(tmp_path, device, sync)


@pytest.mark.parametrize("sync", WITHOUT_SERVERS, ids=lambda sync: sync["kind"])
def test_workers_with_a_gpu_each_average_over_nccl(tmp_path, gpu, sync):
    if torch.cuda.device_count() < 2:
        pytest.skip("this needs two GPUs")
    require_averaged(tmp_path, "own", sync)


# -- DistributedDataParallel ---------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "kind"), [(1, "bsp"), (2, "ssgd")])
def test_a_script_for_nccl_trains_also_where_two_ranks_share_a_gpu(tmp_path, device, workers, kind):
    found = ddp(tmp_path, device, workers, {"kind": kind})
    expected = mean_gradient_training(device, workers, lr=0.1, momentum=0.0)
    require_close(found[0]["parameters"], expected, 1e-5)
    require_collectives(found)


def test_a_rank_without_a_gpu_of_its_own_is_told_what_to_do(tmp_path, gpu):
    workers = torch.cuda.device_count() + 1
    with pytest.raises(RunError) as raised:
        ddp(tmp_path, "local", workers, {"kind": "ssgd"})
    line = str(raised.value)
    assert f"worker {workers - 1}" in line or f"worker-{workers - 1}" in line
    assert "invalid device ordinal" in line
    assert "LOCAL_RANK % torch.cuda.device_count()" in line
    assert "\n" not in line


# -- checkpoints ------------------------------------------------------------------------------


def kept_run(folder: Path, device: str, **changes: Any) -> dict[str, Any]:
    task = script("on_gpu.py", folder, "kept", device)
    compute = {"kind": "constant", "mean_s": 0.05}
    base = {"task": task, "workers": 2, "servers": 2, "sync": {"kind": "bsp"}, "compute": compute}
    return {**base, "checkpoint": {"every_updates": 3}, **changes}


def test_a_run_that_is_resumed_draws_on_the_gpu_as_it_would_have_drawn(tmp_path, device):
    folder = tmp_path / "run"
    config = kept_run(tmp_path, device, probe=False, deterministic=True)
    whole = run({**config, "checkpoint": None})
    with pytest.raises(RunError, match="that is enough"):
        run(config, folder, control=once_saved(folder, give_up))
    resumed = run(resume=folder)
    assert resumed.summary["resumed_from"]
    assert resumed.summary["parameters_digest"] == whole.summary["parameters_digest"]


# -- tasks ---------------------------------------------------------------------------------------

TIMED = {
    "workers": 4,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 1.0},
    "optimizer": {"kind": "sgd", "lr": 0.05},
    "batch_size": 8,
    "stop": {"iterations": 6},
}


@pytest.mark.parametrize("task", ["digits-cnn", "char-gpt"])
def test_batches_of_gradients_on_a_gpu_train_as_gradients_one_by_one(device, task):
    config = {**TIMED, "task": {"kind": task}}
    one_by_one = outpace.simulate(config, executor={"kind": "serial"}).parameters
    batched = {"kind": "batched", "width": 4, "device": device}
    together = outpace.simulate(config, executor=batched).parameters
    names = list(one_by_one)
    require_close([together[n] for n in names], [one_by_one[n] for n in names], 1e-4)


def test_a_model_on_a_gpu_is_trained_in_virtual_time_and_for_real(device):
    task = {"kind": "python", "target": f"{SCRIPTS / 'task_on_gpu.py'}:make"}
    config = {**TIMED, "task": task}
    made = runpy.run_path(str(SCRIPTS / "task_on_gpu.py"))["make"]()
    simulated = outpace.simulate(config).parameters
    trained = run({**config, "deterministic": True, "probe": False}).parameters
    names = [name for name, _ in made.model.named_parameters()]
    assert all(simulated[name].device.type == "cpu" for name in names)
    require_close([trained[n] for n in names], [simulated[n] for n in names], 1e-6)
    first = [p.detach().cpu() for p in made.model.parameters()]
    assert any(not torch.equal(simulated[n], p) for n, p in zip(names, first, strict=True))


def test_a_script_in_virtual_time_trains_as_for_real(tmp_path, device):
    task = script("on_gpu.py", tmp_path, "sgd", device)
    compute = {"kind": "constant", "mean_s": 1.0}
    config = {"task": task, "workers": 2, "servers": 2, "sync": {"kind": "bsp"}}
    outpace.simulate({**config, "compute": compute})
    found = torch.load(tmp_path / "0.pt")["parameters"]
    expected = mean_gradient_training(device, 2, lr=0.1, momentum=0.9)
    require_close(found, expected, 1e-5)


# -- errors, and commands -------------------------------------------------------------------


def test_a_worker_that_runs_out_of_memory_is_named_with_a_remedy(tmp_path, device):
    with pytest.raises(RunError) as raised:
        launch(tmp_path, "no_room", device, workers=2)
    line = str(raised.value)
    assert "worker 1: " in line
    assert "CUDA out of memory. Tried to allocate" in line
    assert "use a smaller batch or model, or fewer workers on this GPU" in line
    assert "\n" not in line


def test_processes_of_a_command_use_the_gpu(tmp_path, device):
    """They are forked from a copy of the command, which must not have begun to use it."""
    path = str(SCRIPTS / "on_gpu.py")
    command = [sys.executable, "-m", "outpace", "run", path, "--workers", "2", "--servers", "1"]
    command += ["probe=false", "--out", str(tmp_path / "run"), "--", str(tmp_path), "sgd", device]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["iterations"] == [STEPS, STEPS]
