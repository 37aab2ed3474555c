"""Real runs without servers that are saved: they continue from their last checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.saved_runs import give_up, once_saved

from outpace import Result, RunError, run, simulate

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
RUN: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 120},
    "evaluate": {"every_updates": 40},
}
SAVED = {"checkpoint": {"every_s": 0.1}}
# Gradients are noise of worker and iteration alone, so their sum does not depend on timing.
NOISE = {
    "task": {"kind": "quadratic", "eigenvalues": [0.0] * 6, "noise": 1.0},
    "optimizer": {"kind": "sgd", "lr": 0.05},
}


def interrupted_and_resumed(folder: Path, config: dict[str, Any], **changes: Any) -> Result:
    """Return the result of a run that failed after its third checkpoint and continued."""
    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once_saved(folder, give_up, 3))
    return run(resume=folder, **changes)


@pytest.mark.parametrize("sync", [{"kind": "hpsgd"}, {"kind": "gossip"}])
def test_no_gradient_is_lost_or_counts_twice_where_the_result_depends_on_timing(sync, tmp_path):
    config = {**RUN, **NOISE, "sync": sync}
    expected = simulate(config)
    result = interrupted_and_resumed(tmp_path / "run", config)
    assert int(result.summary["resumed_from"][-6:]) >= 3
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-5)


def killed(folder: Path, config: dict[str, Any], *names: str) -> tuple[Result, list[str]]:
    """Return the result of a run whose workers of these names are killed, and its messages."""
    runs: list[Any] = []
    said: list[str] = []

    def kill() -> None:
        for name in names:
            os.kill(runs[0].launcher.pids[name], signal.SIGKILL)

    control = once_saved(folder, kill)
    result = run({**config, **SAVED}, folder, watch=runs.append, log=said.append, control=control)
    assert not runs[0].launcher.pids
    return result, said


@linux
def test_after_the_death_of_a_worker_all_begin_again_and_nothing_is_applied_twice(tmp_path):
    config = {**RUN, "sync": {"kind": "ssgd"}}
    result, said = killed(tmp_path / "run", config, "worker-1")
    summary, expected = result.summary, simulate(config).summary
    assert summary["parameters_digest"] == expected["parameters_digest"]
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 1, 0)
    assert summary["iterations"] == [120] * 3
    assert summary["gradients_applied"] == 360
    (line,) = said
    words = "worker-1 was killed by SIGKILL before it was done; the run continues from checkpoints/"
    assert line.startswith(words)
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["worker"], lost["shard"]) == (1, None)
    assert lost["version"] >= 2  # the checkpoint
    assert lost["start_ns"] < lost["end_ns"]
