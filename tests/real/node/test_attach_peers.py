"""`outpace.attach` without servers: what one process would do, and errors."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS
from tests.support.script_runs import without_costs

from outpace.errors import DivergenceError
from outpace.experiment.results import Result
from outpace.experiment.running import run
from outpace.real.net.messages import Snapshot, TakeSnapshot

pytestmark = pytest.mark.slow
PEERS = runpy.run_path(str(SCRIPTS / "peers.py"))
STEPS, SSGD = PEERS["STEPS"], {"kind": "ssgd"}


def launch(
    script: str,
    *arguments: object,
    log: Any = lambda _: None,
    watch: Any = None,
    control: Any = None,
    **changes: Any,
) -> Result:
    task = {
        "kind": "script",
        "path": str(SCRIPTS / script),
        "arguments": [str(a) for a in arguments],
    }
    config = {"workers": 2, "sync": SSGD, "task": task, **changes}
    return run(config, log=log, watch=watch, control=control)


def farthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[k].double() - other[k].double()).abs().max()) for k in one)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return farthest(one, other) == 0


# -- several are one that averages -----------------------------------------------------------


class Replicas:
    """The script of all ranks in one process: a model and an optimizer of each."""

    def __init__(self, make: Any, workers: int) -> None:
        self.models = [PEERS["net"]() for _ in range(workers)]
        self.optimizers = [make(model) for model in self.models]
        self.schedulers = [PEERS["scheduler_of"](optimizer) for optimizer in self.optimizers]

    def backward(self, step: int) -> list[int]:
        """Compute the gradients of a step; return the ranks whose gradient can be used."""
        good = []
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            optimizer.zero_grad()
            model.loss(rank, step).backward()
            if not PEERS["overflows"](rank, step):
                good.append(rank)
        return good

    def step(self, who: Any) -> None:
        for rank in who:
            self.optimizers[rank].step()
        for scheduler in self.schedulers:
            scheduler.step()

    def trained(self) -> list[list[torch.Tensor]]:
        """Return the trained parameters of each rank."""
        return [[p.data for p in model.parameters() if p.requires_grad] for model in self.models]

    def average_gradients(self, good: list[int]) -> None:
        for parameters in zip(*(model.parameters() for model in self.models), strict=True):
            found = [parameters[rank].grad for rank in good]
            used = [gradient for gradient in found if gradient is not None]
            mean = sum(used) / len(good) if used else None
            for parameter in parameters:
                parameter.grad = None if mean is None else mean.clone()

    def average_buffers(self, good: Any) -> None:
        """Average BatchNorm's buffers over the ranks whose gradient can be used."""
        for name in ("running_mean", "running_var"):
            found = [getattr(model.norm, name) for model in self.models]
            mean = sum(found[rank] for rank in good) / len(good)
            for buffer in found:
                buffer.copy_(mean)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
def test_ssgd_equals_one_process_that_averages_the_gradients(tmp_path):
    said: list[str] = []
    result = launch("peers.py", "sgd", tmp_path, workers=3, log=without_costs(said))
    hand = Replicas(PEERS["sgd"], 3)
    for step in range(STEPS):
        good = hand.backward(step)
        hand.average_gradients(good)
        hand.average_buffers(good)
        hand.step(range(3))
    for rank, model in enumerate(hand.models):
        assert farthest(torch.load(tmp_path / f"{rank}.pt"), model.state_dict()) < 1e-6
    assert farthest(result.parameters, hand.models[0].state_dict()) < 1e-6
    assert result.summary["gradients_applied"] == 3 * STEPS - 1
    assert said == []


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
def test_diloco_equals_one_process_with_an_outer_optimizer(tmp_path):
    outer = {"outer_lr": 0.6, "outer_momentum": 0.8}
    launch("peers.py", "adamw", tmp_path, workers=2, sync={"kind": "diloco", "every": 3, **outer})
    hand = Replicas(PEERS["adamw"], 2)
    first, second = hand.trained()
    common = [torch.nn.Parameter(p.clone()) for p in first]
    optimizer = torch.optim.SGD(common, lr=0.6, momentum=0.8, nesterov=True)
    for step in range(STEPS):
        hand.step(hand.backward(step))
        if (step + 1) % 3 == 0 or step + 1 == STEPS:
            for parameter, *own in zip(common, first, second, strict=True):
                parameter.grad = sum(parameter.data - one for one in own) / 2
            optimizer.step()
            for parameter, *own in zip(common, first, second, strict=True):
                for one in own:
                    one.copy_(parameter.data)
    for rank, model in enumerate(hand.models):
        assert farthest(torch.load(tmp_path / f"{rank}.pt"), model.state_dict()) < 1e-6


def test_common_parameters_are_equal_whatever_the_workers_pace_and_schedule(tmp_path):
    versions = {}  # version -> worker -> parameters

    def watch(engine: Any) -> None:
        coordinator = engine.coordinator
        taken = coordinator.snapshots.add

        def add(message: Snapshot) -> None:
            versions.setdefault(message.version, {})[message.shard] = message.block
            taken(message)

        coordinator.snapshots.add = add

    def ask(control: Any) -> None:
        coordinator = control._coordinator
        for name in coordinator.workers:
            for version in range(1, 6):
                coordinator.listener.send(name, TakeSnapshot(1000 + version, version))

    pace = {"kind": "lognormal", "mean_s": 0.02, "cv": 0.5, "worker_cv": 1.0}
    options = {"sync": {"kind": "hpsgd"}, "compute": pace, "watch": watch, "control": ask}
    launch("peers.py", "uneven", tmp_path, workers=3, **options)
    complete = [list(found.values()) for found in versions.values() if len(found) == 3]
    assert len(complete) >= 2
    for first, *others in complete:
        assert all(torch.equal(first, other) for other in others)


def test_parameters_that_are_not_finite_any_more_end_the_run_which_names_the_worker():
    words = "^the parameters of worker-1 stopped .* before its iteration 4; try"
    with pytest.raises(DivergenceError, match=words):
        launch("wrong.py", "lr")
