"""Changes of parameters that are not steps of the attached optimizer are found."""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from outpace.engine.scripts.fingerprints import Fingerprints
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.taken_over import take_over
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.errors import ConfigError
from outpace.support.place import HERE
from outpace.sync.peers.diloco import DiLoCo
from outpace.sync.peers.hpsgd import Hpsgd
from outpace.sync.peers.local_sgd import LocalSgd
from outpace.sync.peers.ssgd import Ssgd

BSP = None
SGD = torch.optim.SGD


class Worker:
    """A script's optimizer in a run of one process, whose steps it takes itself.

    Args:
        strategy: a strategy without servers; None: BSP.
        options: `carries`, see `WatchedParameters`; `checkpoint` and `cut_off`, of the
            configuration.
    """

    def __init__(self, model: nn.Module, optimizer: Any, strategy: Any = BSP, **options: Any):
        carries, checkpoint = options.get("carries", True), options.get("checkpoint")
        self.model, self.optimizer = model, optimizer
        experiment: Any = SimpleNamespace(
            peers=strategy,
            sync=strategy or SimpleNamespace(kind="bsp"),
            checkpoint=checkpoint,
            cut_off=options.get("cut_off"),
        )
        self.script = ScriptModel(model, optimizer)
        self.watched = WatchedParameters(self.script, experiment, "worker-0", carries=carries)
        self.iteration, self.found = 0, []
        nothing: Any = None
        take_over(optimizer, self.step, nothing, nothing)
        self.watched.begin()

    def step(self, closure: Any) -> None:
        self.found.append(self.watched.at_step(self.iteration))
        unused = set(self.script.unused)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.script.parameters]
        self.script.take_step(parts, unused)
        self.iteration += 1
        self.watched.begin()

    def train(self, *around: Any) -> None:
        """Take a step. around: function that the script calls between backward and step."""
        self.optimizer.zero_grad()
        self.model(torch.ones(4, 6)).square().sum().backward()
        for call in around:
            call()
        self.optimizer.step()


@pytest.fixture
def told(monkeypatch):
    """Return the warnings to the user."""
    found: list[str] = []
    monkeypatch.setattr(HERE, "tell", found.append)
    monkeypatch.setattr(HERE, "workers", 2)
    return found


@pytest.fixture
def workers(monkeypatch, told):
    """Return a function that makes workers; their hooks are removed at the end."""
    monkeypatch.setattr(HERE, "has_attached", True)
    made: list[Worker] = []

    def make(strategy: Any = BSP, optimizer: Any = None, *, model: Any = None, **options: Any):
        model = net() if model is None else model
        made.append(Worker(model, optimizer or SGD(model.parameters(), 0.1), strategy, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.watched.leave(fetch=False)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 400), nn.Tanh(), nn.Linear(400, 7))


@torch.no_grad()
def in_place(model: nn.Module) -> None:
    model[2].weight.clamp_(-0.01, 0.01)


def data(model: nn.Module) -> None:
    model[2].weight.data.clamp_(-0.01, 0.01)


def numpy(model: nn.Module) -> None:
    model[2].weight.detach().numpy()[1, 2] += 1e-6


def other_data(model: nn.Module) -> None:
    model[2].weight.data = model[2].weight.data * 0.5


def columns_exchanged(model: nn.Module) -> None:
    model[2].weight.data.copy_(model[2].weight.data.roll(1, dims=1))


CHANGES = [in_place, data, numpy, other_data, columns_exchanged]


