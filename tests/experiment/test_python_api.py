"""Use in a notebook: tasks as objects, overrides by keyword, and the output."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import outpace
from outpace.errors import ConfigError

CONFIG = {
    "workers": 2,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "sync": {"kind": "ssp", "staleness": 2},
    "optimizer": {"lr": 0.1},
    "batch_size": 4,
    "evaluate": {"every_updates": 2},
    "stop": {"iterations": 3},
}
TIMING = {**CONFIG, "task": {"kind": "timing", "parameters": 100}, "evaluate": {}}


def make_task(width: int = 3) -> outpace.Task:
    x = torch.arange(32.0).reshape(16, 2) / 16
    y = (x[:, 0] > 1).long()
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Linear(width, 2))
    loss = torch.nn.functional.cross_entropy
    return outpace.Task(model=model, loss=loss, train=(x, y), test=(x, y))


@pytest.fixture
def yaml(tmp_path):
    """A comparison in a file, without a task."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "workers: 2\nbatch_size: 4\ncompute: {kind: lognormal, mean_s: 0.1, cv: 0.3}\n"
        "evaluate: {every_updates: 2}\nstop: {iterations: 3}\n"
        "variants: [{name: BSP, sync: {kind: bsp}}, {name: wide, sync: {kind: asp}, workers: 4}]\n"
    )
    return path


def test_a_task_is_given_as_a_function_whose_weights_the_seed_decides():
    first, second, other = (
        outpace.simulate(CONFIG, task=make_task, seed=seed).summary["parameters_digest"]
        for seed in (0, 0, 1)
    )
    assert first == second != other
    assert "0.weight" in outpace.simulate(CONFIG, task=lambda: make_task()).parameters


def test_a_task_is_given_as_an_object_which_stays_as_it_is():
    task = make_task()
    before = copy.deepcopy(task.model.state_dict())
    first, second = (outpace.simulate(CONFIG, task=task) for _ in range(2))
    assert first.summary["parameters_digest"] == second.summary["parameters_digest"]
    for name, value in task.model.state_dict().items():
        assert torch.equal(value, before[name])
        assert not torch.equal(first.parameters[name], value)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (torch.nn.Linear(1, 1), "task must be an outpace.Task, a function that returns one"),
        ("my_task.py:make_task", "or a mapping such as {'kind': 'python'"),
        (dict, "task: dict must return an outpace.Task, not dict"),
        (functools.partial(make_task, "wide"), "task: make_task raised TypeError"),
    ],
)
def test_what_is_not_a_task_is_refused(tmp_path, task, words):
    with pytest.raises(ConfigError) as refusal:
        outpace.simulate(CONFIG, tmp_path / "run", task=task)
    assert words in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_given_task_is_in_no_other_process(tmp_path):
    with pytest.raises(ConfigError, match="make_task exists in this process only, and a real run"):
        outpace.run(CONFIG, task=make_task)
    result = outpace.simulate(CONFIG, tmp_path / "run", task=make_task)
    assert outpace.Result.read(tmp_path / "run").summary == result.summary
    with pytest.raises(ConfigError, match="make_task was given from Python"):
        outpace.simulate(tmp_path / "run" / "config.yaml")
    again = outpace.simulate(tmp_path / "run" / "config.yaml", task=make_task)
    assert again.summary["trace_digest"] == result.summary["trace_digest"]


def test_keywords_override_keys_as_on_the_command_line():
    kept = outpace.simulate(
        TIMING, workers=3, seed=5, stop=outpace.Stop(iterations=2), sync={"staleness": 1}
    ).experiment
    assert (kept.workers, kept.seed, kept.stop.iterations) == (3, 5, 2)
    assert (kept.sync.kind, kept.sync.staleness) == ("ssp", 1)
    changed = outpace.simulate(kept, sync={"kind": "asp"}).experiment
    assert (changed.workers, changed.sync.kind) == (3, "asp")
    with pytest.raises(ConfigError, match=r"wokers: unknown key. Did you mean 'workers'\?"):
        outpace.simulate(TIMING, wokers=3)


def test_a_file_is_compared_with_overrides_and_a_task(yaml):
    rows = outpace.compare(yaml, task=make_task, seeds=2, workers=3)
    assert [(row.variant.name, row.seed) for row in rows] == [
        ("BSP", 0),
        ("BSP", 1),
        ("wide", 0),
        ("wide", 1),
    ]
    assert [len(row.summary["iterations"]) for row in rows] == [3, 3, 4, 4]
    assert [variant["name"] for variant in rows.variants] == ["BSP", "wide"]
    single = outpace.simulate(yaml, task=make_task, variants=[], sync={"kind": "bsp"})
    assert single.experiment.workers == 2


def test_a_comparison_with_a_folder_takes_a_given_task_and_does_not_resume_it(yaml, tmp_path):
    rows = outpace.compare(yaml, tmp_path / "all", task=make_task)
    assert {row.summary["status"] for row in rows} == {"complete"}
    with pytest.raises(ConfigError, match="resume: the folders do not say"):
        outpace.compare(yaml, tmp_path / "all", task=make_task, resume=True)
