"""Who computes the gradients of a simulated run, and what the simulation costs beside them."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.micro.harness import Measurement, host_seconds, in_turn, ratio

from outpace.config import experiment_from
from outpace.errors import ConfigError
from outpace.experiment import simulate
from outpace.simulation.run import one_thread_own_randomness

FASHION = {"kind": "fashion-mnist-cnn"}  # 421,642 parameters, 11 ms per gradient
DIGITS = {"kind": "digits-mlp"}  # 4,810 parameters, 0.1 ms


def measure(quick: bool) -> list[Measurement]:
    return [*_processes(quick), *_batched(quick), *_beside_gradients(quick)]


def _configuration(task: dict[str, Any], workers: int, iterations: int) -> dict[str, Any]:
    return {
        "task": task,
        "workers": workers,
        "batch_size": 32,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
        "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1.25e9},
        "sync": {"kind": "asp"},
        "optimizer": {"lr": 0.05},
        "evaluate": {"samples": 100},
        "stop": {"iterations": iterations},
    }


def _simulated(configuration: dict[str, Any], executor: str) -> float:
    summary = simulate({**configuration, "executor": {"kind": executor}}).summary
    return float(summary["simulated_in_s"])


def _processes(quick: bool) -> list[Measurement]:
    configuration = _configuration(FASHION, 32, 10 if quick else 40)
    try:
        _simulated(_configuration(FASHION, 32, 2), "processes")  # the fork server starts
    except ConfigError as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    serial, processes = in_turn(
        [lambda kind=kind: _simulated(configuration, kind) for kind in ("serial", "processes")],
        repetitions=3,
    )
    return [
        ratio(
            "fashion-mnist-cnn, 32 workers, ASP: serial / processes (their start included)",
            serial, processes, goal=1.7,
            note=lambda s, p: f"{s:.1f} and {p:.1f} s",
        )
    ]  # fmt: skip


def _batched(quick: bool) -> list[Measurement]:
    configuration = _configuration(DIGITS, 64, 50 if quick else 200)
    _simulated(configuration, "batched")
    serial, batched = in_turn(
        [lambda kind=kind: _simulated(configuration, kind) for kind in ("serial", "batched")],
        repetitions=5,
    )
    return [
        ratio(
            "digits-mlp, 64 workers, ASP: serial / batched, one core",
            serial, batched, goal=2.0,
            note=lambda s, b: f"{s:.2f} and {b:.2f} s",
        )
    ]  # fmt: skip


def _beside_gradients(quick: bool) -> list[Measurement]:
    configuration = _configuration(FASHION, 8, 20 if quick else 60)
    experiment = experiment_from(configuration, "the benchmark")

    def gradients_alone() -> float:
        with one_thread_own_randomness():
            workload = experiment.task.workload(8, 32, 0)
            parameters = [workload.initial_parameters() for _ in range(8)]  # unequal, as in ASP

            def all_of_them() -> None:
                for iteration in range(configuration["stop"]["iterations"]):
                    for worker in range(8):
                        workload.gradient(parameters[worker], worker, iteration)

            return host_seconds(all_of_them)

    try:
        gradients_alone()
    except ConfigError as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    alone, run = in_turn([gradients_alone, lambda: _simulated(configuration, "serial")], 5)
    return [
        ratio(
            "fashion-mnist-cnn, 8 workers, ASP: run / its gradients alone",
            run, alone, goal=1.05, at_least=False,
            note=lambda r, a: f"kernel, network and shard: {(r / a - 1) * 100:.1f} %",
        )
    ]  # fmt: skip
