"""`outpace.attach` in real processes: bitwise what plain PyTorch does, and errors."""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS
from tests.support.script_runs import without_costs

import outpace
from outpace.blocks.sums import tree_sum
from outpace.errors import ConfigError, RunError
from outpace.experiment.results import Result
from outpace.experiment.running import run
from outpace.real.node.script.attach import attached
from outpace.support.processes.standing import is_ending

pytestmark = pytest.mark.slow
FEATURES = runpy.run_path(str(SCRIPTS / "features.py"))
SEVERAL = runpy.run_path(str(SCRIPTS / "several.py"))


def launch(script: str | Path, *arguments: object, log: Any = print, **changes: Any) -> Result:
    task = {
        "kind": "script",
        "path": str(SCRIPTS / script),
        "arguments": [str(a) for a in arguments],
    }
    base = {"workers": 1, "servers": 3, "sync": {"kind": "bsp"}, "deterministic": True}
    return run({**base, "task": task, **changes}, log=log)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def alone(model: Any, optimizer: Any) -> Any:
    return model, optimizer


# -- one worker is plain PyTorch -----------------------------------------------------


def test_one_worker_does_what_plain_pytorch_does(tmp_path):
    case = "adam_clipped"
    said: list[str] = []
    result = launch("features.py", case, tmp_path, log=without_costs(said))
    expected = FEATURES["CASES"][case](alone)
    state = torch.load(tmp_path / "state.pt")
    assert same(state, expected)
    expected.pop("scale", None)
    assert same(result.parameters, expected)
    assert result.summary["iterations"] == [FEATURES["STEPS"]]
    assert said == []


def test_without_a_run_outpaces_lines_do_nothing(tmp_path, warm):
    done = warm.script(SCRIPTS / "features.py", "sgd", tmp_path, cwd=tmp_path)
    assert done.communicate() == (None, "")
    assert done.returncode == 0
    assert same(torch.load(tmp_path / "state.pt"), FEATURES["CASES"]["sgd"](alone))


# -- several ---------------------------------------------------------------------------


def test_several_workers_equal_one_process_that_adds_up_their_gradients(tmp_path):
    result = launch("several.py", "together", tmp_path, workers=3)
    model = SEVERAL["net"]()
    optimizer = SEVERAL["optimizer_of"](model)
    averages = {}
    for step in range(SEVERAL["STEPS"]):
        gradients = []
        for rank in range(3):
            model.norm.load_state_dict(averages.get(rank, SEVERAL["net"]().norm.state_dict()))
            model.loss(rank, step).backward()
            averages[rank] = {k: v.clone() for k, v in model.norm.state_dict().items()}
            if (rank, step) != (1, 3):
                gradients.append([p.grad for p in model.parameters()])
            optimizer.zero_grad()
        if step == 3:  # an empty leaf: worker 2 is alone in its half of the tree
            assert len(gradients) == 2
        for p, *parts in zip(model.parameters(), *gradients, strict=True):
            if any(part is not None for part in parts):
                filled = [torch.zeros_like(p) if part is None else part for part in parts]
                p.grad = tree_sum(filled) / len(filled)
        optimizer.step()
        optimizer.zero_grad()
    model.norm.load_state_dict(averages[0])
    assert same(result.parameters, model.state_dict())
    assert result.summary["iterations"] == [SEVERAL["STEPS"]] * 3
    assert result.summary["gradients_applied"] == 3 * SEVERAL["STEPS"] - 1


def test_a_script_that_allows_it_is_stopped_within_a_layer(tmp_path):
    sync = {"kind": "cutoff", "model": "fixed", "share": 2 / 3}
    result = launch("abortable.py", tmp_path, workers=3, sync=sync)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    steps = 6
    assert result.summary["gradients_applied"] == 2 * steps
    assert [part["stopped"] for part in found] == [0, 0, steps]
    assert found[2]["kept"]  # BatchNorm's averages
    assert found[2]["took"] < steps * 0.4  # not the second that ten slow layers take


# -- what goes wrong ---------------------------------------------------------------------


def test_an_error_of_a_script_names_its_worker():
    words = r"worker 1: .*wrong.py raised ValueError: no luck .*line \d+"
    with pytest.raises(RunError, match=words):
        launch("wrong.py", "raises", workers=2, servers=1, deterministic=False)


def test_a_model_that_cannot_be_shared_is_refused_by_attach():
    class SGD(torch.optim.SGD):
        """Has the name of an optimizer that servers know."""

    experiment = outpace.experiment_from(
        {"workers": 1, "sync": {"kind": "bsp"}, "task": {"kind": "script", "path": "-"}}, "test"
    )
    model = torch.nn.Linear(2, 2)
    nowhere = torch.nn.Linear(2, 2, device="meta")
    for optimizer, words in (
        (torch.optim.LBFGS(model.parameters()), "LBFGS computes several gradients for a step"),
        (SGD(model.parameters()), "optimizer SGD of .* is not torch's SGD, so it is not one"),
        (torch.optim.SGD([*model.parameters(), torch.ones(1)]), "1 parameters that the model"),
        (torch.optim.SGD([{"params": [model.bias], "lr": torch.ones(2)}]), "lr is a Tensor, which"),
        (torch.optim.SGD(nowhere.parameters()), "meta device"),
    ):
        with pytest.raises(ConfigError, match=words):
            attached(None, 0, experiment, nowhere if "meta" in words else model, optimizer)


@pytest.mark.parametrize(
    ("model", "optimizer", "words"),
    [
        (torch.nn.Linear(2, 2), None, r"optimizer must be a torch.optim.*Optimizer, not None$"),
        ([torch.ones(1)], torch.optim.SGD([torch.ones(1)]), r"model must be .*Module, not list$"),
    ],
)
def test_attach_says_which_argument_is_of_the_wrong_kind(model, optimizer, words):
    with pytest.raises(ConfigError, match=words):
        outpace.attach(model, optimizer)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_process_that_a_script_forks_is_no_worker_and_ends_with_its_worker(tmp_path):
    result = launch("forks.py", tmp_path)
    assert (tmp_path / "codes").read_text() == "3 0 1 1 0"
    assert result.summary["iterations"] == [1]
    endless = int((tmp_path / "endless").read_text())
    deadline = time.monotonic() + 20
    while not is_ending(endless):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("kind", ["asp", "ssgd"])
def test_a_worker_does_not_grow_with_its_iterations(tmp_path, kind):
    task = {"kind": "script", "path": str(SCRIPTS / "growth.py"), "arguments": [str(tmp_path)]}
    run({"workers": 2, "sync": {"kind": kind}, "task": task})
    more = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    # 250 to 300 blocks more, and up to 450 where other programs need the processors. An object that
    # stays for each of the 400 iterations would add 400.
    assert max(more) < 600, "an object or more per iteration, in 400 iterations"
