"""Executors of a simulated run's gradients, and the cost of the simulation beside them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.micro.harness import Measurement, host_seconds, in_turn, ratio, value

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.record.sinks import MemorySink
from outpace.record.trace import Trace
from outpace.simulation.composition import simulation_of
from outpace.support.repeatable import one_thread_own_randomness
from outpace.tasks import Workload

FASHION = {"kind": "fashion-mnist-cnn"}  # 421,642 parameters, 11 ms per gradient
DIGITS = {"kind": "digits-mlp"}  # 4,810 parameters, 0.1 ms


def measure(quick: bool) -> list[Measurement]:
    return [*_processes(quick), *_batched(quick), *_beside_gradients(quick)]


def _configuration(task: dict[str, Any], workers: int, iterations: int) -> dict[str, Any]:
    """Return an experiment over a network of 10 Gbit/s."""
    return {
        "task": task,
        "workers": workers,
        "batch_size": 32,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.2},
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
    configuration = _configuration(FASHION, 32, 2 if quick else 100)
    try:
        _simulated(_configuration(FASHION, 2, 1), "processes")  # starts the fork server
    except ConfigError as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    serial, processes = in_turn(
        [partial(_simulated, configuration, kind) for kind in ("serial", "processes")],
        repetitions=1 if quick else 3,
    )
    return [
        ratio(
            "fashion-mnist-cnn, 32 workers, ASP: serial / processes (their start included)",
            serial,
            processes,
            goal=1.7,
            note=lambda s, p: f"{s:.1f} and {p:.1f} s",
        )
    ]


def _batched(quick: bool) -> list[Measurement]:
    # No network, because it costs both the same.
    configuration = {**_configuration(DIGITS, 64, 5 if quick else 200), "network": None}
    _simulated(configuration, "batched")
    serial, batched = in_turn(
        [partial(_simulated, configuration, kind) for kind in ("serial", "batched")],
        repetitions=1 if quick else 5,
    )
    return [
        ratio(
            "digits-mlp, 64 workers, ASP: serial / batched, one core",
            serial,
            batched,
            goal=2.0,
            note=lambda s, b: f"{s:.2f} and {b:.2f} s",
        )
    ]


class _Timed:
    """A workload that adds up the seconds of its gradients and evaluations."""

    def __init__(self, inner: Workload) -> None:
        self._inner, self.seconds = inner, 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._timing(method) if name in ("gradient", "evaluate") else method

    def _timing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def _beside_gradients(quick: bool) -> list[Measurement]:
    configuration = _configuration(FASHION, 8, 2 if quick else 60)
    experiment = experiment_from({**configuration, "executor": {"kind": "serial"}}, "the benchmark")

    def share() -> float:
        """Return the share of host time beside gradients and evaluations, in per cent."""
        with one_thread_own_randomness():
            workload = _Timed(experiment.task.workload(8, 32, 0))
            simulation = simulation_of(experiment, workload, Trace(MemorySink()))
            seconds = host_seconds(simulation.run)
            simulation.close()
        return 100 * (1 - workload.seconds / seconds)

    try:
        share()
    except ConfigError as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    return [
        value(
            "fashion-mnist-cnn, 8 workers, ASP: kernel, network and shard, share of a run",
            [share() for _ in range(1 if quick else 5)],
            unit="%",
            goal=5,
        )
    ]
