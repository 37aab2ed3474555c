"""Executors: the result of a run does not depend on where and when gradients are computed."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.paths import SUPPORT

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, RunError
from outpace.experiment.running import simulate
from outpace.simulation.executors.auto import AutoExecutor
from outpace.simulation.executors.gradients import Gradients
from outpace.support.repeatable import one_thread_own_randomness

TASKS = SUPPORT / "tasks_for_executors.py"
BATCHED_TOLERANCE = 1e-4  # after 48 updates, relative to the norm of the parameters

IN_MEMORY = "memfd:outpace"


def python(function: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "python", "target": f"{TASKS}:{function}", "arguments": arguments}


def configuration(**changes: Any) -> dict[str, Any]:
    return {
        "task": {"kind": "digits-mlp"},
        "workers": 6,
        "servers": 2,
        "batch_size": 8,
        "sync": {"kind": "ssp", "staleness": 2},
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.5},
        "network": {"latency_s": 0.01, "bandwidth_bytes_per_s": 1e6},
        "evaluate": {"every_updates": 20},
        "stop": {"iterations": 8},
        **changes,
    }


def run(executor: str, **changes: Any):
    return simulate(configuration(executor={"kind": executor}, **changes))


def vector(result) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in result.parameters.values()])


# -- equal results -----------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"sync": {"kind": "bsp"}, "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}},
        {"sync": {"kind": "asp"}},
        {"sync": {"kind": "ssp", "staleness": 2}, "task": {"kind": "digits-cnn"}},
        {"task": {"kind": "quadratic", "eigenvalues": [1.0, 0.5, 0.1], "noise": 0.1}},
        {"stop": {"virtual_time_s": 0.55}},
        {"task": python("dropout"), "servers": 1},
        {"task": python("augmented"), "servers": 1},
        {"task": python("skipping"), "servers": 1},
    ],
    ids=[
        "bsp-momentum",
        "asp",
        "cnn",
        "quadratic",
        "stopped-by-time",
        "dropout",
        "augmented",
        "skipping",
    ],
)
def test_processes_give_bitwise_what_serial_gives(changes):
    serial, processes = run("serial", **changes), run("processes", **changes)
    assert processes.summary["executor"]["kind"] == "processes"
    for key in ("parameters_digest", "trace_digest", "train_loss", "gradients_applied"):
        assert processes.summary[key] == serial.summary[key]
    assert processes.metrics.equals(serial.metrics)


def test_batched_gives_what_serial_gives_up_to_rounding():
    serial, batched = run("serial"), run("batched")
    assert batched.summary["executor"]["mean_batch"] > 2
    assert batched.summary["trace_digest"] == serial.summary["trace_digest"]
    difference = torch.linalg.vector_norm(vector(batched) - vector(serial))
    assert difference < BATCHED_TOLERANCE * torch.linalg.vector_norm(vector(serial))


def test_auto_goes_over_to_processes_in_the_middle_of_a_run(monkeypatch):
    monkeypatch.setattr(AutoExecutor.__init__, "__defaults__", (0.0, 0.0))  # every run is long
    serial, auto = run("serial"), run("auto")
    assert auto.summary["executor"]["kind"] == "processes"
    assert auto.summary["parameters_digest"] == serial.summary["parameters_digest"]
    assert auto.metrics.equals(serial.metrics)


# -- gradients that are never computed --------------------------------------------------------


@contextlib.contextmanager
def stopped_children():
    """Let the processes that gradients are computed in wait in this block."""
    children = [process.pid for process in multiprocessing.active_children()]
    for child in children:
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGCONT)


@pytest.mark.parametrize("executor", ["serial", "batched", "processes"])
def test_a_gradient_that_cannot_be_read_any_more_is_not_computed(executor, tmp_path):
    notes = tmp_path / "notes"
    changed = configuration(
        servers=1,
        task=python("noting", path=str(notes)),
        executor={"kind": executor, **({"processes": 1} if executor == "processes" else {})},
    )
    experiment = experiment_from(changed, "the test")
    computed: list[tuple[int, int]] = []
    with one_thread_own_randomness():
        workload = experiment.task.workload(6, 8, 0)
        initial = workload.initial_parameters()
        gradients = Gradients(
            experiment,
            workload,
            lambda worker, iteration, _: computed.append((worker, iteration)),
            share=lambda: 0.0,
        )
        try:
            gradients.start()
            before = len(notes.read_text().splitlines())
            with stopped_children():  # a process would compute one after the other
                for iteration in range(50):  # cut off, all of them
                    gradients.submit(initial, 0, iteration, due=iteration)
            (block,) = gradients.submit(initial, 1, 7, due=100)
            block.value()
        finally:
            gradients.close()
    assert computed == [(1, 7)]
    # The trial of the process, and the orders that it has already.
    allowance = {"serial": 0, "batched": 0, "processes": 4}[executor]
    assert len(notes.read_text().splitlines()) <= before + 1 + allowance


# -- refusals and failures ---------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("dropout", "draws random numbers"),
        ("skipping", "draws random numbers"),
        ("branching", "cannot be batched"),
        ("augmented", "cannot be batched"),
        ("not_a_number", "differ from serial ones by nan"),
    ],
)
def test_batched_refuses_what_it_cannot_compute(function, says):
    with pytest.raises(ConfigError, match=says):
        run("batched", task=python(function), servers=1)


def test_processes_that_make_another_task_are_found_out():
    with pytest.raises(RunError, match="other gradients in another process"):
        run("processes", task=python("another_one_in_every_process"), stop={"iterations": 10_000})


def test_what_a_task_raises_in_a_process_names_worker_and_iteration():
    task = python("failing", uses=5, main=os.getpid())
    with pytest.raises(RunError, match=r"worker \d, iteration \d+: ArithmeticError: out of luck"):
        run("processes", task=task, stop={"iterations": 10_000})


def test_a_process_that_is_killed_ends_the_run_and_none_is_left():
    def kill(_: float) -> None:
        for child in multiprocessing.active_children():
            if child.name == "gradients-0":
                os.kill(child.pid, signal.SIGKILL)

    configured = configuration(
        executor={"kind": "processes", "processes": 1}, stop={"iterations": 10_000}
    )
    with pytest.raises(RunError, match="gradients-0, which computed gradients, was killed by SIGK"):
        simulate(configured, progress=kill)
    assert not [c for c in multiprocessing.active_children() if c.name.startswith("gradients")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_shared_memory_goes_with_the_run():
    gc.collect()
    before = shared_memory()
    gc.disable()  # nothing may wait for it
    try:
        run("processes")
        after = shared_memory()
    finally:
        gc.enable()
    assert after == before


def shared_memory() -> list[str]:
    """Return the pieces of shared memory of Outpace that this process has mapped, or has open."""
    found = [line for line in Path("/proc/self/maps").read_text().splitlines() if IN_MEMORY in line]
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += [str(descriptor)] * (IN_MEMORY in os.readlink(descriptor))
    return sorted(found)
