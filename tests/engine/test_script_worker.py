"""The actions that are allowed to a script at each time; the driver only notes the calls."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import outpace
from outpace.config.reading import experiment_from
from outpace.engine.scripts.attached import AttachedScript
from outpace.engine.scripts.ending import RunOver
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.worker import FollowedScript, Presence, never_stopped
from outpace.errors import ConfigError, RunError
from outpace.support.place import HERE


class Driver:
    """Takes the steps of a script at once; `leaving` is raised when its worker leaves."""

    name, is_ended_early, gradients, holds_state, carries = "worker-0", False, None, False, False

    def __init__(self, leaving: BaseException | None = None) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.script, self.presence = ScriptModel(self.model, self.optimizer), Presence()
        self.leaving, self.iteration, self.calls = leaving, 0, list[str]()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)

    def out_of_time(self) -> Any:
        return nullcontext()

    def join(self) -> bool:
        return False

    def computed(self) -> int:
        return self.iteration

    def step(self, *, sets: bool) -> None:
        self.iteration += 1

    def stepped(self) -> None:
        self.iteration += 1

    def abortable(self) -> Any:
        return never_stopped()

    def leave(self, *, fetch: bool, sets: bool) -> None:
        self.presence.has_left = True
        if self.leaving is not None:
            raise self.leaving

    def end(self, error: Exception | None) -> None:
        self.calls.append(f"end {error!r}")


def attached(driver: Driver) -> AttachedScript:
    data = {"task": {"kind": "script", "path": "-"}, "workers": 1, "sync": {"kind": "bsp"}}
    worker = AttachedScript(driver, experiment_from(data, "the test"))
    worker.start()
    return worker


def step(driver: Driver) -> None:
    driver.model(torch.ones(1, 2)).sum().backward()
    driver.optimizer.step()


def test_calls_that_are_refused_leave_the_training_going(monkeypatch):
    driver = Driver()
    worker = attached(driver)
    monkeypatch.setattr(HERE, "worker", worker)
    monkeypatch.setattr(HERE, "attach", attached)
    with pytest.raises(ConfigError, match="attach was called already"):
        outpace.attach(driver.model, driver.optimizer)
    with pytest.raises(ConfigError, match=r"the groups that it had in outpace\.attach"):
        driver.optimizer.add_param_group({"params": []})
    with pytest.raises(ConfigError, match=r"optimizer\.step\(\) in outpace\."), outpace.untimed():
        step(driver)
    step(driver)
    assert driver.iteration == 1
    outpace.finish()
    with pytest.raises(RunError, match="worker-0 has left the run: it cannot take another step"):
        step(driver)
    worker.end(None)


def test_a_step_of_a_followed_script_is_refused_when_it_is_no_part_of_the_training():
    driver = Driver()
    worker = FollowedScript(driver)
    worker.stepped()
    with pytest.raises(ConfigError, match="untimed"), worker.untimed():
        worker.stepped()
    worker.leave()
    with pytest.raises(RunError, match="has left the run"):
        worker.stepped()
    assert driver.iteration == 1


@pytest.mark.parametrize(
    ("leaving", "ends"),
    [(None, "end None"), (RunOver(0), "end None"), (RunError("no"), "end RunError('no')")],
)
def test_a_script_that_ends_leaves_and_its_driver_hears_how(leaving, ends):
    driver = Driver(leaving)
    worker = FollowedScript(driver)
    with pytest.raises(RunError) if isinstance(leaving, RunError) else nullcontext():
        worker.end(None)
    assert driver.calls == [ends]
