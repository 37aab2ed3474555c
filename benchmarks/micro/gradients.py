"""A simulated run against a plain PyTorch loop over the same gradients."""

from __future__ import annotations

from functools import partial

import torch
from benchmarks.rows import Row, host_seconds, in_turn, ratio

from outpace.experiment.running import simulate
from outpace.tasks.data.digits import digits_cnn
from outpace.tasks.samples import Sampler

WORKERS, BATCH_SIZE, SEED = 64, 32, 0
GOALS = {1: 1.15, 4: 1.3}  # the largest ratio to the loop, by the number of servers


def measure(quick: bool) -> list[Row]:
    iterations, repetitions = (4, 1) if quick else (100, 3)
    count = WORKERS * iterations
    plain(1)
    simulated(1, 4)
    loop, *runs = in_turn(
        [
            lambda: plain(iterations),
            *(partial(simulated, iterations, servers) for servers in GOALS),
        ],
        repetitions,
    )
    return [
        ratio(
            f"digits-cnn, {count} gradients, {servers} server(s) / plain loop",
            seconds,
            loop,
            goal=goal,
            note=lambda s, p: f"{s / count * 1e6:.0f} µs per gradient, plain {p / count * 1e6:.0f}",
        )
        for (servers, goal), seconds in zip(GOALS.items(), runs, strict=True)
    ]


def simulated(iterations: int, servers: int) -> float:
    result = simulate(
        {
            "task": {"kind": "digits-cnn"},
            "workers": WORKERS,
            "servers": servers,
            "batch_size": BATCH_SIZE,
            "seed": SEED,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.2},
            "sync": {"kind": "asp"},
            "stop": {"iterations": iterations},
        }
    )
    assert result.summary["gradients_applied"] == WORKERS * iterations
    return float(result.summary["simulated_in_s"])


def plain(iterations: int) -> float:
    torch.manual_seed(SEED)
    task = digits_cnn()
    assert isinstance(task.train, tuple)
    model, (inputs, targets) = task.model, task.train
    sampler = Sampler(len(inputs), WORKERS, BATCH_SIZE, SEED)

    def loop() -> float:
        total = 0.0
        for iteration in range(iterations):
            for worker in range(WORKERS):
                batch = sampler.indices(worker, iteration)
                model.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
                loss.backward()
                total += loss.item()
        return total

    return host_seconds(loop)
