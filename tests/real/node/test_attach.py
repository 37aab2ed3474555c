"""`outpace.attach` in real processes: bitwise what plain PyTorch does, and errors."""

from __future__ import annotations

import json
import runpy
import sys
import time
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS

import outpace
from outpace.blocks.sums import tree_sum
from outpace.errors import ConfigError, DivergenceError
from outpace.experiment.results import Result
from outpace.experiment.running import run
from outpace.real.script.attach import attached
from outpace.support.processes.standing import is_ending

pytestmark = pytest.mark.slow
FEATURES = runpy.run_path(str(SCRIPTS / "features.py"))
PEERS = runpy.run_path(str(SCRIPTS / "peers.py"))
STEPS = PEERS["STEPS"]


def launch(script: str, *arguments: object, **changes: Any) -> Result:
    task = {
        "kind": "script",
        "path": str(SCRIPTS / script),
        "arguments": [str(a) for a in arguments],
    }
    base = {"workers": 1, "servers": 3, "sync": {"kind": "bsp"}, "deterministic": True}
    return run({**base, "task": task, **changes})


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def alone(model: Any, optimizer: Any) -> Any:
    return model, optimizer


def test_without_a_run_outpaces_lines_do_nothing(tmp_path, warm):
    done = warm.script(SCRIPTS / "features.py", "sgd", tmp_path, cwd=tmp_path)
    assert done.communicate() == (None, "")
    assert done.returncode == 0
    assert same(torch.load(tmp_path / "state.pt"), FEATURES["CASES"]["sgd"](alone))


def test_several_workers_equal_one_process_that_adds_up_their_gradients(tmp_path):
    result = launch("peers.py", "sgd", tmp_path, workers=3)
    model = PEERS["net"]()
    optimizer = PEERS["sgd"](model)
    scheduler = PEERS["scheduler_of"](optimizer)
    # at first the parameters of worker 0
    averages = [dict(PEERS["net"]().norm.named_buffers())] * 3
    for step in range(STEPS):
        gradients = []
        for rank in range(3):
            model.norm.load_state_dict(averages[rank], strict=False)
            model.loss(rank, step).backward()
            averages[rank] = {name: each.clone() for name, each in model.norm.named_buffers()}
            if not PEERS["overflows"](rank, step):
                gradients.append([p.grad for p in model.parameters()])
            optimizer.zero_grad()
        if step == 3:  # an empty leaf: worker 2 is alone in its half of the tree
            assert len(gradients) == 2
        for p, *parts in zip(model.parameters(), *gradients, strict=True):
            if any(part is not None for part in parts):
                filled = [torch.zeros_like(p) if part is None else part for part in parts]
                p.grad = tree_sum(filled) / len(filled)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.norm.load_state_dict(averages[0], strict=False)
    assert same(result.parameters, model.state_dict())
    assert result.summary["iterations"] == [STEPS] * 3
    assert result.summary["gradients_applied"] == 3 * STEPS - 1


def test_without_servers_they_equal_one_process_that_averages_gradients_and_buffers(tmp_path):
    result = launch("peers.py", "sgd", tmp_path, workers=3, servers=1, sync={"kind": "ssgd"})
    models = [PEERS["net"]() for _ in range(3)]
    optimizers = [PEERS["sgd"](model) for model in models]
    schedulers = [PEERS["scheduler_of"](optimizer) for optimizer in optimizers]
    for step in range(STEPS):
        good = []
        for rank, model in enumerate(models):
            optimizers[rank].zero_grad()
            model.loss(rank, step).backward()
            good += [] if PEERS["overflows"](rank, step) else [model]
        for parameters in zip(*(model.parameters() for model in good), strict=True):
            if used := [p.grad for p in parameters if p.grad is not None]:
                mean = sum(used) / len(good)
                for p in parameters:
                    p.grad = mean.clone()
        for name in ("running_mean", "running_var"):
            mean = sum(getattr(model.norm, name) for model in good) / len(good)
            for model in models:
                getattr(model.norm, name).copy_(mean)
        for model in models:  # also a worker whose own gradient cannot be used
            for p, mine in zip(model.parameters(), good[0].parameters(), strict=True):
                p.grad = mine.grad
        for each in (*optimizers, *schedulers):
            each.step()
    for rank, model in enumerate(models):
        saved = torch.load(tmp_path / f"{rank}.pt")
        for found in (saved, result.parameters) if rank == 0 else (saved,):
            torch.testing.assert_close(found, dict(model.state_dict()), rtol=0, atol=1e-6)
    assert result.summary["gradients_applied"] == 3 * STEPS - 1


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


def test_parameters_that_are_not_finite_any_more_end_the_run_which_names_the_worker():
    words = "^the parameters of worker-1 stopped .* before its iteration 4; try"
    with pytest.raises(DivergenceError, match=words):
        launch("wrong.py", "lr", workers=2, servers=1, sync={"kind": "ssgd"})


def test_a_model_that_cannot_be_shared_is_refused_by_attach():
    class SGD(torch.optim.SGD):
        """An optimizer with the name of one that servers know."""

    experiment = outpace.experiment_from(
        {"workers": 1, "sync": {"kind": "bsp"}, "task": {"kind": "script", "path": "-"}}, "test"
    )
    model = torch.nn.Linear(2, 2)
    nowhere = torch.nn.Linear(2, 2, device="meta")
    turns = torch.nn.Linear(2, 2, dtype=torch.cfloat)
    wide = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    for trained, optimizer, words in (
        (model, torch.optim.LBFGS(model.parameters()), "LBFGS computes several gradients for a"),
        (model, torch.optim.Adafactor(model.parameters()), "optimizer Adafactor is not one that"),
        (model, SGD(model.parameters()), "optimizer SGD of .* is not torch's SGD, so it is not"),
        (model, torch.optim.SGD([*model.parameters(), torch.ones(1)]), "1 parameters that the mo"),
        (model, torch.optim.SGD([{"params": [model.bias], "lr": torch.ones(2)}]), "lr is a Tensor"),
        (turns, torch.optim.SGD(turns.parameters()), r"floating-point dtype, not .*complex64"),
        (wide, torch.optim.SGD(wide.parameters()), r"one floating-.* not .*float32.*float64"),
        (nowhere, torch.optim.SGD(nowhere.parameters()), "meta device"),
    ):
        with pytest.raises(ConfigError, match=words):
            attached(None, 0, experiment, trained, optimizer)


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


def test_a_worker_does_not_grow_with_its_iterations(tmp_path):
    launch("growth.py", tmp_path, workers=2, servers=1, sync={"kind": "asp"})
    more = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    # 250 to 300 blocks more, and up to 450 where other programs need the processors. An object that
    # stays for each of the 400 iterations would add 400.
    assert max(more) < 600, "an object or more per iteration, in 400 iterations"
