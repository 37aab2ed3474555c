"""The objects that a script keeps besides its parameters, and its place in the data."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR
from torch.utils.data import DataLoader

import outpace
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.saved_script import SavedScript, random_states
from outpace.errors import OutpaceWarning
from outpace.record.checkpoints.trees import packed_tree, tree_of
from outpace.support.place import HERE, DataPlaces


@pytest.fixture
def places(monkeypatch):
    """Return a function that simulates a new process."""

    def anew() -> DataPlaces:
        places = DataPlaces()
        monkeypatch.setattr(HERE, "data", places)
        return places

    anew()
    return anew


class Script:
    """A script with a scheduler and a loader of ten samples, whose batches it draws."""

    def __init__(self, workers: int = 0) -> None:
        self.model = torch.nn.BatchNorm1d(2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.sampler = outpace.sampler(range(10))
        self.loader = DataLoader(
            range(10), 4, sampler=self.sampler, num_workers=workers, collate_fn=list
        )
        objects = {"scheduler": self.scheduler}
        self.kept = SavedScript(ScriptModel(self.model, self.optimizer), objects, True)


def drawn():
    return torch.rand(1).item(), np.random.rand(), random.random()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("had", [0, 1, 2])
def test_a_script_goes_on_with_the_batch_that_it_had_not_finished(places, workers, had):
    script = Script(workers)
    script.sampler.set_epoch(3)
    batches = iter(script.loader)
    for _ in range(had):
        next(batches)
        script.optimizer.step()
        script.scheduler.step()
        script.model.running_mean.add_(1)
    generators = random_states()
    present = next(batches)
    state = tree_of(packed_tree(script.kept.state()))
    rest, following = [present, *batches], drawn()
    if workers:  # other processes draw the batches ahead of time
        state["random"] = generators
    assert state["data"] == [(3, 4 * had)]

    places()
    resumed = Script(workers)
    resumed.kept.restore(state)
    drawn()  # such as what a DataLoader draws when it begins
    assert resumed.sampler.epoch == 3
    resumed.sampler.set_epoch(3)
    assert [*resumed.loader] == rest
    assert drawn() == following
    assert resumed.optimizer.param_groups[0]["lr"] == 0.5**had
    assert resumed.scheduler.last_epoch == had
    assert resumed.model.running_mean.tolist() == [had, had]
    resumed.sampler.set_epoch(4)
    assert sorted(each for batch in resumed.loader for each in batch) == list(range(10))


SCHEDULES = {
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.3, 12),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    "average": lambda optimizer: SWALR(optimizer, 0.05, anneal_epochs=8),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 9)],
        milestones=[6],
    ),
    "chain": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    ),
}


@pytest.mark.filterwarnings("ignore:no objects to keep")  # nor a sampler
@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_of_every_kind_continues_after_a_resume(places, make):
    def made():
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
        schedule = make(optimizer)
        kept = SavedScript(ScriptModel(model, optimizer), {"schedule": schedule}, True)

        def settings(steps):
            """Return learning rate and momentum of the next steps. The loss does not fall."""
            for _ in range(steps):
                optimizer.step()
                schedule.step(*[1.0] * (make is SCHEDULES["plateau"]))
                group = optimizer.param_groups[0]
                yield group["lr"], group["momentum"]

        return kept, settings

    kept, settings = made()
    before = [*settings(5)]
    state = tree_of(packed_tree(kept.state()))
    expected = [*settings(5)]
    assert len({*before, *expected}) > 2, "else this shows nothing"
    places()
    resumed, settings = made()
    resumed.restore(state)
    assert [*settings(5)] == expected


class Counter:
    """An object of the user's that may count epochs."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def loops(script, first=lambda script: 0, epochs=2, sets=False):
    """Train for these epochs."""
    for epoch in range(first(script), epochs):
        if sets:
            script.sampler.set_epoch(epoch)
        assert [*script.loader]
        script.kept.state()


