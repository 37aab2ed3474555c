"""outpace.joined: workers of outpace serve that train in a function, as with Ray Train."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.served import Served

import outpace
from outpace import script
from outpace.errors import ConfigError

# As in Ray Train, the training is not in the main thread, and the process continues after it.
SCRIPT = """
import os, sys, threading, torch, outpace
from outpace.tasks.data.digits import digits_mlp
from outpace.tasks.samples import Sampler

connection = open(os.environ.pop("OUTPACE_CONNECT")).read()

def train():
    torch.manual_seed(0)
    torch.set_num_threads(2)  # a deterministic run computes with one, in the block
    task = digits_mlp()
    inputs, targets = task.train
    with outpace.joined(connection):
        optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1)
        model, optimizer = outpace.attach(task.model, optimizer)
        batches = Sampler(len(inputs), outpace.world_size(), 8, 0)
        for iteration in range(6):
            if FAIL == (outpace.rank(), iteration):
                raise ValueError("no more")
            batch = batches.indices(outpace.rank(), iteration)
            torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert torch.get_num_threads() == 2
    print("after the block", iteration, file=sys.stderr, flush=True)

def told():
    try:
        train()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)

thread = threading.Thread(target=told)
thread.start()
thread.join()
os._exit(0)
"""


def said(served: Served, fail: tuple[int, int] | None = None) -> list[list[str]]:
    """Run both workers; what each of them has printed, in lines."""
    file = served.folder / "train.py"
    file.write_text(SCRIPT.replace("FAIL", repr(fail)))
    workers = [served.start_script(file, rank) for rank in range(2)]
    return [worker.communicate(timeout=120)[1].splitlines() for worker in workers]


@pytest.mark.slow
def test_a_function_trains_as_a_worker_and_its_process_goes_on(serve):
    served = serve("--servers", "2")
    assert said(served) == [["after the block 5"]] * 2
    code, text, summary = served.end()
    assert code == 0, text
    expected = outpace.simulate(
        {
            "task": {"kind": "digits-mlp"},
            "workers": 2,
            "servers": 2,
            "sync": {"kind": "bsp"},
            "compute": {"kind": "constant", "mean_s": 1},
            "optimizer": {"lr": 0.1},
            "batch_size": 8,
            "stop": {"iterations": 6},
        }
    )
    assert summary["parameters_digest"] == expected.summary["parameters_digest"]


@pytest.mark.slow
def test_an_error_in_a_block_ends_the_run_and_reaches_every_worker(serve):
    served = serve("--servers", "1")
    first, second = said(served, fail=(1, 3))
    assert second == ["ValueError: no more"]
    assert first[-1].startswith("RunError: worker-0: the run was ended early: ")
    code, text, summary = served.end()
    assert code == 1
    assert "no more" in text
    assert summary["status"] == "failed"


@pytest.fixture
def _a_place(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPACE_RANK", "0")
    monkeypatch.setenv("OUTPACE_WORLD_SIZE", "2")


@pytest.mark.usefixtures("_a_place")
def test_a_text_that_is_not_from_serve_is_refused():
    words = "outpace.joined: connection was not written by outpace serve"
    with pytest.raises(ConfigError, match=words), outpace.joined("run.json"):
        pass


@pytest.mark.usefixtures("_a_place")
def test_a_process_that_is_a_worker_already_is_refused():
    script.HERE.attach = Path  # anything
    words = "this process is or was a worker of a run"
    with pytest.raises(ConfigError, match=words), outpace.joined("{}"):
        pass
