"""A checkpoint is loaded as a plain state_dict."""

import pytest
import torch
from tests.support.checkpoints import save, shard_state
from torch import nn

import outpace
from outpace.record.checkpoints import Checkpoints
from outpace.record.folder import write_config
from outpace.tasks.supervised import SupervisedWorkload

INPUTS = torch.arange(24.0).reshape(8, 3)
TARGETS = torch.tensor([0, 1] * 4)


class Tied(nn.Module):
    """A model whose two layers share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def normalised() -> outpace.Task:
    """Return a task whose model has averages that are not trained."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    return outpace.Task(model, nn.functional.cross_entropy, (INPUTS, TARGETS))


def checkpoint_of(run, flat, layout):
    """Save a checkpoint of two servers with these parameters."""
    states = [shard_state(shard=m, parameters=part) for m, part in enumerate(flat.split(7))]
    save(Checkpoints(run), 1, states, layout=layout)


def test_names_and_shapes_are_those_of_the_model(tmp_path):
    model = Tied()
    task = outpace.Task(model, nn.functional.cross_entropy, (INPUTS, TARGETS))
    checkpoint_of(tmp_path, torch.arange(12.0), SupervisedWorkload(task, 1, 2, 0).layout)
    found = outpace.load_checkpoint(tmp_path)
    model.load_state_dict(found)
    weights = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    assert model.first.weight.tolist() == model.second.weight.tolist() == weights
    assert model.second.bias.tolist() == [9.0, 10.0, 11.0]
    (folder,) = (tmp_path / "checkpoints").iterdir()
    assert outpace.load_checkpoint(folder).keys() == found.keys()


def test_averages_of_a_task_are_computed_as_at_the_end_of_a_run(tmp_path):
    target = f"{__file__}:normalised"
    task = {"kind": "python", "target": target}
    rest = {"workers": 2, "batch_size": 4, "sync": {"kind": "bsp"}, "stop": {"iterations": 1}}
    write_config(tmp_path, {"task": task, **rest})
    workload = SupervisedWorkload(normalised(), 2, 4, 0)
    flat = torch.linspace(-1, 1, 12)
    checkpoint_of(tmp_path, flat, workload.layout)
    found, wanted = outpace.load_checkpoint(tmp_path), workload.state_dict([flat])
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert found["1.running_mean"].abs().sum() > 0


def test_a_folder_without_checkpoint_and_a_damaged_one_are_named(tmp_path):
    with pytest.raises(outpace.ConfigError, match="is no checkpoint, and has no checkpoint in"):
        outpace.load_checkpoint(tmp_path)
    checkpoint_of(tmp_path, torch.arange(12.0), "")
    (folder,) = (tmp_path / "checkpoints").iterdir()
    (folder / "server-0.safetensors").write_bytes(b"")
    with pytest.raises(outpace.ConfigError, match=r"server-0.safetensors is damaged: its size"):
        outpace.load_checkpoint(folder)
