"""A script saves the whole state of its optimizer, and the state that it loads is used."""

from __future__ import annotations

import copy
import runpy

import pytest
import torch
from tests.support.checkpoints import same
from tests.support.paths import SCRIPTS

from outpace.blocks.slicing import even_slices
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizer_state import flattened, joined, lengths_of
from outpace.errors import ConfigError
from outpace.experiment.running import run
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.real.net.messages import StateEntry
from outpace.real.node.optimizer_state import bytes_due, entries_of, state_from

SCRIPT = runpy.run_path(str(SCRIPTS / "checkpoints.py"))
BEFORE_LOADING = 2  # number of the last checkpoint that the script writes before it loads one
KINDS = ["sgd", "adam", "adamw", "adagrad", "nadam"]


@pytest.mark.slow
def test_checkpoints_are_bitwise_those_of_plain_pytorch(tmp_path):
    kind, arguments = "adamw", ["adamw", str(tmp_path)]
    task = {"kind": "script", "path": str(SCRIPTS / "checkpoints.py"), "arguments": arguments}
    servers = {"workers": 2, "servers": 3, "sync": {"kind": "bsp"}}
    run({"task": task, "deterministic": True, **servers})
    expected = SCRIPT["kept"](kind, lambda model, optimizer: (model, optimizer), lambda: None)
    assert len(expected[2]["optimizer"]["state"]) == 5  # neither the frozen nor the unused ones
    for rank in range(2):
        saved = torch.load(tmp_path / f"{rank}.pt")
        for number, (one, other) in enumerate(zip(saved, expected, strict=True)):
            # Next, worker 0 gives the servers an earlier state. Another worker may still be here.
            if number != BEFORE_LOADING or rank == 0:
                assert same(one, other), f"checkpoint {number} of worker {rank}"
    # The checkpoint continues in plain PyTorch, in this process.
    model, optimizer = SCRIPT["made"](kind)
    model.load_state_dict(saved[3]["model"])
    optimizer.load_state_dict(saved[3]["optimizer"])
    SCRIPT["train"](model, optimizer, 2 + SCRIPT["STEPS"])
    assert same(SCRIPT["checkpoint"](model, optimizer), expected[4])


@pytest.mark.slow
def test_a_state_that_is_loaded_as_it_was_read_does_not_undo_the_steps_of_others(tmp_path):
    task = {"kind": "script", "path": str(SCRIPTS / "reloads.py"), "arguments": [str(tmp_path)]}
    run({"task": task, "workers": 2, "servers": 1, "sync": {"kind": "asp", "scale": "sum"}})
    (state,) = torch.load(tmp_path / "state.pt")["state"].values()
    assert state["momentum_buffer"].item() == 1 + 0.5 + 0.25 + 0.125  # four steps


# -- the state in pieces ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_servers_joins_to_that_of_plain_pytorch(kind):
    model, optimizer = SCRIPT["made"](kind)
    SCRIPT["train"](model, optimizer, 0)
    script = ScriptModel(model, optimizer)
    slices = even_slices(sum(script.layers), 7)
    places = [script.places(part) for part in slices]
    states = []
    for part, groups in zip(slices, places, strict=True):
        steps = TorchOptimizer(type(optimizer).__name__, groups, script.settings()).on(
            script.flat()[part]
        )
        steps.load(script.state_within(part))
        entries, data = entries_of(steps.state())
        assert bytes_due(entries, lengths_of(groups)) == len(data)
        states.append(state_from(entries, data))
    whole = joined(states, places, script.parameters)
    known = optimizer.state
    used = {n: dict(known[p]) for n, p in enumerate(script.parameters) if known.get(p)}
    assert same(whole, used)


def test_a_loaded_state_does_not_share_memory_with_the_checkpoint():
    model, optimizer = SCRIPT["made"]("adamw")
    SCRIPT["train"](model, optimizer, 0)
    script = ScriptModel(model, optimizer)
    before = copy.deepcopy(optimizer.state_dict())
    everything = slice(0, sum(script.layers))
    steps = TorchOptimizer("AdamW", script.places(everything), script.settings()).on(script.flat())
    steps.load(script.state_within(everything))
    steps(torch.ones(everything.stop), 1, None, 0.0, 1.0)
    assert same(optimizer.state_dict(), before)
    assert not same(joined([steps.state()], [script.places(everything)], script.parameters), {})


def test_the_state_of_a_parameter_that_a_server_has_not_stepped_is_left_out():
    parameters, places = [torch.ones(4)], [[[(0, 0, 2)]], [[(0, 0, 2)]]]
    state = {0: {"step": torch.tensor(1.0), "average": torch.ones(2)}}
    assert joined([state, {}], places, parameters) == {}
    (found,) = joined([state, state], places, parameters).values()
    assert same(found, {"step": torch.tensor(1.0), "average": torch.ones(4)})


def test_entries_that_do_not_fit_the_parameters_are_refused():
    lengths = {0: 3}
    assert bytes_due([StateEntry(0, "a", "float32", 3), StateEntry(0, "b", "int64")], lengths) == 20
    for entry in (
        StateEntry(0, "a", "float32", 4),
        StateEntry(1, "a", "float32", 3),
        StateEntry(0, "a", "pickle", 3),
    ):
        assert bytes_due([entry], lengths) is None
    assert bytes_due([StateEntry(0, str(n)) for n in range(17)], lengths) is None


def test_a_state_that_cannot_be_exchanged_is_refused_with_its_name():
    with pytest.raises(ConfigError, match=r"state 'factor' is a tensor of shape \(2, 2\)"):
        flattened({"factor": torch.ones(2, 2)}, torch.ones(4))
    with pytest.raises(ConfigError, match="state 'history' is a list"):
        entries_of({0: {"history": []}})
