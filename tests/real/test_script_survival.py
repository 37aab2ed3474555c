"""Real runs of scripts continue from their last checkpoint, with the state of the scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.saved_runs import give_up, once_saved
from tests.support.script_runs import logged, script_run

import outpace
from outpace import RunError, run
from outpace.record.folder import LOG

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
BSP = script_run("kept.py", mean_s=0.25)
SAVED = {**BSP, "checkpoint": {"every_updates": 2}}


@pytest.fixture(scope="module")
def whole() -> Any:
    """Return the run without interruption, in virtual time, which has the same values."""
    return outpace.simulate(BSP)


def killing(
    folder: Path, name: str, number: int = 2, at_s: float | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return options of a run, one of whose processes is killed after a checkpoint, or at a time.

    The second result has the messages of the run.
    """
    runs: list[Any] = []
    said: list[str] = []

    def kill() -> None:
        os.kill(runs[0].launcher.pids[name], signal.SIGKILL)

    control: Callable[..., None] = once_saved(folder, kill, number)
    if at_s is not None:
        control = lambda control: control.at(at_s, kill)  # noqa: E731
    return {"watch": runs.append, "log": said.append, "control": control}, said


def test_a_resumed_script_is_bitwise_the_one_without_interruption_also_on_more_servers(
    tmp_path, whole
):
    folder = tmp_path / "run"
    with pytest.raises(RunError, match="that is enough"):
        run(SAVED, folder, control=once_saved(folder, give_up))
    result = run(resume=folder, servers=3)
    assert result.summary["resumed_from"].startswith("checkpoints/0000")
    assert result.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert result.summary["iterations"] == [9, 9]
    assert result.summary["updates_lost"] == 0
    assert logged(result) == logged(whole)


@linux
def test_a_script_whose_worker_dies_goes_on_bitwise_with_the_next_batch(tmp_path, whole):
    # Its only checkpoint was taken at the start.
    options, said = killing(tmp_path / "run", "worker-1", at_s=1.1)
    saved = {**BSP, "checkpoint": {"every_s": 1000}}
    result = run(saved, tmp_path / "run", **options)
    assert result.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert result.summary["iterations"] == [9, 9]
    assert result.summary["restarts"] == 1
    assert result.summary["updates_lost"] == 0
    (line,) = said
    found = re.fullmatch(
        r"worker-1 was killed by SIGKILL before it was done; it is restarted at iteration (\d+) "
        r"\(generation 1\)",
        line,
    )
    assert found is not None
    first = int(found[1])
    assert first > 1
    lines = map(json.loads, (tmp_path / "run" / LOG).read_text().splitlines())
    (restarted,) = (line for line in lines if line["event"] == "restarted")
    assert (restarted["role"], restarted["generation"]) == ("worker-1", 1)
    assert restarted["message"] == f"worker-1 is started again at iteration {first}, generation 1"
    assert restarted["fields"] == {"first": first, "generation": 1, "updates_lost": 0}
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["worker"], lost["iteration"], lost["version"]) == (1, first, None)
    assert lost["start_ns"] < lost["end_ns"]
    # Nothing is logged twice. The last 0.25 s of the process that was killed are missing.
    of_all, expected = logged(result), logged(whole)
    rows = list(zip(*of_all.values(), strict=True))
    assert len(set(rows)) == len(rows) >= 16
    assert set(rows) <= set(zip(*expected.values(), strict=True))


@linux
def test_a_process_that_takes_the_place_of_a_worker_begins_with_its_buffers(tmp_path):
    saved = {"checkpoint": {"every_s": 1000}}  # the script does not save this
    given = script_run("random_features.py", tmp_path, 30, 0, mean_s=0.05, **saved)
    result = run(given, tmp_path / "run")
    assert (tmp_path / "died").exists()
    assert result.summary["restarts"] == 1
    one, other = (torch.load(tmp_path / f"{number}.pt") for number in range(2))
    assert all(map(torch.equal, one, other))
