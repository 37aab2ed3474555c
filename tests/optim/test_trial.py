"""A user's optimizer that servers cannot apply to pieces of tensors is refused at the start."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.block import StepSettings
from outpace.errors import ConfigError
from outpace.optim.python import PythonOptimizer

MINE = """
import torch


class Mine(torch.optim.Optimizer):
    def __init__(self, groups, lr=0.1, **more):
        super().__init__(groups, dict(lr=lr, **more))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self.direction(group, p, self.state[p]), alpha=-group["lr"])


class Lion(Mine):
    def direction(self, group, p, state):
        average = state.setdefault("average", torch.zeros_like(p))
        found = (0.9 * average + 0.1 * p.grad).sign() + 0.1 * p
        average.lerp_(p.grad, 0.01)
        return found


class Counting(Mine):  # as Adan: it counts its steps in the group
    def direction(self, group, p, state):
        group["count"] = group.get("count", 0) + 1
        return p.grad / group["count"]


class Factored(Mine):  # as Adafactor: only matrices with long sides
    def direction(self, group, p, state):
        if p.ndim != 2 or min(p.shape) < 128:
            return p.grad.sign()
        square = p.grad**2
        return p.grad / (square.mean(0) * square.mean(1, keepdim=True) / square.mean()).sqrt()


class Trust(Mine):  # as LAMB
    def direction(self, group, p, state):
        return p.grad * p.norm() / p.grad.norm()


class Clipped(Mine):  # by the norm of the update, where that is large
    def direction(self, group, p, state):
        return p.grad / max(1.0, float(p.grad.square().mean().sqrt()) / 5)


class Orthogonal(Mine):  # as Muon
    def direction(self, group, p, state):
        if p.ndim < 2:
            raise ValueError("Orthogonal needs matrices")
        return torch.linalg.qr(p.grad.flatten(1).T)[0].T.view_as(p)


class Estimating(Mine):  # as Prodigy: an estimate over all parameters, in the group
    def step(self, closure=None):
        for group in self.param_groups:
            grads = [p.grad for p in group["params"] if p.grad is not None]
            group["d"] = max(group["d"], sum(float(g.norm()) for g in grads) * 1e-6)
        super().step()

    def direction(self, group, p, state):
        return p.grad


class ScheduleFree(Mine):
    def direction(self, group, p, state):
        return p.grad

    def eval(self):
        pass

    def train(self):
        pass


class Closure(Mine):
    def step(self, closure):
        return closure()


class Noisy(Mine):
    def direction(self, group, p, state):
        return p.grad + torch.randn_like(p)


def estimating(groups):
    return Estimating(groups, d=1e-6)


def warming_up(groups):
    return Trust(groups, lr=0.0)
"""


@pytest.fixture
def made(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)

    def make(name, settings=({},)):
        target = f"{tmp_path}/mine.py:{name}"
        return PythonOptimizer(target).of_groups([[(0, 0, 3)]], list(settings))

    return make


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Factored", "makes a Factored, whose step on a part of a tensor is not that part"),
        ("Trust", "makes a Trust, whose step on a part of a tensor"),
        ("warming_up", "makes a Trust, whose step on a part of a tensor"),
        ("Clipped", "makes a Clipped, whose step on a part of a tensor"),
        ("Orthogonal", "raised ValueError: Orthogonal needs matrices .* on flat tensors"),
        ("estimating", "makes a Estimating, whose step depends on all parameters together"),
        ("ScheduleFree", r"makes a ScheduleFree, whose eval\(\) and train\(\) need the state"),
        ("Closure", r"makes a Closure, whose step\(\), without a closure, raised TypeError"),
    ],
)
def test_an_optimizer_that_does_not_work_element_by_element_is_refused(made, name, words):
    with pytest.raises(ConfigError, match=f"{words}.*sync.kind=ssgd or local-sgd"):
        made(name)


@pytest.mark.parametrize("name", ["Lion", "Counting", "Noisy"])
def test_an_optimizer_that_works_element_by_element_is_taken(made, name):
    before = torch.get_rng_state()
    made(name)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_an_optimizer_writes_into_its_group_is_kept_and_saved(made):
    # At gradients of 1 and lr 1: 1 - 1/1 - 1/2, and then - 2/3 at lr 2.
    settings = [{"lr": 1.0, "count": 0}]
    parameters = torch.ones(3)
    step = made("Counting", settings).on(parameters)
    step(torch.ones(3), 1, StepSettings(settings, ()), 0.0, 1.0)
    step(torch.ones(3), 1, StepSettings(settings, ()), 0.0, 1.0)
    assert parameters.tolist() == [-0.5] * 3
    resumed = torch.full((3,), -0.5)
    again = made("Counting", settings).on(resumed)
    again.load(step.state())
    changed = StepSettings([{"lr": 2.0, "count": 0}], ())
    for each, values in ((step, parameters), (again, resumed)):
        each(torch.ones(3), 1, changed, 0.0, 1.0)
        assert values.tolist() == pytest.approx([-0.5 - 2 / 3] * 3)
    # The script sets the count itself: 1 / 8 at lr 2.
    step(torch.ones(3), 1, StepSettings([{"lr": 2.0, "count": 7}], ()), 0.0, 1.0)
    assert parameters.tolist() == pytest.approx([-0.5 - 2 / 3 - 2 / 8] * 3)
