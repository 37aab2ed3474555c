"""A user's optimizer on pieces of the parameters does what torch does on the whole."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.blocks.block import StepSettings
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import KNOWN, TorchOptimizer, plain_settings, require_known

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"maximize": True}],
    "Adam": [{"amsgrad": True, "weight_decay": 0.1, "betas": (0.8, 0.9)}],
    "AdamW": [{"weight_decay": 0.1, "maximize": True}],
    "RMSprop": [{"momentum": 0.5, "centered": True}],
    "Adagrad": [{"initial_accumulator_value": 0.3, "lr_decay": 0.1}],
    "Adadelta": [{"rho": 0.5}],
    "NAdam": [{"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "Rprop": [{"etas": (0.4, 1.3)}],
}
CHOICES = [(name, s) for name in KNOWN for s in [{}, *VARIANTS.get(name, [])]]


@given(data=st.data())
def test_any_split_gives_what_torch_gives_on_whole_tensors(data):
    name, settings = data.draw(st.sampled_from(CHOICES))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=4))
    size, first = sum(sizes), data.draw(st.integers(1, len(sizes)))  # the groups' border
    cuts = data.draw(st.lists(st.integers(1, size - 1), max_size=3))
    numbers = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))

    def draw() -> torch.Tensor:
        return torch.randn(size, generator=numbers, dtype=dtype)

    start = draw()
    # Separate contiguous tensors, as in a model.
    parameters = [torch.nn.Parameter(part.clone()) for part in start.split(sizes)]
    members = [part for part in (parameters[:first], parameters[first:]) if part]
    groups: list[dict[str, Any]] = [{"params": part} for part in members]
    plain = KNOWN[name](groups, lr=0.1, **settings)

    def current() -> list[dict[str, Any]]:
        return [plain_settings(group, plain.defaults) for group in plain.param_groups]

    bounds = sorted({0, size, *cuts})
    blocks = []
    for low, high in pairwise(bounds):
        pieces, place = [], 0
        for number, length in enumerate(sizes):
            a, b = max(place, low), min(place + length, high)
            if a < b:
                pieces.append((number, a - low, b - low))
            place += length
        ours = [[p for p in pieces if p[0] < first], [p for p in pieces if p[0] >= first]]
        block = start[low:high].clone()
        taken = TorchOptimizer(name, ours[: len(groups)], current()).on(block)
        blocks.append((slice(low, high), block, taken))
    for step in range(4):
        unused = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=1))
        plain.param_groups[-1]["lr"] = 0.1 / (step + 1)
        gradient = draw()
        sent = StepSettings(current(), unused)
        for part, _, taken in blocks:
            taken(3 * gradient[part], 3, sent, 0.0, 1.0)
        for number, part in enumerate((3 * gradient / 3).split(sizes)):
            parameters[number].grad = None if number in unused else part.clone()
        plain.step()
    assert torch.equal(
        torch.cat([block for _, block, _ in blocks]),
        torch.cat([p.detach() for p in parameters]),
    )


GROUPS = [[(0, 0, 2)], [(1, 2, 3)]]


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": float("nan")},
        {"lr": "fast"},
        {"lr": [0.1]},
        {"betas": [0.9, 0.9, 0.9]},
        {"betas": [0.9, float("nan")]},
        {"amsgrad": "yes"},
        {"weight_decay": [[]]},
    ],
)
def test_hostile_settings_are_refused(changes):
    fine = plain_settings({"lr": 0.1, "betas": (0.9, 0.99), "unheard": "of"}, ())
    optimizer = TorchOptimizer("Adam", GROUPS, [fine, fine])
    assert optimizer.refusal(None) == ""
    assert optimizer.refusal(StepSettings([fine, {}])) == ""
    (key,) = changes
    assert f"setting {key} cannot be" in optimizer.refusal(
        StepSettings([fine, {**fine, **changes}])
    )
    assert "settings came for 3 parameter groups, not 2" in optimizer.refusal(
        StepSettings([fine] * 3)
    )
    with pytest.raises(ConfigError, match=f"setting {key} cannot be"):
        TorchOptimizer("Adam", GROUPS, [{**fine, **changes}, fine])
    with pytest.raises(ConfigError, match="settings came for 1 parameter groups, not 2"):
        TorchOptimizer("Adam", GROUPS, [fine])


def test_an_unknown_optimizer_is_refused_by_name_and_by_class():
    with pytest.raises(ConfigError, match="the optimizer Lion is not one"):
        TorchOptimizer("Lion", GROUPS, [{}, {}])
    require_known(torch.optim.Adam)
    namesake = type("Adam", (torch.optim.Adam,), {})
    with pytest.raises(ConfigError, match=r"the optimizer Adam of .* is not torch's Adam"):
        require_known(namesake)


def test_settings_travel_as_plain_numbers_or_are_refused():
    group = {
        "params": [torch.ones(1)],
        "param_names": ["w"],
        "lr": np.float64(0.1),
        "betas": (np.float32(0.5), torch.tensor(0.25)),
        "nesterov": np.True_,
        "what": object(),
        "name": "head",
    }
    plain = plain_settings(group, {"lr"})
    assert plain == {"lr": 0.1, "betas": [0.5, 0.25], "nesterov": True, "name": "head"}
    assert type(plain["lr"]) is float
    assert type(plain["nesterov"]) is bool
    for unfit in (object(), torch.ones(2), np.ones(2), [object()], np.longdouble(1)):
        with pytest.raises(ConfigError, match="setting lr is a "):
            plain_settings({"lr": unfit}, {"lr"})
