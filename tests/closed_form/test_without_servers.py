"""Strategies without servers are compared with each other, and with a strategy with servers."""

from __future__ import annotations

import pytest
import torch
from tests.support.double_tasks import normalised_digits
from tests.support.paths import SUPPORT

from outpace.experiment.running import simulate

TASKS = SUPPORT / "double_tasks.py"
DOUBLE = f"{TASKS}:double_digits"
ITERATIONS = 15


def run(sync, *, task=None, optimizer=None, **more):
    return simulate(
        {
            "seed": 5,
            "task": task or {"kind": "digits-mlp"},
            "workers": 5,
            "sync": sync,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.5},
            "optimizer": optimizer or {"kind": "sgd", "lr": 0.1},
            "batch_size": 8,
            "evaluate": {"every_updates": 1},
            "stop": {"iterations": ITERATIONS},
            **more,
        }
    )


OPTIMIZERS = [
    {"kind": "sgd", "lr": 0.1},
    {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "schedule": {"kind": "step", "at_iterations": [7]}},
    {"kind": "adamw", "lr": 0.01},
    {"kind": "lars", "lr": 1.0},
]


@pytest.mark.parametrize(
    ("optimizer", "all_reduce"),
    list(zip(OPTIMIZERS, ("ring", "tree", "ring", "tree"), strict=True)),
)
def test_ssgd_is_bitwise_bsp_without_a_network(optimizer, all_reduce):
    ssgd = run({"kind": "ssgd", "all_reduce": all_reduce}, optimizer=optimizer)
    bsp = run({"kind": "bsp"}, optimizer=optimizer)
    assert ssgd.summary["parameters_digest"] == bsp.summary["parameters_digest"]
    assert ssgd.summary["virtual_time_s"] == bsp.summary["virtual_time_s"]
    assert ssgd.summary["gradients_applied"] == bsp.summary["gradients_applied"]
    for column in ("time_s", "updates", "train_loss", "accuracy", "gradients"):
        assert ssgd.metrics[column].to_pylist() == bsp.metrics[column].to_pylist(), column
    assert ssgd.summary["seconds"]["wait"] == pytest.approx(bsp.summary["seconds"]["wait"])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_local_sgd_that_averages_every_step_is_ssgd_step_for_step(momentum):
    optimizer = {"kind": "sgd", "lr": 0.1, "momentum": momentum}
    task = {"kind": "python", "target": DOUBLE}
    local = run({"kind": "local-sgd", "every": 1}, task=task, optimizer=optimizer)
    ssgd = run({"kind": "ssgd"}, task=task, optimizer=optimizer)
    for name, tensor in ssgd.parameters.items():
        torch.testing.assert_close(local.parameters[name], tensor, rtol=0, atol=1e-6)
    ours, theirs = (result.metrics["train_loss"].to_pylist() for result in (local, ssgd))
    assert len(ours) == len(theirs) == ITERATIONS + 1  # one for each step, and the start
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert local.metrics["gradients"].to_pylist() == ssgd.metrics["gradients"].to_pylist()


@pytest.mark.parametrize("optimizer", OPTIMIZERS[:3], ids=lambda optimizer: optimizer["kind"])
def test_diloco_with_a_plain_outer_step_is_local_sgd(optimizer):
    """θ − 1·mean(θ − θ_i) is the mean of the θ_i."""
    task = {"kind": "python", "target": DOUBLE}
    outer = {"outer_lr": 1.0, "outer_momentum": 0.0}
    diloco = run({"kind": "diloco", "every": 4, **outer}, task=task, optimizer=optimizer)
    local = run({"kind": "local-sgd", "every": 4}, task=task, optimizer=optimizer)
    for name, tensor in local.parameters.items():
        torch.testing.assert_close(diloco.parameters[name], tensor, rtol=0, atol=1e-6)
    assert diloco.summary["virtual_time_s"] == local.summary["virtual_time_s"]
    assert diloco.metrics["updates"].to_pylist() == [0, 1, 2, 3, 4]  # outer steps


def test_the_outer_step_of_diloco_is_torchs_sgd_with_nesterov_momentum():
    """One eigenvalue λ: n inner steps are w ← (1 − lr·λ)^n·w, for all workers alike."""
    result = run(
        {"kind": "diloco", "every": 3},
        task={"kind": "quadratic", "eigenvalues": [0.5]},
        optimizer={"kind": "sgd", "lr": 0.2},
    )
    outer = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([outer], lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(ITERATIONS // 3):
        outer.grad = outer.detach() * (1 - (1 - 0.2 * 0.5) ** 3)
        optimizer.step()
    torch.testing.assert_close(result.parameters["w"], outer.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sgd", {"lr": 0.1}),
        ("sgd", {"lr": 0.1, "momentum": 0.9}),
        ("adamw", {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_hpsgd_whose_windows_are_single_steps_trains_with_gradients_two_steps_old(kind, settings):
    """Without a network the sum of step i is there when step i+1 is over, for step i+2."""
    eigenvalue = 0.5
    result = run(
        {"kind": "hpsgd"},
        task={"kind": "quadratic", "eigenvalues": [eigenvalue]},
        optimizer={"kind": kind, **settings},
        compute={"kind": "constant", "mean_s": 0.1},
    )
    w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]([w], **settings)
    gradients = []
    for iteration in range(ITERATIONS + 2):
        if iteration >= 2:
            w.grad = gradients[iteration - 2]
            optimizer.step()
        gradients.append(eigenvalue * w.detach().clone())
    torch.testing.assert_close(result.parameters["w"], w.detach(), rtol=1e-12, atol=0)
    assert result.summary["mean_window"] == 1


SOME = [{"kind": "local-sgd", "every": 4}, {"kind": "gossip"}, {"kind": "hpsgd"}]


@pytest.mark.parametrize("sync", [*SOME, {"kind": "diloco", "every": 4}], ids=lambda s: s["kind"])
def test_batch_norm_has_the_averages_of_the_model_that_comes_out(sync):
    """Averages of a worker are not used, since the evaluated model belongs to no worker."""
    task = {"kind": "python", "target": f"{TASKS}:normalised_digits"}
    result = run(sync, task=task, network={"latency_s": 0.004}, stop={"iterations": 40})
    normalised = normalised_digits()
    (train, _), (test, targets), model = normalised.train, normalised.test, normalised.model
    model.load_state_dict(result.parameters)
    hidden = model[:2](train)
    torch.testing.assert_close(model[2].running_mean, hidden.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[2].running_var, hidden.var(0), rtol=0.1, atol=0)
    loss = torch.nn.functional.cross_entropy(model.eval()(test), targets).item()
    found = result.metrics["test_loss"].to_pylist()
    assert found[-1] == pytest.approx(loss, rel=1e-5)
    assert found[0] > 1.5 * found[-1]
