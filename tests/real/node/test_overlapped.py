"""The parts of a script's gradient: when they are sent, and what happens to the other parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError, DivergenceError
from outpace.real.script.overlapped import OverlappedGradient

SLICES = [slice(0, 12), slice(12, 24), slice(24, 31)]  # two layers of 12 parameters, and one of 7


class Trainer:
    """Stands in for a `ScriptTrainer` of a model with three layers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        )
        self.model.spare = torch.nn.Parameter(torch.ones(3))  # comes first, in part 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.script = ScriptModel(self.model, self.optimizer)
        self.step_settings: Any = None
        self.overlapped: Any = None
        self.looked = 0
        self.sent: list[tuple[int, torch.Tensor | None]] = []
        self.events: list[str] = []
        self.model[0].weight.register_hook(lambda _: self.events.append("first layer"))

    def take_gradient(self) -> str:
        return "the whole gradient"

    def refuse_gradient(self) -> None:
        raise DivergenceError("the gradient is not finite")

    def look_at_first(self) -> None:
        self.looked += 1

    def send(self, server: int, part: torch.Tensor | None) -> None:
        self.sent.append((server, part))
        self.events.append(f"part {server}")

    def backward(self, spare: float = 1.0) -> None:
        loss = self.model(torch.ones(2, 3)).square().sum()
        if spare:
            loss = loss + spare * self.model.spare.sum()
        loss.backward()

    def flat(self) -> torch.Tensor:
        gradients = [p.grad for p in self.model.parameters()]
        return torch.cat([g.flatten() if g is not None else torch.zeros(3) for g in gradients])


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


def overlapped(trainer: Trainer, is_paused: Any = lambda: False) -> OverlappedGradient:
    found = trainer.overlapped = OverlappedGradient(trainer, is_paused)  # type: ignore[arg-type]
    slices = [slice(0, 12), slice(12, 24), slice(24, 31)]
    found.begin(slices, trainer.send)
    return found


def test_parts_are_sent_in_backward_from_the_last_to_the_first(trainer):
    found = overlapped(trainer)
    trainer.backward()
    assert trainer.events[0] == "part 2"
    assert trainer.events.index("part 2") < trainer.events.index("first layer")
    assert sorted(server for server, _ in trainer.sent) == [0, 1, 2]
    flat = trainer.flat()
    assert all(torch.equal(part, flat[SLICES[server]]) for server, part in trainer.sent)
    assert found.take_gradient() == [None, None, None]
    assert trainer.looked == 1


def test_a_part_without_gradient_is_left_for_the_step_with_zeros(trainer):
    found = overlapped(trainer)
    trainer.backward(spare=0.0)
    assert sorted(server for server, _ in trainer.sent) == [1, 2]
    assert trainer.step_settings.unused == []  # of the part that was sent last
    rest, middle, last = found.take_gradient()
    assert torch.equal(rest, trainer.flat()[SLICES[0]])
    assert (middle, last) == (None, None)
    assert trainer.step_settings.unused == [0]


def test_nothing_is_sent_while_the_process_repeats_or_evaluates(trainer):
    paused = [True]
    found = overlapped(trainer, lambda: paused[0])
    trainer.backward()
    assert trainer.sent == []
    paused[0] = False
    trainer.optimizer.zero_grad()
    found.begin(SLICES, trainer.send)
    trainer.backward()
    assert len(trainer.sent) == 3


def test_a_part_that_is_not_finite_is_not_sent_and_the_step_raises(trainer):
    with torch.no_grad():
        trainer.model[2].weight.fill_(torch.inf)
    found = overlapped(trainer)
    trainer.backward()
    assert trainer.sent == []
    with pytest.raises(DivergenceError):
        found.take_gradient()


def test_a_script_that_leaves_in_the_middle_abstains_where_its_part_is_missing(trainer):
    found = overlapped(trainer)
    trainer.backward(spare=0.0)
    found.leave()
    assert trainer.sent[2:] == [(0, None)]
    found.watched.require_between_steps()  # its state can be saved after that


def test_with_a_law_of_run_times_the_whole_gradient_is_taken_and_still_watched(trainer):
    found = overlapped(trainer)
    found.begin(SLICES, None)
    trainer.backward()
    assert trainer.sent == []
    trainer.model[0].weight.grad.mul_(2)
    with pytest.raises(ConfigError, match=r"0\.weight was changed"):
        found.take_gradient()
    found.begin(SLICES, None)
    assert found.take_gradient() == "the whole gradient"
