"""Real runs of scripts without servers continue from their last checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS
from tests.support.saved_runs import give_up, once_saved
from tests.support.script_runs import logged
from tests.support.shared_out import require_shared_out

import outpace
from outpace import RunError, run

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
RUN: dict[str, Any] = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},
    "workers": 2,
    "deterministic": True,
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.3},  # several checkpoints before the end
}
SAVED = {"checkpoint": {"every_s": 0.1}}
COUNTED = {
    **RUN,
    "task": {"kind": "script", "path": str(SCRIPTS / "counted.py")},
    "compute": {"kind": "constant", "mean_s": 0.05},
}


def test_a_resumed_script_is_bitwise_the_one_without_interruption(tmp_path):
    config, folder = {**RUN, "sync": {"kind": "psgd"}}, tmp_path / "run"
    expected = outpace.simulate(config)
    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once_saved(folder, give_up, 2))
    result = run(resume=folder)
    assert int(result.summary["resumed_from"][-6:]) >= 2
    for key in ("parameters_digest", "iterations", "updates_lost", "status"):
        assert result.summary[key] == expected.summary[key]
    assert logged(result) == logged(expected)


@linux
@pytest.mark.slow
def test_scripts_repeat_bitwise_after_the_death_of_a_worker(tmp_path):
    config = {**RUN, "sync": {"kind": "ssgd"}}
    folder, runs = tmp_path / "run", []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)

    control = once_saved(folder, kill)
    result = run({**config, **SAVED}, folder, watch=runs.append, control=control)
    expected = outpace.simulate(config)
    assert result.summary["restarts"] == 1
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert logged(result) == logged(expected)


DISTRIBUTED = {
    **RUN,
    "task": {"kind": "script", "path": str(SCRIPTS / "ddp_kept.py")},
    "sync": {"kind": "ssgd"},
}


@linux
@pytest.mark.slow
def test_scripts_with_ddp_repeat_bitwise_after_the_death_of_a_worker(tmp_path):
    folder, runs, expected = tmp_path / "run", [], outpace.simulate(DISTRIBUTED)

    def kill() -> None:
        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)

    control = once_saved(folder, kill)
    result = run({**DISTRIBUTED, **SAVED}, folder, watch=runs.append, control=control)
    assert result.summary["restarts"] == 1
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert result.summary["iterations"] == [9, 9]
    assert logged(result) == logged(expected)


def require_each_once(result: Any) -> None:
    """Assert that each sample of each epoch is in the result once."""
    counts = result.parameters["counts"]
    assert counts.allclose(-torch.ones_like(counts), rtol=0, atol=1e-5)
    summary = result.summary
    assert (summary["status"], summary["updates_lost"]) == ("complete", 0)
    assert (summary["iterations"], summary["gradients_applied"]) == ([30, 30], 60)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gossip", "hpsgd"])  # the result depends on timing
def test_after_the_death_of_a_worker_no_sample_is_lost_or_counts_twice(kind, tmp_path):
    config, folder = {**COUNTED, "sync": {"kind": kind}}, tmp_path / "run"
    runs: list[Any] = []
    said: list[str] = []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)

    control = once_saved(folder, kill)
    saved = {**config, **SAVED}
    result = run(saved, folder, watch=runs.append, log=said.append, control=control)
    assert result.summary["restarts"] == 1
    require_each_once(result)
    assert any("the run continues from checkpoints/" in line for line in said)


def test_another_number_of_workers_shares_the_epoch_and_keeps_what_was_trained(tmp_path):
    folder = tmp_path / "run"
    config = {**COUNTED, "workers": 4, "compute": {"kind": "constant", "mean_s": 0.08}}
    saved = {**config, "sync": {"kind": "hpsgd"}, "checkpoint": {"every_s": 0.1, "keep": 99}}
    with pytest.raises(RunError, match="that is enough"):
        run(saved, folder, control=once_saved(folder, give_up))
    require_shared_out(folder, run(resume=folder, workers=2))
