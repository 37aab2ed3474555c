"""The optimizers and schedules of a configuration against torch's in one process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.paths import SUPPORT

from outpace.blocks.block import whole
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.optim import Sgd
from outpace.optim.schedules import ConstantRate, Cosine, StepDecay
from outpace.support.user_code import load_target
from outpace.sync.parameter_block import FreshBlock, TensorBlock, parameter_block

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
        {"kind": "sgd", "lr": 0.1, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01, **UNFUSED),
    ),
    ({"kind": "adam"}, lambda p: torch.optim.Adam(p, **UNFUSED)),
    (
        {"kind": "adam", "lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.01},
        lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.9), 1e-4, 0.01, **UNFUSED),
    ),
    ({"kind": "adamw"}, lambda p: torch.optim.AdamW(p, **UNFUSED)),
    (
        {"kind": "adamw", "lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, 0.01, (0.8, 0.9), 1e-4, 0.1, **UNFUSED),
    ),
    ({"kind": "adagrad"}, lambda p: torch.optim.Adagrad(p, **UNFUSED)),
    (
        {"kind": "adagrad", "lr": 0.1, "eps": 1e-3, "weight_decay": 0.1},
        lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1, eps=1e-3, **UNFUSED),
    ),
    ({"kind": "rmsprop"}, lambda p: torch.optim.RMSprop(p, foreach=False)),
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
    """½ Σ λ·w² from w = 1 in one process."""
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


def test_a_schedule_is_bitwise_a_lambda_of_the_iteration():
    schedule = Cosine(iterations=10.0, warmup_iterations=3.0)
    trained = train(
        {"kind": "adam", "schedule": {"kind": "cosine", "iterations": 10, "warmup_iterations": 3}}
    )
    expected = plain_quadratic(
        lambda p: torch.optim.Adam(p, **UNFUSED),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, schedule.at),
    )
    assert torch.equal(trained["w"], expected)


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


@given(epochs=st.integers(1, 300), epoch=st.integers(1, 10_000), batch=st.integers(1, 512))
def test_epochs_that_end_with_an_iteration_end_right_there(epochs, epoch, batch):
    """Three phases of a third of `epoch` iterations each are exactly `epoch` iterations."""
    schedule = StepDecay(at_epochs=(3.0 * epochs,)).in_iterations(epoch * batch, 3 * batch)
    boundary = epochs * epoch
    assert (schedule.at(boundary - 1), schedule.at(boundary)) == (1.0, 0.1)


def test_on_arrival_every_gradient_is_the_nth_part_of_an_iteration():
    """One eigenvalue, one worker after the other: the factors multiply."""
    workers, lr = 2, 0.5
    schedule = {"kind": "step", "at_iterations": [1.5], "factor": 0.5}
    trained = train(
        {"lr": lr, "schedule": schedule},
        task={"kind": "quadratic", "eigenvalues": [1.0]},
        workers=workers,
        servers=1,
        sync={"kind": "bsp", "apply": "on-arrival"},
        stop={"iterations": 2},
    )["w"].item()
    # Both gradients of an iteration are of the same w; the fourth update is past 1.5.
    first = 1 - lr / workers - lr / workers
    assert trained == pytest.approx(first * (1 - lr / workers - 0.5 * lr / workers), rel=1e-12)


def test_linear_scaling_multiplies_the_rate_by_the_batch():
    scaled = train({"lr": 0.1, "reference_batch": 32})["w"]
    assert torch.equal(scaled, train({"lr": 0.1 * WORKERS * BATCH / 32})["w"])


@given(
    at=st.lists(st.floats(0.01, 100), min_size=1, max_size=3, unique=True).map(sorted),
    factor=st.floats(0.01, 1),
    warmup=st.none() | st.floats(0.1, 20),
    progress=st.floats(0, 200),
)
def test_a_step_schedule_counts_the_times_that_have_come(at, factor, warmup, progress):
    schedule = StepDecay(at_iterations=tuple(at), factor=factor, warmup_iterations=warmup)
    reached = sum(time <= progress for time in at)
    ramp = 1.0 if warmup is None else min(1.0, progress / warmup)
    assert schedule.at(progress) == pytest.approx(factor**reached * ramp)


@given(final=st.floats(0, 1), length=st.floats(0.1, 1e6), progress=st.floats(0, 2e6))
def test_a_cosine_goes_down_to_its_end_and_stays(final, length, progress):
    schedule = Cosine(iterations=length, final=final)
    assert schedule.at(0) == pytest.approx(1)
    assert schedule.at(length / 2) == pytest.approx((1 + final) / 2)
    assert final - 1e-12 <= schedule.at(progress) <= 1
    assert schedule.at(length + progress) == pytest.approx(final)


@pytest.mark.parametrize(
    "schedule",
    [ConstantRate(warmup_iterations=3.0), Cosine(iterations=4.0), StepDecay(at_iterations=(2.0,))],
)
@pytest.mark.parametrize("divisor", [1, 3])
def test_plain_sgd_takes_the_same_steps_into_other_memory(schedule, divisor):
    sgd = Sgd(lr=0.1, schedule=schedule)
    initial = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fresh, usual = parameter_block(initial, sgd), TensorBlock(initial, sgd)
    assert isinstance(fresh, FreshBlock)
    for step in range(6):
        gradient = torch.full((1000,), 0.3 * step, dtype=torch.float64)
        for block in (fresh, usual):
            block.update(gradient.clone(), divisor, None, step / 2)
    expected = whole(usual.read())
    if divisor == 1:
        assert torch.equal(whole(fresh.read()), expected)
    assert torch.allclose(whole(fresh.read()), expected, rtol=1e-14)


# -- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"kind": "adamm"}, "optimizer.kind: unknown kind 'adamm'. Did you mean 'adam'?"),
        ({"nesterov": True}, "optimizer.momentum must be greater than 0 with nesterov, not 0.0"),
        ({"weight_decay": -1}, "optimizer.weight_decay must be at least 0"),
        ({"reference_batch": 0}, "optimizer.reference_batch must be at least 1, not 0"),
        ({"kind": "adam", "betas": [0.9, 1]}, "optimizer.betas[1] must be below 1, not 1"),
        ({"kind": "adamw", "eps": 0}, "optimizer.eps must be above 0"),
        ({"kind": "lars", "momentum": -1}, "optimizer.momentum must be at least 0, not -1"),
        (
            {"kind": "lars", "trust_coefficient": 0},
            "optimizer.trust_coefficient must be above 0",
        ),
        ({"schedule": {"kind": "stpe"}}, "optimizer.schedule.kind: unknown kind 'stpe'"),
        ({"schedule": {"kind": "step"}}, "schedule.at_epochs must be given, or at_iterations"),
        (
            {"schedule": {"kind": "step", "at_epochs": [1], "at_iterations": [2]}},
            "schedule.at_epochs must be left out where at_iterations is given, not (1.0,)",
        ),
        (
            {"schedule": {"kind": "step", "at_epochs": [60, 30]}},
            "schedule.at_epochs must be a list of numbers that increase, not [60.0, 30.0]",
        ),
        (
            {"schedule": {"kind": "step", "at_iterations": [-1, 2]}},
            "schedule.at_iterations[0] must",
        ),
        ({"schedule": {"kind": "step", "at_epochs": [1], "factor": 2}}, "factor must be at most 1"),
        ({"schedule": {"kind": "cosine"}}, "schedule.epochs must be given, or iterations"),
        (
            {"schedule": {"kind": "cosine", "epochs": 1, "final": 1.5}},
            "schedule.final must be at most 1, not 1.5",
        ),
        (
            {"schedule": {"warmup_epochs": 1, "warmup_iterations": 1}},
            "schedule.warmup_epochs must be left out where warmup_iterations is given, not 1.0",
        ),
        ({"schedule": {"warmup_from": 2}}, "schedule.warmup_from must be at most 1, not 2"),
        (
            {"schedule": {"kind": "step", "at_epochs": [1]}},
            "optimizer.schedule.at_epochs: this task has no training samples and so no epochs; "
            "use at_iterations",
        ),
        ({"schedule": {"kind": "cosine", "epochs": 1}}, "use iterations"),
        (
            {"lr": 1e9, "reference_batch": 1},
            "with 64 samples per iteration lr must be at most 1,000,000,000",
        ),
    ],
    ids=str,
)
def test_a_wrong_optimizer_is_refused_before_the_run(optimizer, message):
    with pytest.raises(ConfigError) as error:
        train(optimizer)
    assert message in str(error.value)
