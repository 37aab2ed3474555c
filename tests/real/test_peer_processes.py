"""Workers without servers, for real: some are lost, the others' steps are those they should be."""

from __future__ import annotations

import re
import runpy
import sys
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS

from outpace.errors import RunError
from outpace.experiment.running import run
from outpace.real.coordinator import coordinator
from outpace.tasks.samples import Sampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]
COUNTING = SCRIPTS / "counting.py"
SAMPLES = runpy.run_path(str(COUNTING))["SAMPLES"]
WORKERS, ITERATIONS, BATCH, SEED = 4, 10, 5, 3


def config(sync: dict[str, Any], asleep: int | None = None, **changes: Any) -> dict[str, Any]:
    """asleep: iteration in which worker 1 stands still for a minute."""
    return {
        "seed": SEED,
        "task": {
            "kind": "python",
            "target": f"{COUNTING}:make_task",
            "arguments": {"asleep": asleep},
        },
        "workers": WORKERS,
        "sync": sync,
        "optimizer": {"kind": "sgd", "lr": float(WORKERS)},
        "batch_size": BATCH,
        "stop": {"iterations": ITERATIONS},
        **changes,
    }


def test_every_gradient_of_hpsgd_is_committed_once_and_no_step_waits():
    workers = 3
    slow = {"kind": "lognormal", "mean_s": 0.01, "cv": 1.0}
    result = run(
        config(
            {"kind": "hpsgd", "commit": "delayed"},
            workers=workers,
            compute=slow,
            optimizer={"kind": "sgd", "lr": float(workers)},
            stop={"iterations": 30},
        )
    )
    sampler = Sampler(SAMPLES, workers, BATCH, SEED)
    every = [sampler.indices(worker, step) for worker in range(workers) for step in range(30)]
    (weight,) = (value.double()[0] for value in result.parameters.values())
    assert torch.equal(-weight, torch.bincount(torch.cat(every)).double())
    summary = result.summary
    assert summary["gradients_applied"] == workers * 30
    assert sum(summary["staleness"]["histogram"].values()) == workers * 30
    rows = result.trace.to_pylist()
    joined = [row for row in rows if row["event"] == "all-reduce"]
    assert summary["synchronizations"] == len({row["version"] for row in joined})
    assert summary["mean_window"] == pytest.approx(workers * 30 / len(joined))
    for row in rows:
        if row["event"] == "iteration" and row["iteration"] < 29:
            assert row["held_ns"] == 0


def test_who_does_not_come_to_an_all_reduce_is_named_with_those_who_waited(monkeypatch):
    monkeypatch.setattr(coordinator, "EARLY_END_S", 0.5)
    change = {"kind": "ssgd", "timeout_s": 1.0}
    with pytest.raises(RunError) as caught:
        run(config(change, asleep=4), log=lambda _: None)
    assert re.fullmatch(
        r"worker-1 did not come to all-reduce 4 within 1 s \(sync.timeout_s\); "
        "worker-0, worker-2, worker-3 waited",
        str(caught.value),
    )


# -- how a run ends, and what is written down ------------------------------------------------


DIGITS = {
    "task": {"kind": "digits-mlp"},
    "workers": 3,
    "compute": {"kind": "lognormal", "mean_s": 0.01, "cv": 0.3},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "batch_size": 16,
}