@pytest.mark.parametrize("strategy", [BSP, Hpsgd()], ids=["servers", "hpsgd"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_the_next_parameters_would_replace_is_refused_before_the_step(
    workers, strategy, change
):
    worker = workers(strategy)
    worker.train()
    worker.train()
    change(worker.model)
    words = r"worker-0: the script changed the parameters? 2\.weight.* between its steps 1 and 2\."
    with pytest.raises(ConfigError, match=words) as found:
        worker.train()
    assert "take sync.kind=ssgd or local-sgd" in str(found.value)
    assert worker.iteration == 2


def test_values_that_are_put_back_are_no_change(workers, told):
    worker = workers()
    for _ in range(2):
        worker.train()
        own = [p.detach().clone() for p in worker.model.parameters()]
        for parameter in worker.model.parameters():
            parameter.data.mul_(0.5)
        worker.model.eval()(torch.ones(1, 6))
        for parameter, value in zip(worker.model.parameters(), own, strict=True):
            parameter.data = value if worker.iteration % 2 else parameter.data.copy_(value)
    worker.model.double().float()
    worker.train()
    assert not any(worker.found)
    assert not told


@pytest.mark.parametrize("strategy", [Ssgd(), LocalSgd(every=2)], ids=["ssgd", "local-sgd"])
def test_a_change_of_a_workers_own_parameters_is_kept(workers, strategy, told):
    worker = workers(strategy)
    worker.train()
    in_place(worker.model)
    worker.train()
    worker.train()
    assert worker.found == [False, True, False]
    in_place(worker.model)
    assert worker.watched.leave(fetch=True) == (True, None)
    assert not told


@pytest.mark.parametrize(
    ("strategy", "checkpoint", "words"),
    [
        (DiLoCo(every=2), None, "a limit such as clamping does not hold for the common parameters"),
        (Ssgd(), SimpleNamespace(), "a run that is resumed from it lacks the last change"),
    ],
    ids=["an outer optimizer", "a checkpoint"],
)
def test_what_becomes_of_a_change_is_said_once(workers, told, strategy, checkpoint, words):
    worker = workers(strategy, carries=False, checkpoint=checkpoint)
    for _ in range(3):
        worker.train()
        in_place(worker.model)
    assert worker.found == [False, True, True]
    assert len(told) == 1
    assert words in told[0]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (BSP, "the servers have the result"),
        (Hpsgd(), "parameters besides the model are the result"),
    ],
    ids=["servers", "hpsgd"],
)
def test_finish_leaves_parameters_that_the_script_set_last(workers, told, strategy, words):
    worker = workers(strategy)
    worker.train()
    in_place(worker.model)
    _, own = worker.watched.leave(fetch=True)
    assert torch.equal(own, torch.cat([p.detach().reshape(-1) for p in worker.model.parameters()]))
    assert len(told) == 1
    assert "set the parameter 2.weight after its last step" in told[0]
    assert words in told[0]


# -- parameters that the optimizer does not have ---------------------------------------


def test_trainable_parameters_outside_the_optimizer_are_named_at_the_start(workers, capsys):
    model = net()
    model.head = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    model[0].requires_grad_(False)
    workers(optimizer=SGD(model[2].parameters(), 0.1), model=model)
    assert capsys.readouterr().err == (
        "outpace: 6 trainable parameters of the model not in the optimizer, so not trained by the "
        "run: head.0.weight, head.0.bias, head.1.weight and 3 more\n"
    )


def test_parameters_outside_the_optimizer_are_warned_of_if_they_are_trained(workers, told):
    model = net()
    worker = workers(optimizer=SGD(model[0].parameters(), 0.1), model=model)
    worker.train()
    worker.train()  # a gradient alone changes nothing
    model[2].bias.data.sub_(0.1)
    worker.train()
    model[2].bias.data.sub_(0.1)
    worker.train()
    assert [text.partition(",")[0] for text in told] == ["the script trains the parameter 2.bias"]


@pytest.mark.parametrize(
    ("steps", "cut_off", "warnings"), [("....", None, 1), (".g..", None, 0), ("....", "a law", 0)]
)
def test_steps_that_train_nothing_are_warned_of_once(workers, told, steps, cut_off, warnings):
    worker = workers(cut_off=cut_off)
    for step in steps:
        worker.optimizer.zero_grad()
        if step == "g":
            worker.model(torch.ones(4, 6)).sum().backward()
        worker.optimizer.step()
    assert len([text for text in told if "had a gradient in the first 3 steps" in text]) == warnings