@pytest.mark.parametrize(
    ("loop", "objects", "warned"),
    [
        ({}, {}, True),
        ({"sets": True}, {}, True),
        ({}, {"scheduler": torch.optim.lr_scheduler.StepLR}, True),
        ({"epochs": 1}, {}, False),
        ({"first": lambda script: script.sampler.epoch, "sets": True}, {}, False),
        ({}, {"count": lambda *_: Counter()}, False),
    ],
    ids=["no-epoch", "from-0", "scheduler-alone", "one-pass", "from-sampler.epoch", "own-object"],
)
def test_a_loop_that_would_repeat_epochs_after_a_resume_is_warned_of_with_the_two_lines(
    places, monkeypatch, loop, objects, warned
):
    told = []
    monkeypatch.setattr(HERE, "tell", told.append)
    script = Script()
    kept = {name: make(script.optimizer, 1) for name, make in objects.items()}
    monkeypatch.setattr(HERE, "kept", kept)
    script.kept = SavedScript(ScriptModel(script.model, script.optimizer), kept, True)
    loops(script, **loop)
    assert bool(told) == warned
    for text in told:
        assert "does not begin with sampler.epoch" in text
        assert "outpace.attach(model, optimizer, scheduler=scheduler)" in text
        assert "for epoch in range(sampler.epoch, epochs): sampler.set_epoch(epoch)" in text
    if warned:  # after a resume the warning comes in the first epoch
        state, sets = script.kept.state(), loop.get("sets", False)
        places()
        told.clear()
        resumed = Script()
        resumed.kept = SavedScript(ScriptModel(resumed.model, resumed.optimizer), kept, True)
        resumed.kept.restore(state)
        loops(resumed, epochs=1, sets=sets)
        assert any("does not begin with sampler.epoch" in text for text in told)


def test_a_loop_that_repeats_epochs_after_a_resume_is_warned_of_once(places):
    script = Script()
    script.sampler.set_epoch(3)
    next(iter(script.loader))
    state = script.kept.state()

    places()
    resumed = Script()
    resumed.kept.restore(state)
    with pytest.warns(OutpaceWarning, match="continues in epoch 3 of its data, but sets epo"):
        resumed.sampler.set_epoch(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.sampler.set_epoch(1)
        places().restore(state["data"], lambda: None)
        for epoch in (3, 4, 0):  # it continues at its place; later the order is free
            Script().sampler.set_epoch(epoch)


def test_the_states_of_gpus_are_kept_and_given_back_to_those_that_there_are(places, monkeypatch):
    """The test pretends that this process uses two GPUs, and that the next process has one."""
    kept = [torch.tensor([7], dtype=torch.uint8), torch.tensor([8], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: kept)
    state = tree_of(packed_tree(Script().kept.state()))
    given = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda value, device: given.update({device: value.tolist()})
    )
    told = "random state of 2 GPUs, and this process has 1: what the script draws on the others"
    with pytest.warns(OutpaceWarning, match=told):
        Script().kept.restore(state)
    assert given == {0: [7]}


def test_objects_that_cannot_be_saved_are_named(places):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(outpace.ConfigError, match=r"outpace.attach: counter is a int without"):
        outpace.attach(model, optimizer, counter=3)

    class Odd:
        def state_dict(self):
            return {"function": len}

        def load_state_dict(self, state):
            pass

    assert outpace.attach(model, optimizer, odd=Odd()) == (model, optimizer)
    with pytest.raises(outpace.ConfigError, match=r"the state of odd\['function'\] is a builtins"):
        SavedScript(ScriptModel(model, optimizer), {"odd": Odd()}, True)


def test_a_script_that_keeps_other_objects_is_not_resumed(places):
    state = Script().kept.state()
    script = Script()
    other = SavedScript(ScriptModel(script.model, script.optimizer), {}, True)
    with pytest.raises(outpace.ConfigError, match=r"got no further objects, and .* has scheduler"):
        other.restore(state)


class Pairs:
    """A batch sampler of the user's."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        indices = [*self.sampler]
        yield from zip(indices[::2], indices[1::2], strict=True)


def test_that_the_place_of_a_loader_with_another_batch_sampler_is_not_known_is_said(
    places, monkeypatch
):
    told: list[str] = []
    monkeypatch.setattr(HERE, "tell", told.append)
    for is_kept in (False, True):
        HERE.data.is_kept = is_kept
        [*DataLoader(range(10), batch_sampler=Pairs(outpace.sampler(range(10))))]
        assert len(told) == is_kept
    assert "reads the epoch from its beginning" in told[0]
