"""Real runs of scripts without servers continue from their last checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from tests.support.paths import SCRIPTS
from tests.support.saved_runs import give_up, once_saved
from tests.support.script_runs import logged

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


DISTRIBUTED = {
    **RUN,
    "task": {"kind": "script", "path": str(SCRIPTS / "ddp_kept.py")},
    "sync": {"kind": "ssgd"},
}


@linux
@pytest.mark.slow
def test_after_the_death_of_a_worker_all_begin_again_and_repeat_bitwise(tmp_path):
    folder, runs, expected = tmp_path / "run", [], outpace.simulate(DISTRIBUTED)
    said: list[str] = []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["worker-1"], signal.SIGKILL)

    control = once_saved(folder, kill)
    result = run(
        {**DISTRIBUTED, **SAVED}, folder, watch=runs.append, log=said.append, control=control
    )
    assert not runs[0].launcher.pids
    assert (result.summary["restarts"], result.summary["updates_lost"]) == (1, 0)
    (line,) = said
    words = "worker-1 was killed by SIGKILL before it was done; the run continues from checkpoints/"
    assert line.startswith(words)
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["worker"], lost["shard"]) == (1, None)
    assert lost["version"] >= 2  # the checkpoint
    assert lost["start_ns"] < lost["end_ns"]
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert result.summary["iterations"] == [9, 9]
    assert logged(result) == logged(expected)