# -- other optimizers ----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [BSP, Ssgd(), LocalSgd(every=2)])
def test_a_second_optimizer_of_the_model_is_refused_by_name_and_line(workers, strategy):
    model = net()
    worker = workers(strategy, SGD(model[0].parameters(), 0.1), model=model)
    second = torch.optim.AdamW(model[2].parameters())
    words = (
        r"AdamW at test_watched_parameters\.py:\d+ took a step of .*\(2\.weight, 2\.bias\)"
        ".* the SGD that it began with"
    )
    with pytest.raises(ConfigError, match=words):
        worker.train(second.step)


class Around(torch.optim.Optimizer):
    """Takes the steps of other optimizers, as Lookahead and MultiOptimizer do."""

    def __init__(self, *inner: torch.optim.Optimizer) -> None:
        super().__init__([group for each in inner for group in each.param_groups], {})
        self.inner = inner

    def step(self, closure=None):
        for each in self.inner:
            each.step()


def test_an_optimizer_around_that_of_the_run_is_no_other(workers, told):
    worker = workers()
    around = Around(worker.optimizer)
    worker.optimizer.zero_grad()
    worker.model(torch.ones(4, 6)).sum().backward()
    around.step()
    assert worker.iteration == 1
    assert not told


def test_an_optimizer_of_other_parameters_trains_on_each_worker_alone(workers, told, monkeypatch):
    worker = workers()
    critic = nn.Linear(2, 1)
    other = torch.optim.Adam(critic.parameters())
    worker.train(other.step)
    assert not told  # they have no gradients
    critic(torch.ones(1, 2)).sum().backward()
    for _ in range(2):
        worker.train(other.step)
    assert len(told) == 1
    assert "Adam at test_watched_parameters.py" in told[0]
    assert "each worker trains them alone" in told[0]
    monkeypatch.setattr(HERE, "workers", 1)
    told.clear()
    workers().train(other.step)
    assert not told


# -- the step of the optimizer -------------------------------------------------------------


def test_a_step_that_the_script_got_before_attach_is_refused(workers):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    step = optimizer.step
    worker = workers(Ssgd(), optimizer, model=model)
    worker.train()
    with pytest.raises(ConfigError, match=r"it got before outpace\.attach, so only this worker"):
        step()
    worker.train()
    assert worker.iteration == 2


def test_a_step_that_was_replaced_is_refused_and_one_that_calls_the_class_is_not(workers):
    def clips(self, closure=None):
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return type(self).step(self, closure)

    model = net()
    for wrap in (False, True):
        optimizer = SGD(model.parameters(), 0.1)
        optimizer.step = optimizer.step  # as accelerate leaves it
        if wrap:
            optimizer.step = MethodType(clips, optimizer)
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        if not wrap:
            workers(Ssgd(), optimizer, model=model).train()
            continue
        with pytest.raises(ConfigError, match="the step of the SGD was replaced by another"):
            workers(Ssgd(), optimizer, model=model)


# -- fingerprints ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [1, 2, 7, 1031, 20011])
def test_fingerprints_are_those_of_the_values_whatever_their_place(dtype, size):
    torch.manual_seed(size)
    values = torch.randn(size, dtype=dtype)
    before = Fingerprints([values, torch.zeros(())])
    moved = torch.cat([values[:1], values])[1:]  # begins in the middle of a word
    strided = torch.stack([values, values], 1)[:, 1]
    for same in (values, values.clone(), moved, strided):
        assert Fingerprints([same, torch.zeros(())]).changed(before) == []
    for place in {0, size // 3, size - 1}:
        other = values.clone()
        other[place] = other[place] * 2
        assert Fingerprints([other, torch.zeros(())]).changed(before) == [0]
    for other in (-values, values.flip(0)):
        if not torch.equal(other, values):
            assert Fingerprints([other, torch.zeros(())]).changed(before) == [0]


@pytest.mark.parametrize("width", [64, 128, 1021])
def test_rows_that_are_exchanged_with_their_neighbours_change_a_fingerprint(width):
    table = torch.arange(4000.0 * width).view(4000, width)
    before = Fingerprints([table])
    table[[0, 1]] = table[[1, 0]]
    assert Fingerprints([table]).changed(before) == [0]
