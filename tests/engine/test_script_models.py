"""The requirements of a run on a script's parameters during training, and its records of them."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.naming import state_dict_of
from outpace.engine.scripts import running
from outpace.engine.scripts.layout import gradient_of
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import require_known


def of_two_layers():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    groups = [{"params": layer.parameters()} for layer in model]
    return model, torch.optim.SGD(groups, lr=0.1)


def delete_group(model, optimizer):
    del optimizer.param_groups[0]


def replace_parameter(model, optimizer):
    optimizer.param_groups[1]["params"][0] = torch.nn.Parameter(torch.ones(1, 2))


def convert(model, optimizer):
    model[1].double()


def resize(model, optimizer):
    model[1].weight.data = torch.ones(1, 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (delete_group, "groups have other parameters than in outpace.attach"),
        (replace_parameter, "groups have other parameters than in outpace.attach"),
        (convert, r"the parameter 1\.weight has 2 elements of float64, .* the 2 of float32"),
        (resize, r"the parameter 1\.weight has 5 elements of float32, .* the 2 of float32"),
    ],
)
def test_parameters_and_groups_stay_those_with_which_the_run_began(change, words):
    model, optimizer = of_two_layers()
    script = ScriptModel(model, optimizer)
    script.require_as_begun(0)
    change(model, optimizer)
    with pytest.raises(ConfigError, match=words):
        script.require_as_begun(1)


def test_a_parameter_that_was_frozen_at_the_beginning_stays_so_and_an_empty_one_is_none_of_them():
    model, _ = of_two_layers()
    model[0].weight.requires_grad_(False)
    model.register_parameter("none", torch.nn.Parameter(torch.empty(0)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    script = ScriptModel(model, optimizer)
    assert script.names == ["0.bias", "1.weight", "1.bias"]
    script.require_as_begun(0)
    model[0].weight.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"0\.weight requires a gradient in iteration 1"):
        script.require_as_begun(1)


def test_the_sparse_gradient_of_an_embedding_is_refused():
    model = torch.nn.Embedding(4, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(ConfigError, match="sparse gradients cannot be shared: make the embedding"):
        gradient_of(model.weight)


class AdamW(torch.optim.AdamW):
    """A class with the name of a torch class."""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (AdamW, f"the optimizer AdamW of {__name__} is not torch's AdamW.*sync.kind=ssgd or local"),
        (
            torch.optim.Muon,
            "the optimizer Muon is not one that servers know.*sync.kind=ssgd",
        ),
        (torch.optim.LBFGS, "LBFGS computes several gradients for a step"),
    ],
)
def test_an_optimizer_that_servers_do_not_know_is_refused_with_what_works(kind, words):
    with pytest.raises(ConfigError, match=words):
        require_known(kind)


def test_a_model_of_several_dtypes_is_recorded_and_restored_with_its_optimizer():
    model = torch.nn.ParameterDict(
        {
            "turns": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.cfloat),
            "narrow": torch.tensor([0.5, float("inf")], dtype=torch.bfloat16),
            "wide": torch.tensor([1 / 3], dtype=torch.float64),
        }
    )
    outside = torch.nn.Parameter(torch.ones(1))  # of a loss
    optimizer = torch.optim.AdamW([*model.parameters(), outside], lr=0.1)
    script = ScriptModel(model, optimizer, is_exchanged=False)
    before = {name: p.detach().clone() for name, p in model.items()}
    recorded = state_dict_of(script.layout, [script.flat()])
    assert all(torch.equal(recorded[name], before[name]) for name in before)
    assert sum(script.layers) == script.flat().numel() == 4 + 2 + 1

    flat, state = script.flat(), script.whole_state()
    state = {number: {k: v.clone() for k, v in each.items()} for number, each in state.items()}
    for p in (*model.parameters(), outside):
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert not torch.equal(model["wide"], before["wide"])
    script.load([flat])
    script.replace_state(state)
    assert all(torch.equal(model[name], before[name]) for name in before)
    assert outside.item() == 1
    optimizer.step()  # the first step of AdamW with weight_decay 0.01: -0.1, and -0.1%
    assert outside.item() == pytest.approx(0.999 - 0.1)


def test_a_script_that_takes_steps_without_attach_is_told_early_and_once(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text("import outpace")
    watches = [running.watch_for_attach(str(path), worker) for worker in (0, 1)]
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    try:
        for _ in range(99):
            optimizer.step()
        assert capsys.readouterr().err == ""
        for _ in range(300):
            optimizer.step()
    finally:
        for watch in watches:
            watch.remove()
    (told,) = capsys.readouterr().err.splitlines()
    assert f"{path} has taken 100 optimizer steps and has not called outpace.attach" in told
