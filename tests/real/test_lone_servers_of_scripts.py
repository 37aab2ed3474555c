"""Real runs of scripts whose servers die and come back alone, while the scripts go on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.counted_pushes import (
    WORKERS,
    config,
    counts,
    require_counted,
    require_each_sample_once,
)
from tests.support.saved_runs import once, once_saved

from outpace import run
from outpace.record.event_log import LOG

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
STEPS = 150


def events(folder: Path) -> Counter[str]:
    return Counter(json.loads(line)["event"] for line in (folder / LOG).read_text().splitlines())


def test_a_server_comes_back_alone_while_the_scripts_go_on_with_the_next_sample(tmp_path):
    runs, said, folder = [], [], tmp_path / "run"

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    control = once_saved(folder, kill, number=3)
    made = config(STEPS, "fetch")  # it reads the state of its optimizer, also from a lost server
    result = run(made, folder, watch=runs.append, log=said.append, control=control)
    summary = result.summary
    assert (summary["restarts"], summary["iterations"]) == (1, [STEPS] * WORKERS)
    require_counted(result)
    assert counts(result)[0].eq(1).all()  # the other server has all of them
    assert summary["updates_lost"] > 0
    (line,) = said
    assert line.endswith(", and the workers go on")
    found = events(folder)
    assert (found["launched"], found["joined"], found["server-back"]) == (1, 5, 1)
    # Each sample is used by one step, and each step is in the records once.
    require_each_sample_once(result)
    rows = result.trace.to_pylist()
    begun = [(each["worker"], each["iteration"]) for each in rows if each["event"] == "iteration"]
    assert len(begun) == len(set(begun)) == WORKERS * STEPS
    gaps = [each for each in rows if each["event"] == "gap"]
    assert sum(each["clock"] for each in gaps) == summary["updates_lost"]


def test_what_is_lost_is_counted_if_a_worker_dies_with_both_servers(tmp_path):
    runs, folder = [], tmp_path / "run"

    def kill() -> None:
        for name in ("server-0", "server-1", "worker-1"):
            os.kill(runs[0].launcher.pids[name], signal.SIGKILL)

    control = once_saved(folder, kill, number=3)
    result = run(config(STEPS), folder, watch=runs.append, control=control)
    assert (result.summary["restarts"], result.summary["iterations"]) == (3, [STEPS] * WORKERS)
    # The script goes on with the next sample, so those in between are lost: none is used twice.
    require_counted(result)
    assert "group-restart" not in events(folder)


@pytest.mark.slow
def test_all_begin_again_if_the_script_has_loaded_a_state_since_the_checkpoint(tmp_path):
    runs, folder = [], tmp_path / "run"

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    def has_loaded() -> bool:
        steps = runs[0].coordinator.reports.totals.iterations
        return min(steps.get(worker, 0) for worker in range(WORKERS)) > 70

    made = config(STEPS, "load", checkpoint={"every_s": 1000})  # one is taken at the start
    result = run(made, folder, watch=runs.append, control=once(has_loaded, kill))
    assert (result.summary["restarts"], result.summary["updates_lost"]) == (1, 0)
    assert events(folder)["group-restart"] == 1
    found = counts(result)
    # What a script keeps is saved after the servers: a push in between is lost.
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert int((found == 0).any(dim=0).sum()) <= WORKERS
