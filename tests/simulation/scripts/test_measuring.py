"""Steps that are measured before a run in virtual time leave no files that change the run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.paths import SCRIPTS

from outpace.errors import OutpaceWarning
from outpace.experiment.results import Result
from outpace.experiment.running import simulate

STEPS = 7  # of an epoch: the first six are enough to measure


def simulated(kind: str, steps: int, **changes: Any) -> Result:
    task = {
        "kind": "script",
        "path": str(SCRIPTS / "snapshots.py"),
        "arguments": [kind, str(steps)],
    }
    sync = {"kind": "ssgd" if kind == "ddp" else "bsp"}
    return simulate({"task": task, "workers": 2, "sync": sync, **changes})


@pytest.mark.parametrize("kind", ["ddp", "attach"])
def test_a_script_that_resumes_trains_all_epochs_after_its_steps_were_measured(
    kind, tmp_path, monkeypatch
):
    results = []
    for name, law in (("measured", {}), ("law", {"compute": {"kind": "constant", "mean_s": 0.1}})):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        results.append(simulated(kind, STEPS, **law))
    measured, law = (result.summary for result in results)
    assert measured["iterations"] == law["iterations"] == [2 * STEPS] * 2
    assert measured["parameters_digest"] == law["parameters_digest"]


def test_files_that_are_written_before_enough_steps_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "ran the script for 8 steps first, and it wrote snapshot.pt, which the run then finds"
    with pytest.warns(OutpaceWarning, match=words):
        result = simulated("attach", 4)  # ends before the second snapshot
    assert result.summary["iterations"] == [4, 4]
