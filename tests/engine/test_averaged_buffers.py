"""The vector of a model's averaged buffers, and the trailer of a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outpace.engine.scripts.buffers import AveragedBuffers, BufferLayout
from outpace.engine.scripts.sameness import (
    differing_settings,
    model_digest,
    settings_digest,
    who_differ,
    without_numbers,
)
from outpace.engine.scripts.trailer import Trailer, numbers_in
from outpace.errors import ConfigError

CPU = torch.device("cpu")


def model(**buffers: torch.Tensor) -> nn.Module:
    made = nn.Module()
    for name, buffer in buffers.items():
        made.register_buffer(name, buffer)
    return made


def averaged(*modules: nn.Module) -> list[AveragedBuffers]:
    return [AveragedBuffers(each, averaged=True) for each in modules]


def average(workers: list[AveragedBuffers]) -> None:
    mean = sum(each.read(CPU) for each in workers) / len(workers)
    for each in workers:
        each.load(mean)


def test_a_changed_buffer_becomes_the_mean_also_if_it_is_another_tensor():
    modules = [model(mean=torch.zeros(2)) for _ in range(3)]
    workers = averaged(*modules)
    modules[1].mean = torch.tensor([3.0, 6.0])
    average(workers)
    assert all(each.mean.tolist() == [1.0, 2.0] for each in modules)


def test_a_buffer_that_no_worker_has_changed_keeps_its_bits():
    odd = torch.tensor([0.1, float("-inf"), float("nan")])
    modules = [model(mask=odd.clone(), low=torch.tensor([0.1]).bfloat16()) for _ in range(3)]
    workers = averaged(*modules)
    average(workers)
    for each in modules:
        assert torch.equal(each.mask.view(torch.int32), odd.view(torch.int32))
        assert torch.equal(each.low, torch.tensor([0.1]).bfloat16())


def test_a_buffer_of_another_shape_is_each_worker_s_own_from_then_on():
    said = []
    modules = [model(table=torch.zeros(2), mean=torch.zeros(1)) for _ in range(2)]
    workers = [AveragedBuffers(each, True, lambda: said.append("missing")) for each in modules]
    modules[0].table = torch.ones(3)
    modules[1].table += 5
    modules[1].mean += 4
    average(workers)
    assert [each.table.tolist() for each in modules] == [[1, 1, 1], [5, 5]]
    assert [each.mean.item() for each in modules] == [2, 2]
    modules[0].table = torch.zeros(2)
    average(workers)
    assert modules[1].table.tolist() == [5, 5]
    assert said == ["missing"]


GROUPS = [
    {"lr": 0.1, "betas": [0.9, 0.999], "nesterov": True, "initial_lr": 0.1},
    {"lr": 0.3, "betas": [0.5, 0.6], "nesterov": False, "initial_lr": 0.3},
]


def test_every_number_in_the_settings_travels_and_becomes_the_mean():
    numbers = numbers_in(GROUPS)
    assert len(numbers) == 8
    trailer = Trailer(2, numbers, BufferLayout({}))
    gradient, none = torch.ones(3, dtype=torch.bfloat16), torch.empty(0)
    other = [{**GROUPS[0], "betas": [0.7, 0.999]}, {**GROUPS[1], "lr": 0.1}]
    total = trailer.appended([gradient.clone()], {1}, GROUPS, none)
    total.add_(trailer.appended([gradient.clone()], {1}, other, none))
    found, how, _ = trailer.split(total, GROUPS)
    assert [each.tolist() for each in found] == [[2, 2, 2]]
    assert how.unused == [1]
    assert how.groups[0]["betas"] == [pytest.approx(0.8, abs=1e-15), 0.999]
    assert how.groups[1]["lr"] == pytest.approx(0.2, abs=1e-15)
    assert [group["nesterov"] for group in how.groups] == [True, False]
    assert GROUPS[0]["betas"] == [0.9, 0.999]  # the worker's own values do not change


def test_a_number_that_is_none_any_more_is_named():
    trailer = Trailer(1, numbers_in(GROUPS), BufferLayout({}))
    changed = [GROUPS[0], {**GROUPS[1], "betas": None}]
    with pytest.raises(ConfigError, match="setting betas of parameter group 1 was a number"):
        trailer.appended([torch.ones(1)], set(), changed, torch.empty(0))


def test_digests_say_which_workers_differ():
    one = [torch.tensor([1.0, 2.0]), torch.tensor([3.0]).bfloat16()]
    assert model_digest(one) == model_digest([each.clone() for each in one])
    assert model_digest(one) != model_digest([torch.tensor([1.0, 2.0000002]), one[1]])
    assert settings_digest(GROUPS) != settings_digest([GROUPS[0], {**GROUPS[1], "lr": 0.31}])
    assert who_differ({0: 5, 1: 5, 3: 7, 2: 0}) == (0, 3)
    assert who_differ({0: 0, 1: 5}) is None
    rates = [GROUPS[0], {**GROUPS[1], "lr": 0.31}]
    assert without_numbers(GROUPS) == without_numbers(rates)
    words = differing_settings(0, GROUPS, 2, rates, 7)
    assert "worker-0 and worker-2 have different settings in iteration 7" in words
    assert "(lr of parameter group 1 0.3 and 0.31)" in words
