"""Changes of a gradient after its push during backward are found at the script's step."""

from __future__ import annotations

import pytest
import torch

from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.watched import WatchedGradients
from outpace.errors import ConfigError


class Script:
    """A model of three layers, its optimizer, and its watch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.made: list[int] = []
        self.absent: list[list[int]] = []
        self.is_paused = False
        self.watch = WatchedGradients(
            ScriptModel(self.model, self.optimizer),
            lambda: self.is_paused,
            lambda absent: self.absent.append(list(absent)),
            self.made.append,
        )

    def backward(self) -> None:
        self.model(torch.ones(2, 3)).square().sum().backward()

    def iteration(self, change) -> None:
        """Begin an iteration, with `change` between its backward pass and its step."""
        self.optimizer.zero_grad()
        self.watch.begin()
        self.backward()
        change(self)
        self.watch.check()


@pytest.fixture
def script() -> Script:
    return Script()


def nothing(script: Script) -> None:
    pass


def scale(script: Script) -> None:
    """Scale the gradients, as a GradScaler does before it calls `step`."""
    script.optimizer.grad_scale, script.optimizer.found_inf = torch.ones(()), torch.zeros(())


def unscale(script: Script) -> None:
    """Do what a GradScaler does after the script has called `unscale_`."""
    script.optimizer.grad_scale, script.optimizer.found_inf = None, torch.zeros(())


def set_rate(script: Script) -> None:
    script.optimizer.param_groups[0]["lr"] = 0.2


def double(script: Script) -> None:
    for parameter in script.model.parameters():
        parameter.grad = 2 * parameter.grad


def clamp_data(script: Script) -> None:
    for parameter in script.model.parameters():
        parameter.grad.data.clamp_(-1e-3, 1e-3)


CHANGES = {
    "clip_grad_norm_": lambda script: torch.nn.utils.clip_grad_norm_(
        script.model.parameters(), 0.1
    ),
    "clip_grad_value_": lambda script: torch.nn.utils.clip_grad_value_(
        script.model.parameters(), 0.1
    ),
    "another gradient": double,
    "through data": clamp_data,
    "no gradient any more": lambda script: script.optimizer.zero_grad(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_gradient_that_is_changed_before_the_step_is_refused(script, change):
    script.iteration(nothing)
    with pytest.raises(ConfigError, match=r"the gradient of the parameter \d\.\w+ was changed"):
        script.iteration(change)


@pytest.mark.parametrize("change", [scale, unscale])
def test_gradscaler_is_refused(script, change):
    with pytest.raises(ConfigError, match="GradScaler"):
        script.iteration(change)


def test_settings_that_change_before_the_step_are_refused(script):
    with pytest.raises(ConfigError, match="settings of the optimizer's groups"):
        script.iteration(set_rate)


def test_the_state_of_the_optimizer_is_not_exchanged_between_backward_and_step(script):
    script.watch.require_between_steps()
    with pytest.raises(ConfigError, match="state cannot be saved or loaded between backward"):
        script.iteration(lambda script: script.watch.require_between_steps())
    script.watch.begin()
    script.watch.require_between_steps()


def test_a_second_backward_pass_is_refused_in_it_and_at_the_step(script):
    with pytest.raises(ConfigError, match=r"2.bias got a second gradient before optimizer.step"):
        script.iteration(lambda script: script.backward())
    with pytest.raises(ConfigError, match="Gradient accumulation"):
        script.watch.check()  # if the script has caught the first error


def test_gradients_that_stay_as_they_are_pass_and_come_from_the_last_layer_to_the_first(script):
    for step in range(3):
        script.made.clear()
        script.optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)  # before the iteration
        script.iteration(nothing)
        assert sorted(script.made[:2]) == [4, 5]
        assert sorted(script.made[-2:]) == [0, 1]
        assert len(script.made) == 6
    assert script.absent == [[]] * 3


def test_a_parameter_that_is_trained_only_later_is_watched_from_the_next_iteration_on():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    script = ScriptModel(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model[0].weight.requires_grad_(False)
    made: list[int] = []
    watch = WatchedGradients(script, lambda: False, lambda _: None, made.append)
    for trained, expected in ((False, [1, 2, 3]), (True, [1, 2, 3]), (True, [0, 1, 2, 3])):
        model[0].weight.requires_grad_(trained)  # after the iteration has begun
        model(torch.ones(2, 3)).sum().backward()
        watch.check()
        assert sorted(made) == expected
        made.clear()
        script.optimizer.zero_grad()
        watch.begin()
