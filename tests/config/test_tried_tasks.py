"""A user's task is tried on one batch before its run; this does not change the run."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import outpace
from outpace.config.reading import experiment_from

TASKS = """\
import random
import numpy as np
import torch
from outpace import Task

x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
y = (x[:, 0] > 0).long()
cross_entropy = torch.nn.functional.cross_entropy
calls = []
noise = torch.rand(())

def task(loss=cross_entropy):
    return Task(torch.nn.Linear(3, 2), loss, (x, y))

def per_sample():
    return task(lambda o, t: cross_entropy(o, t, reduction="none"))

def one_element():
    return task(lambda o, t: cross_entropy(o, t).reshape(1))

def detached():
    return task(lambda o, t: cross_entropy(o.detach(), t))

def elsewhere():
    other = torch.zeros((), requires_grad=True)
    return task(lambda o, t: other * 2)

def a_float():
    return task(lambda o, t: cross_entropy(o, t).item())

def raises():
    return task(lambda o, t: 1 / 0)

def leaves():
    return task(lambda o, t: exit(0))

def unset():
    made = task()
    torch.nn.init.constant_(made.model.bias, float("nan"))
    return made

def wrong_shape():
    return Task(torch.nn.Linear(4, 2), cross_entropy, (x, y))

def no_module():
    return Task("x", cross_entropy, (x, y))

def meta():
    return Task(torch.nn.Linear(3, 2, device="meta"), cross_entropy, (x, y))

def a_list():
    return Task(torch.nn.Linear(3, 2), cross_entropy, [x, y])

def regression(**changes):
    data = x, x[:, :1]
    return Task(torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, data, test=data, **changes)

def bad_accuracy():
    return regression(accuracy=lambda o, t: 1 / 0)

class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.own = random.Random(3)

    def __len__(self):
        return 64

    def __getitem__(self, i):
        mine = noise + self.own.random() + random.random() + float(np.random.rand())
        return x[i] + (mine + torch.rand(())).float(), y[i]

def counted():
    with open(__file__ + ".made", "a") as file:
        file.write("made\\n")
    return task()

def remembers():
    # Whatever can remember that it was used does.
    seen = []

    def loss(output, target):
        seen.append(1)
        calls.append(1)
        return cross_entropy(output, target) * (1 + 1 / (len(seen) + len(calls)))

    model = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 2),
    )
    torch.set_default_dtype(torch.float64)
    return Task(model, loss, Noisy())
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS)

    def run(function: str, out: str | None = None, **changes: object) -> outpace.Result:
        plain = {
            "task": {"kind": "python", "target": f"tasks.py:{function}"},
            "workers": 2,
            "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.5},
            "sync": {"kind": "asp"},
            "batch_size": 8,
            "evaluate": {"every_updates": 5},
            "stop": {"iterations": 10},
            **changes,
        }
        experiment = experiment_from(plain, "test", tmp_path)
        random.seed(5)
        np.random.seed(5)
        return outpace.simulate(experiment, None if out is None else tmp_path / out)

    return run


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("per_sample", r"its loss must be a scalar, .* not of shape \(8,\)"),
        ("detached", "its loss has no gradient"),
        ("elsewhere", "its loss has no gradient"),
        ("a_float", "its loss must be a scalar tensor, not a float"),
        ("raises", "its first batch raised ZeroDivisionError: .*tasks.py, line"),
        ("leaves", "its first batch raised SystemExit: 0"),
        ("unset", "the parameter bias is not finite before the first step"),
        ("wrong_shape", "its first batch raised RuntimeError: mat1 and mat2"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_run(run, tmp_path, function, words):
    with pytest.raises(outpace.ConfigError, match=rf"tasks\.py:{function}: {words}") as refusal:
        run(function, "out")
    assert refusal.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("function", "words"),
    [("no_module", "an nn.Module, not a str"), ("meta", "meta device"), ("a_list", "a tuple")],
)
def test_what_is_no_task_is_refused_before_the_run(run, function, words):
    with pytest.raises(outpace.ConfigError, match=words):
        run(function)


def test_a_task_without_classes_has_no_accuracy_and_no_target_of_it(run):
    assert run("regression").summary["accuracy"] is None
    for key, changes in {
        "stop.target_accuracy": {"stop": {"iterations": 10, "target_accuracy": 0.9}},
        "target.accuracy": {"target": {"accuracy": 0.9}},
    }.items():
        with pytest.raises(outpace.ConfigError, match=f"{key}: this task has no accuracy to reach"):
            run("regression", **changes)


def test_an_accuracy_that_raises_fails_the_run(run):
    with pytest.raises(outpace.RunError, match="the task raised in"):
        run("bad_accuracy")


@pytest.mark.parametrize("function", ["task", "one_element", "remembers"])
def test_the_run_does_not_notice(run, function):
    state = torch.get_rng_state()
    tried = run(function)
    alone = run(function)  # known to be fine: not tried again
    assert torch.equal(torch.get_rng_state(), state)
    for digest in ("parameters_digest", "trace_digest"):
        assert tried.summary[digest] == alone.summary[digest]
    assert tried.metrics.equals(alone.metrics)
    for name, value in alone.parameters.items():
        assert torch.equal(tried.parameters[name], value), name


def test_a_task_is_tried_once_in_a_process(run, tmp_path):
    made = tmp_path / "tasks.py.made"
    run("counted")
    assert len(made.read_text().splitlines()) == 2  # for the trial and for the run
    run("counted")
    assert len(made.read_text().splitlines()) == 3
