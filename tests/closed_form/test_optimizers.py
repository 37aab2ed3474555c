"""The optimizers and schedules of a configuration against torch's in one process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.support.paths import SUPPORT

from outpace.experiment.running import simulate
from outpace.support.user_code import load_target

SEED, BATCH, WORKERS, ITERATIONS = 3, 16, 4, 12
DOUBLE = f"{SUPPORT / 'double_tasks.py'}:double_digits"
EIGENVALUES = [1.0, 0.5, 0.1, 2.0, 0.01]
UNFUSED: dict[str, Any] = {"foreach": False, "fused": False}

# kind and settings, and the same in torch
PAIRS = [
    ({"kind": "sgd", "lr": 0.1}, lambda p: torch.optim.SGD(p, 0.1)),
    (
        {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True, weight_decay=0.01, **UNFUSED),
    ),
    (
        {"kind": "adam", "lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.01},
        lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.9), 1e-4, 0.01, **UNFUSED),
    ),
    (
        {"kind": "adamw", "lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, 0.01, (0.8, 0.9), 1e-4, 0.1, **UNFUSED),
    ),
    (
        {"kind": "adagrad", "lr": 0.1, "eps": 1e-3, "weight_decay": 0.1},
        lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1, eps=1e-3, **UNFUSED),
    ),
    (
        {"kind": "rmsprop", "alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "weight_decay": 0.1},
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-3, 0.1, 0.5, foreach=False),
    ),
]
IDS = [str(settings) for settings, _ in PAIRS]


def train(optimizer: dict[str, Any], **changes: Any):
    return simulate(
        {
            "seed": SEED,
            "task": {"kind": "quadratic", "eigenvalues": EIGENVALUES},
            "workers": WORKERS,
            "servers": 2,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.5},
            "sync": {"kind": "bsp"},
            "optimizer": optimizer,
            "batch_size": BATCH,
            "stop": {"iterations": ITERATIONS},
            **changes,
        }
    ).parameters


def plain_quadratic(make, schedule=None) -> torch.Tensor:
    """Return the parameters after minimising ½ Σ λ·w² from w = 1 in one process."""
    w = torch.nn.Parameter(torch.ones(len(EIGENVALUES), dtype=torch.float64))
    optimizer = make([w])
    scheduler = schedule(optimizer) if schedule else None
    for _ in range(ITERATIONS):
        w.grad = torch.tensor(EIGENVALUES, dtype=torch.float64) * w.detach()
        optimizer.step()
        if scheduler:
            scheduler.step()
    return w.detach()


@pytest.mark.parametrize(("settings", "make"), PAIRS, ids=IDS)
def test_bsp_is_bitwise_one_torch_process(settings, make):
    # Four equal gradients: their sum and its quarter are exact.
    assert torch.equal(train(settings)["w"], plain_quadratic(make))


# -- schedules -----------------------------------------------------------------------

SCHEDULES = [
    ({"kind": "constant"}, lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0)),
    (
        {"kind": "step", "at_iterations": [3, 7], "factor": 0.5},
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 7], 0.5),
    ),
    (
        {"kind": "cosine", "iterations": ITERATIONS, "final": 0.1},
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(
            o, ITERATIONS, eta_min=0.1 * o.param_groups[0]["lr"]
        ),
    ),
    (
        {"warmup_iterations": 5, "warmup_from": 0.25},
        lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.25, total_iters=5),
    ),
    (
        {"kind": "step", "at_iterations": [8], "warmup_iterations": 4},
        lambda o: torch.optim.lr_scheduler.LambdaLR(
            o, lambda t: min(1.0, t / 4) * (0.1 if t >= 8 else 1.0)
        ),
    ),
]


@pytest.mark.parametrize(("schedule", "scheduler"), SCHEDULES, ids=[str(s) for s, _ in SCHEDULES])
def test_the_learning_rate_is_that_of_torchs_schedulers(schedule, scheduler):
    settings, make = PAIRS[1]
    trained = train({**settings, "schedule": schedule})["w"]
    expected = plain_quadratic(make, scheduler)
    assert torch.allclose(trained, expected, rtol=1e-12, atol=1e-15)
    if schedule != {"kind": "constant"}:
        assert not torch.allclose(trained, plain_quadratic(make), rtol=1e-4)


def test_an_epoch_is_a_pass_of_all_workers_through_the_data():
    samples = len(load_target(DOUBLE)().train[1])
    boundary = math.ceil(0.1 * samples / (WORKERS * BATCH))
    assert 1 < boundary < ITERATIONS
    by_epochs, by_iterations, later = (
        train(
            {"schedule": {"kind": "step", **at}},
            task={"kind": "python", "target": DOUBLE},
        )
        for at in (
            {"at_epochs": [0.1]},
            {"at_iterations": [boundary]},
            {"at_iterations": [boundary + 1]},
        )
    )
    for name, value in by_iterations.items():
        assert torch.equal(by_epochs[name], value)
    assert any(not torch.equal(later[name], value) for name, value in by_iterations.items())


# -- refusals ------------------------------------------------------------------------
