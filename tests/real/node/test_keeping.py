"""The script of a worker that takes the place of a lost one repeats what its state lacks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from outpace.real.net.clock import RealClock
from outpace.real.node.script.keeping import Keeping
from outpace.record.checkpoints.tensors import to_bytes
from outpace.record.checkpoints.trees import packed_tree

MODEL, INPUTS = torch.nn.Linear(2, 1), torch.ones(1, 2)


@pytest.fixture
def keeping():
    """The state is of iteration 3, and the servers have the gradients of iterations 3 and 4."""
    process = SimpleNamespace(
        worker=0,
        name="worker-0",
        now=0,
        clock=RealClock(),
        first_iteration=5,
        redivided=None,
        kept=(
            to_bytes(packed_tree({"iteration": 3})),
            SimpleNamespace(done=5, logs=False),
        ),
        not_computing=lambda begin, end: None,
    )
    kept = SimpleNamespace(is_complete=True, restore=lambda state: None)
    found = Keeping(process, kept, lambda: False, reports=False)
    found.restore()
    return found


def test_what_a_script_logs_after_the_last_repeated_step_is_of_that_iteration(keeping):
    for _ in range(2):
        assert keeping.is_repeating
        MODEL(INPUTS)
        assert keeping.repeat()
    assert keeping.is_repeating  # a loss that is logged now was computed at other parameters
    with torch.no_grad():
        MODEL(INPUTS)  # an evaluation
    assert keeping.is_repeating
    MODEL(INPUTS)
    assert not keeping.is_repeating
    assert not keeping.repeat()  # the gradient of iteration 5 goes to the servers


def test_a_script_without_a_module_repeats_until_its_next_step(keeping):
    assert keeping.repeat()
    assert keeping.repeat()
    assert keeping.is_repeating
    assert not keeping.repeat()
    assert not keeping.is_repeating
