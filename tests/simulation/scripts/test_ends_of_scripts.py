"""Scripts in virtual time that end early, fail, or are ended, in the same way as in real runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError, DivergenceError, OutpaceWarning, RunError
from outpace.experiment.results import Result
from outpace.experiment.running import simulate
from outpace.support.streams import OutputClosed


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Let scripts of runs without a folder write their files elsewhere."""
    monkeypatch.chdir(tmp_path)


def simulated(script: str, case: str, out: Path | None = None, **changes: Any) -> Result:
    task = {"kind": "script", "path": str(SCRIPTS / script), "arguments": [case]}
    law = {"kind": "constant", "mean_s": 0.5}
    base = {"task": task, "workers": 2, "sync": {"kind": "bsp"}, "compute": law}
    return simulate({**base, **changes}, out)


def notes(folder: Path, rank: int) -> list[str]:
    """Return the notes of a script at its end; its process has ended."""
    pid, *found = (folder / "files" / f"worker-{rank}" / "notes").read_text().splitlines()
    assert not os.path.exists(f"/proc/{pid}")
    return found


CLEANED = ["finally", "thread", "atexit"]  # in the order of plain Python


@pytest.mark.parametrize(
    ("case", "words", "cleaned"),
    [
        ("raises", r"worker 1: .*ends.py raised ValueError: no luck .*line \d+.* 1.5.* s of", True),
        ("killed", r"the process of worker-1's script was killed by SIGKILL .*1.5.* s of", False),
    ],
)
def test_a_script_that_fails_ends_the_run_and_the_others_clean_up(
    case, words, cleaned, tmp_path, capfd
):
    with pytest.raises(RunError, match=words):
        simulated("ends.py", case, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "failed"
    assert notes(tmp_path / "out", 0) == CLEANED
    assert notes(tmp_path / "out", 1) == (CLEANED if cleaned else [])
    assert capfd.readouterr().err.count("Traceback") == cleaned


def test_a_script_that_exits_leaves_and_one_that_is_stopped_cleans_up(tmp_path, capfd):
    stop = {"virtual_time_s": 3.2}
    result = simulated("ends.py", "exits", tmp_path / "out", stop=stop, servers=2)
    assert result.summary["iterations"] == [6, 3]
    assert result.summary["status"] == "complete"
    assert [notes(tmp_path / "out", rank) for rank in range(2)] == [CLEANED] * 2
    printed = capfd.readouterr()
    assert "outpace: stop.virtual_time_s is reached; the script of worker-0 ends" in printed.out
    assert not printed.err, "many runs of an advice show their standard error"


@pytest.mark.parametrize(
    ("case", "sync", "kind", "words"),
    [
        (
            "unattached",
            "bsp",
            ConfigError,
            r"^worker-1: .*wrong.py ended without calling outpace.at",
        ),
        (
            "refused",
            "bsp",
            RunError,
            r"^worker 1: .*wrong.py ended with exit code 2$",
        ),
        ("state", "ssgd", ConfigError, "^worker-1's optimizer begins with another state than work"),
        (
            "shapes",
            "ssgd",
            ConfigError,
            r"^worker-1 trains other parameters .*\[3, 3\].* where wor",
        ),
        ("clears", "bsp", ConfigError, "^worker-1: the script has cleared or replaced optimizer"),
        ("clears", "ssgd", ConfigError, "^worker-1: the script has cleared or replaced optimizer"),
        ("dtypes", "bsp", ConfigError, "^worker-1: .* one floating-point dtype, not .*float32"),
        ("nan-weights", "bsp", ConfigError, "weight is not finite before the first step: initial"),
        ("lr", "bsp", RunError, "^worker 1, iteration 3, .*setting lr cannot be nan"),
        ("all-nan", "ssgd", DivergenceError, "^nothing was trained: none of the 12 gradients coul"),
        ("all-nan", "diloco", DivergenceError, "^nothing was trained: none of the 12 gradients co"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:a gradient of worker-. is not finite",
    "ignore:worker-0 and worker-1 computed the same gradient",
)
def test_an_error_of_a_script_names_its_worker(case, sync, kind, words):
    every = {"every": 3} if sync == "diloco" else {}
    with pytest.raises(kind, match=words):
        simulated("wrong.py", case, sync={"kind": sync, **every})


@pytest.mark.filterwarnings("ignore:worker-0 and worker-1 computed the same gradient")
def test_a_run_ends_when_nothing_reads_what_its_scripts_print(tmp_path, monkeypatch):
    def show(_: str, line: str, error: bool) -> None:
        if line.startswith("step"):
            raise OutputClosed

    monkeypatch.setattr("outpace.experiment.simulating.print_line", show)
    with pytest.raises(OutputClosed):
        simulated("talks.py", "", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "partial"


@pytest.mark.filterwarnings("ignore:worker-0 and worker-1 computed the same gradient")
def test_a_gradient_that_is_not_finite_is_left_out():
    words = r"^a gradient of worker-1 is not finite: it is not pushed \(iteration 3\)"
    with pytest.warns(OutpaceWarning, match=words):
        result = simulated("wrong.py", "nan")
    assert result.summary["iterations"] == [6, 6]
    assert result.summary["gradients_applied"] == 11
    with pytest.raises(DivergenceError, match=r"^the gradient of worker-1 is not .* iteration 3; "):
        simulated("wrong.py", "nan", non_finite="stop")
